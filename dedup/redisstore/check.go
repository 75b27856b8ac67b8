package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Check implements [dedup.Checker]. Check sends INFO to every master, because CONFIG is often
// forbidden. Check refuses
//
//   - Redis before 7.0, which has no SET with NX and GET
//   - a user without the right to TIME, which the age of events needs
//   - a maxmemory-policy other than noeviction, unless [AllowEviction] was given
//   - a client that spreads keys over servers by itself (redis.Ring): the keys of a failed
//     server move to servers without their records
//
// Check warns if the append-only file is off, and of each setting that INFO does not show.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	found, err := s.checkServers(ctx)
	switch {
	case err == nil, errors.Is(err, errUnfit):
		s.seen.replace(found)
		return found.warnings, err
	case errors.Is(err, errClient):
		return nil, err
	}
	return found.warnings, s.unavailable(ctx, "check", err)
}

// servers is the state of all masters, by INFO.
type servers struct {
	lives    []string // run_id: a server has another one after each start
	warnings []string
}

func (s *Store) checkServers(ctx context.Context) (found servers, err error) {
	var mu sync.Mutex
	err = s.eachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		life, warnings, err := s.checkServer(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		if life != "" {
			found.lives = append(found.lives, life)
		}
		found.warnings = append(found.warnings, warnings...)
		return err
	})
	slices.Sort(found.lives)
	slices.Sort(found.warnings)
	found.warnings = slices.Compact(found.warnings)
	return found, err
}

// errUnfit marks a setting with which the store must not be used.
var errUnfit = errors.New("redis cannot be used as a store")

func (s *Store) checkServer(
	ctx context.Context, c *redis.Client,
) (life string, warnings []string, err error) {
	if err := c.Time(ctx).Err(); unknowable(err) {
		return "", nil, fmt.Errorf("%w: TIME is not permitted, but the age of events needs the clock "+
			"of the server: ACL SETUSER <user> +time", errUnfit)
	} else if err != nil {
		return "", nil, err
	}
	info := make(map[string]string)
	for _, section := range [...]string{"server", "memory", "persistence"} {
		text, err := c.Info(ctx, section).Result()
		if unknowable(err) {
			return "", []string{"redis: cannot check version, eviction and persistence: INFO is not " +
				"permitted; grant it with ACL SETUSER <user> +info, or check by hand: version " +
				"7.0, maxmemory-policy noeviction, appendonly yes"}, nil
		}
		if err != nil {
			return "", nil, err
		}
		readInfo(info, text)
	}
	version, err1 := checkVersion(info["redis_version"])
	eviction, err2 := s.checkEviction(info["maxmemory_policy"])
	for _, w := range [...]string{version, eviction, checkPersistence(info["aof_enabled"])} {
		if w != "" {
			warnings = append(warnings, w)
		}
	}
	return info["run_id"], warnings, errors.Join(err1, err2)
}

func checkPersistence(aof string) (warning string) {
	switch aof {
	case "1":
		return ""
	case "0":
		return "redis: appendonly is no: a restart loses all writes since the last snapshot, and " +
			"their events are handled again; set appendonly yes"
	}
	return "redis: INFO does not show whether appendonly is yes; without it a restart loses events"
}

// unknowable reports whether the user lacks the right to ask.
func unknowable(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command")
}

func readInfo(info map[string]string, text string) {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
}

func checkVersion(v string) (warning string, err error) {
	major, _, _ := strings.Cut(v, ".")
	n, parseErr := strconv.Atoi(major)
	known := parseErr == nil
	switch {
	case !known:
		return fmt.Sprintf("redis: cannot read the version in %q; 7.0 or later is needed", v), nil
	case n < 7:
		return "", fmt.Errorf("%w: version %s, but SET with NX and GET needs 7.0 or later",
			errUnfit, v)
	}
	return "", nil
}

func (s *Store) checkEviction(policy string) (warning string, err error) {
	const why = "the event of an evicted key is handled again, without an error"
	switch {
	case policy == "noeviction":
		return "", nil
	case policy == "":
		return "redis: INFO does not show maxmemory-policy; it must be noeviction: " + why, nil
	case s.evicts:
		return fmt.Sprintf("redis: maxmemory-policy is %s, as AllowEviction permits: %s", policy,
			why), nil
	}
	return "", fmt.Errorf("%w: maxmemory-policy is %s: %s; fix it with CONFIG SET "+
		"maxmemory-policy noeviction and in the "+
		"server's configuration file, or use a Redis of its own", errUnfit, policy, why)
}
