package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// settings are what the environment says.
type settings struct {
	endpoints []string
	provider  string
	workers   int
	job       time.Duration
	grace     time.Duration // from SIGTERM to SIGKILL
}

// minGrace is enough to close a session and exit.
const minGrace = time.Second

// drain is the part of the grace period that is kept for jobs to end: long
// enough for several, and no more than a third.
func (s *settings) drain() time.Duration { return min(5*s.job+2*time.Second, s.grace/3) }

func settingsFrom(env func(string) string) (settings, error) {
	or := func(name, otherwise string) string {
		if v := env(name); v != "" {
			return v
		}
		return otherwise
	}
	s := settings{
		endpoints: strings.Split(or("ETCD_ENDPOINTS", "127.0.0.1:2379"), ","),
		provider:  or("PROVIDER", "demo/jobs"),
	}
	var err error
	if s.workers, err = strconv.Atoi(or("WORKERS", "8")); err != nil || s.workers < 1 || s.workers > 10_000 {
		return s, fmt.Errorf("WORKERS=%q is not a number from 1 to 10000", env("WORKERS"))
	}
	if s.job, err = time.ParseDuration(or("JOB", "20ms")); err != nil || s.job <= 0 {
		return s, fmt.Errorf("JOB=%q is not a time such as 20ms", env("JOB"))
	}
	if s.grace, err = time.ParseDuration(or("GRACE", "30s")); err != nil || s.grace < minGrace {
		return s, fmt.Errorf("GRACE=%q is not a time such as 30s, of at least %v: give the platform's grace period", env("GRACE"), minGrace)
	}
	return s, quota.ValidateProvider(s.provider)
}
