package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// server is a service that the bench uses.
type server struct {
	host string
	port int
	name string // of its program
	args string // part of its command line
}

// servers returns the services by their addresses.
func (l *lab) servers() ([]server, error) {
	pg := l.pool.Config().ConnConfig
	list := []server{{host: pg.Host, port: int(pg.Port), name: "postgres"}}
	s := server{name: "redis-server"}
	if err := s.at(l.redis.Options().Addr); err != nil {
		return nil, err
	}
	list = append(list, s)
	if cfg, err := mariaDB(); err == nil { // only some rows need it
		s := server{name: "mariadbd"}
		if err := s.at(cfg.Addr); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if u, err := dynamoURL(); err == nil { // only some rows need it
		s := server{name: "java", args: "dynamodbv2"}
		if err := s.at(u.Host); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	for _, broker := range l.brokers {
		s := server{name: "java", args: "kafka.Kafka"}
		if err := s.at(broker); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// at sets the address.
func (s *server) at(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	s.host = host
	s.port, err = strconv.Atoi(port)
	return err
}

// local reports whether the server is on this machine.
func (s server) local() bool {
	ip := net.ParseIP(s.host)
	return s.host == "localhost" || strings.HasPrefix(s.host, "/") || ip != nil && ip.IsLoopback()
}

// ownProcesses returns the bench and its servers on this machine. A server without a process is an
// error: its work would count as that of others.
func (dir procfs) ownProcesses(servers []server) ([]int, error) {
	list := dir.processes()
	roots := []int{os.Getpid()}
	for _, s := range servers {
		if !s.local() {
			continue
		}
		pids := dir.processesOf(s, list)
		if len(pids) == 0 {
			return nil, fmt.Errorf("no process is seen behind %s at port %d", s.name, s.port)
		}
		roots = append(roots, pids...)
	}
	slices.Sort(roots)
	return slices.Compact(roots), nil
}

// processesOf returns the processes that listen at the server's port. Docker listens in place of a
// container; then all programs of the server's name count.
func (dir procfs) processesOf(s server, list []process) []int {
	pids := dir.listeners(s.port, list)
	proxied := func(p process) bool {
		return slices.Contains(pids, p.pid) && strings.HasPrefix(p.name, "docker")
	}
	if len(pids) > 0 && !slices.ContainsFunc(list, proxied) {
		return pids
	}
	var named []int
	for _, p := range list {
		if p.name == s.name && strings.Contains(dir.args(p.pid), s.args) {
			named = append(named, p.pid)
		}
	}
	if len(named) == 0 {
		return nil
	}
	return append(named, pids...)
}

// args returns the command line of a process.
func (dir procfs) args(pid int) string {
	data, err := os.ReadFile(filepath.Join(string(dir), strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	return string(data)
}
