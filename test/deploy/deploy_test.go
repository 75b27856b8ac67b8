// Package deploy checks deploy/. Kubernetes must accept the manifests, and the programs must have
// their flags, variables and paths.
package deploy

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// scaledObject has the fields of KEDA's type that the manifest uses: KEDA's module is large.
type scaledObject struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       struct {
		ScaleTargetRef  map[string]string `json:"scaleTargetRef"`
		MinReplicaCount int               `json:"minReplicaCount"`
		MaxReplicaCount int               `json:"maxReplicaCount"`
		CooldownPeriod  int               `json:"cooldownPeriod"`
		Triggers        []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// kinds makes an empty object of each kind.
var kinds = map[string]func() any{
	"apps/v1 StatefulSet":                func() any { return new(apps.StatefulSet) },
	"apps/v1 Deployment":                 func() any { return new(apps.Deployment) },
	"v1 Service":                         func() any { return new(core.Service) },
	"policy/v1 PodDisruptionBudget":      func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return new(networking.NetworkPolicy) },
	"keda.sh/v1alpha1 ScaledObject":      func() any { return new(scaledObject) },
}

// decode reads the objects of a manifest strictly.
func decode(t *testing.T, text []byte) (objects []any) {
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		var head struct{ APIVersion, Kind string }
		require.NoError(t, yaml.Unmarshal(part, &head))
		empty := kinds[head.APIVersion+" "+head.Kind]
		require.NotNil(t, empty, "kind %v", head)
		object := empty()
		require.NoError(t, yaml.UnmarshalStrict(part, object), head.Kind)
		objects = append(objects, object)
	}
	return objects
}

// podOf returns the pod that an object makes.
func podOf(object any) (pod core.PodSpec, ok bool) {
	switch o := object.(type) {
	case *apps.StatefulSet:
		return o.Spec.Template.Spec, true
	case *apps.Deployment:
		return o.Spec.Template.Spec, true
	}
	return pod, false
}

func TestManifests(t *testing.T) {
	programs := map[string]string{
		"idem:latest": build(t, root+"/cmd/idem", "."), "notifier:latest": build(t, root+"/examples", "./notifier"),
	}
	manifests, err := filepath.Glob(root + "/deploy/kubernetes/*.yaml")
	require.NoError(t, err)
	require.Len(t, manifests, 5)
	for _, file := range manifests {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			objects := decode(t, text)
			for _, fault := range unguarded(objects) {
				t.Error(fault)
			}
			for _, object := range objects {
				if pod, ok := podOf(object); ok {
					require.True(t, *pod.SecurityContext.RunAsNonRoot)
					volumes := map[string]bool{}
					for _, v := range pod.Volumes {
						volumes[v.Name] = true
					}
					for _, c := range pod.Containers {
						require.Contains(t, programs, c.Image)
						require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, "%s writes nothing", c.Name)
						for _, m := range c.VolumeMounts {
							require.True(t, volumes[m.Name], "no volume %s", m.Name)
						}
						for _, fault := range faults(c, help(t, programs[c.Image], c.Args)) {
							t.Error(fault)
						}
					}
				}
			}
		})
	}
}

// workload is a set of pods. Ports are those of its containers.
type workload struct {
	name     string
	replicas int32 // zero: another object sets them
	labels   map[string]string
	ports    []int
}

func workloadOf(object any) (w workload, ok bool) {
	var replicas *int32
	switch o := object.(type) {
	case *apps.StatefulSet:
		w, replicas = workload{name: o.Name, labels: o.Spec.Template.Labels}, o.Spec.Replicas
	case *apps.Deployment:
		w, replicas = workload{name: o.Name, labels: o.Spec.Template.Labels}, o.Spec.Replicas
	default:
		return w, false
	}
	if replicas != nil {
		w.replicas = *replicas
	}
	pod, _ := podOf(object)
	for _, c := range pod.Containers {
		for _, p := range c.Ports {
			w.ports = append(w.ports, int(p.ContainerPort))
		}
	}
	slices.Sort(w.ports)
	return w, true
}

// unguarded returns which pods lack a network policy in both directions, or a disruption budget. A
// single pod has no budget: a budget would keep its node from being drained.
func unguarded(objects []any) (all []string) {
	for _, object := range objects {
		w, ok := workloadOf(object)
		if !ok {
			continue
		}
		policies, budgets := 0, 0
		var open []int
		for _, other := range objects {
			switch o := other.(type) {
			case *networking.NetworkPolicy:
				if maps.Equal(o.Spec.PodSelector.MatchLabels, w.labels) && len(o.Spec.PolicyTypes) == 2 {
					policies++
					open = append(open, portsIn(o)...)
				}
			case *policy.PodDisruptionBudget:
				if maps.Equal(o.Spec.Selector.MatchLabels, w.labels) {
					budgets++
				}
			}
		}
		slices.Sort(open)
		if policies != 1 || !slices.Equal(open, w.ports) {
			all = append(all, fmt.Sprintf("%s: %d network policies for ports %v, in to %v", w.name, policies, w.ports, open))
		}
		if (budgets == 1) != (w.replicas != 1) {
			all = append(all, fmt.Sprintf("%s: %d disruption budgets for %d pods", w.name, budgets, w.replicas))
		}
	}
	return all
}

func portsIn(o *networking.NetworkPolicy) (ports []int) {
	for _, rule := range o.Spec.Ingress {
		for _, p := range rule.Ports {
			ports = append(ports, p.Port.IntValue())
		}
	}
	return ports
}

func TestUnguarded(t *testing.T) {
	for want, plant := range map[string]func([]any) []any{
		"": func(all []any) []any { return all },
		"budgets": func(all []any) []any {
			all[1].(*policy.PodDisruptionBudget).Spec.Selector.MatchLabels = nil
			return all
		},
		"for 1 pods": func(all []any) []any {
			one := int32(1)
			all[0].(*apps.Deployment).Spec.Replicas = &one
			return all
		},
		"0 network policies": func(all []any) []any { return all[:2] },
		"in to [8081]": func(all []any) []any {
			port := intstr.FromInt32(8081)
			all[2].(*networking.NetworkPolicy).Spec.Ingress[0].Ports[0].Port = &port
			return all
		},
	} {
		text, err := os.ReadFile(root + "/deploy/kubernetes/relay.yaml")
		require.NoError(t, err)
		found := unguarded(plant(decode(t, text)))
		if want == "" {
			require.Empty(t, found)
			continue
		}
		require.Len(t, found, 1)
		require.Contains(t, found[0], want)
	}
}

// faults returns the names in a container that the program does not have.
func faults(c core.Container, help string) (all []string) {
	args := strings.Join(c.Args, "\n")
	for _, arg := range c.Args {
		name, value, _ := strings.Cut(arg, "=")
		if strings.HasSuffix(name, "-file") && !mounted(c, value) {
			all = append(all, "no mount for "+arg)
		}
		if strings.HasPrefix(name, "-") && !regexp.MustCompile(`(?m)(^|[ ,])`+name+`\b`).MatchString(help) {
			all = append(all, "no flag "+name)
		}
	}
	for _, e := range c.Env { // PGPASSWORD is one of the driver
		if e.Name != "PGPASSWORD" && !strings.Contains(args, "$("+e.Name+")") && !strings.Contains(help, e.Name) {
			all = append(all, "no variable "+e.Name)
		}
	}
	for _, p := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if p == nil {
			continue
		}
		if !strings.Contains(help, p.HTTPGet.Path+" ") {
			all = append(all, "no path "+p.HTTPGet.Path)
		}
		found := false
		for _, port := range c.Ports {
			found = found || port.Name == p.HTTPGet.Port.StrVal &&
				regexp.MustCompile(fmt.Sprintf(`(?m)^--?health=:%d$`, port.ContainerPort)).MatchString(args)
		}
		if !found {
			all = append(all, "no port "+p.HTTPGet.Port.StrVal+" in "+strings.Join(c.Args, " "))
		}
	}
	return all
}

// mounted reports whether a file of a flag lies in a volume.
func mounted(c core.Container, file string) bool {
	for _, m := range c.VolumeMounts {
		if strings.HasPrefix(file, m.MountPath+"/") {
			return true
		}
	}
	return false
}

// build compiles a program, and returns its file.
func build(t *testing.T, dir, pkg string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

// help returns the help of a program about its flags, with the verb if there is one.
func help(t *testing.T, program string, args []string) string {
	t.Helper()
	var verb []string
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		verb = args[:1]
	}
	out, err := exec.CommandContext(t.Context(), program, append(verb, "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestFaults(t *testing.T) {
	const text = "  -health address\n  -health-file file\n  serve /healthz and /readyz at (env IDEM_X)\n"
	probe := func(path, port string) *core.Probe {
		return &core.Probe{ProbeHandler: core.ProbeHandler{HTTPGet: &core.HTTPGetAction{Path: path, Port: intstr.FromString(port)}}}
	}
	good := core.Container{
		Args: []string{"-health=:8080"}, Env: []core.EnvVar{{Name: "IDEM_X"}},
		Ports: []core.ContainerPort{{Name: "health", ContainerPort: 8080}}, LivenessProbe: probe("/healthz", "health"),
	}
	require.Empty(t, faults(good, text))
	for want, plant := range map[string]func(*core.Container){
		"no flag -heath":     func(c *core.Container) { c.Args = append(c.Args, "-heath=:8080") },
		"no variable IDEM_Y": func(c *core.Container) { c.Env = []core.EnvVar{{Name: "IDEM_Y"}} },
		"no mount for -health-file=/x/y": func(c *core.Container) {
			c.Args = append(c.Args, "-health-file=/x/y")
			c.VolumeMounts = []core.VolumeMount{{MountPath: "/xx"}}
		},
		"no path /health":                 func(c *core.Container) { c.LivenessProbe = probe("/health", "health") },
		"no port web in -health=:8080":    func(c *core.Container) { c.LivenessProbe = probe("/healthz", "web") },
		"no port health in -health=:8081": func(c *core.Container) { c.Args = []string{"-health=:8081"} },
	} {
		bad := good
		plant(&bad)
		require.Equal(t, []string{want}, faults(bad, text))
	}
}

// The image is built with the Go release of go.mod, statically, and runs without root.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile(root + "/deploy/Dockerfile")
	require.NoError(t, err)
	mod, err := os.ReadFile(root + "/go.mod")
	require.NoError(t, err)
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\S+)$`).FindSubmatch(mod)
	require.NotNil(t, toolchain)
	require.Contains(t, string(text), "\nFROM golang:"+string(toolchain[1])+"-")
	require.Contains(t, string(text), "CGO_ENABLED=0")
	stages := regexp.MustCompile(`(?m)^FROM (.+)$`).FindAllSubmatch(text, -1)
	require.Equal(t, "gcr.io/distroless/static-debian12:nonroot", string(stages[len(stages)-1][1]))
	require.Regexp(t, `(?m)^USER 65532:65532$`, string(text))
}
