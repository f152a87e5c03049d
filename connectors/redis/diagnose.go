package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// OpenAdvice says what to do about a server that cannot be reached or refuses the user.
// It implements connectors.OpenAdviser.
func (s *sink) OpenAdvice(err error) (key, help string) { return openAdvice(err) }

func openAdvice(err error) (key, help string) {
	var dial *net.OpError
	switch text := err.Error(); {
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"):
		return "password", "set username and password as the server has them"
	case errors.As(err, &dial):
		return "addresses", "check the addresses, and that the server listens there for this machine"
	}
	return "", ""
}

// Diagnose tells of the server, and whether it throws away what is written. It
// implements connectors.Diagnoser.
func (s *sink) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	text, err := s.client.Info(ctx).Result()
	if err != nil {
		if strings.Contains(err.Error(), "NOPERM") {
			d.OK("server", "not known: this user may not ask for INFO")
			return
		}
		d.Fail("server", "addresses", classify(err), "")
		return
	}
	judge(d, parseInfo(text))
}

// parseInfo are the values in an answer to INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// judge says what the state of a server means for what is written to it.
func judge(d *connectors.Diagnosis, info map[string]string) {
	text := fmt.Sprintf("Redis %s, %s", info["redis_version"], info["role"])
	if info["role"] == "slave" {
		d.Fail("server", "addresses", errors.New(text+": it takes no writes"), "name the master, or its sentinels with master")
		return
	}
	d.OK("server", text)
	policy := info["maxmemory_policy"]
	if policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		d.Warn("memory", "", fmt.Sprintf("maxmemory-policy is %s: beyond %s bytes the server removes rows without a word", policy, info["maxmemory"]), "set maxmemory-policy noeviction, where rows must stay")
	} else {
		d.OK("memory", "no row is removed to make room")
	}
	if info["aof_enabled"] == "0" && info["loading"] != "" {
		d.Warn("durability", "", "the append-only file is off: a crash of the server loses rows that this pipeline holds for written", "set appendonly yes, where rows must stay")
	}
}
