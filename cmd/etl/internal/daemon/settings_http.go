package daemon

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/v2"

	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
)

// httpSettings reads the keys of http, and reports all that is wrong with them.
func httpSettings(k *koanf.Koanf) (web.Settings, []error) {
	var faults []error
	fault := func(key string, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: "+format, append([]any{key}, args...)...))
	}
	truth := func(key string) bool {
		v, err := strconv.ParseBool(k.String(key))
		if err != nil {
			fault(key, "write true or false, not %q", k.String(key))
		}
		return v
	}
	texts := func(key string) []string {
		list, err := listOf(k.Get(key))
		if err != nil {
			fault(key, "%w", err)
		}
		var out []string
		for _, v := range list {
			out = append(out, fmt.Sprint(v))
		}
		return out
	}
	s := web.Settings{
		Listen: texts("http.listen"), Insecure: truth("http.insecure"), LocalRole: web.Role(k.String("http.local_role")), Hosts: texts("http.hosts"),
		CertFile: k.String("http.cert_file"), KeyFile: k.String("http.key_file"), ClientCAFile: k.String("http.client_ca_file"),
		AuditFile: k.String("http.audit_file"), Roots: texts("http.roots"), Pprof: truth("http.pprof"), MetricsPublic: truth("http.metrics_public"),
	}
	most, err := strconv.Atoi(k.String("http.max_connections"))
	if s.MaxConnections = most; err != nil {
		fault("http.max_connections", "write a number, not %q", k.String("http.max_connections"))
		s.MaxConnections = 1
	}
	for _, v := range entries(k, "http.tokens", []string{"name", "role", "token", "token_file"}, fault) {
		s.Tokens = append(s.Tokens, web.Token{Name: v["name"], Role: web.Role(v["role"]), Secret: web.Secret(v["token"]), File: v["token_file"]})
	}
	for _, v := range entries(k, "http.clients", []string{"name", "role", "subject", "san"}, fault) {
		s.Clients = append(s.Clients, web.ClientCert{Name: v["name"], Role: web.Role(v["role"]), Subject: v["subject"], SAN: v["san"]})
	}
	if err := s.Check(); err != nil {
		faults = append(faults, err)
	}
	return s, faults
}

// listOf is a value that is a list, or text with one: a list in YAML, as a variable or a
// flag has it, or parts with commas between.
func listOf(v any) ([]any, error) {
	text, ok := v.(string)
	if !ok {
		list, ok := v.([]any)
		if !ok && v != nil {
			return nil, fmt.Errorf("write a list, not %T", v)
		}
		return list, nil
	}
	if text = strings.TrimSpace(text); strings.HasPrefix(text, "[") {
		parsed, err := yaml.Parser().Unmarshal([]byte("list: " + text))
		if err != nil {
			return nil, errors.New("it is no list in YAML") // the parser's error would show it
		}
		list, _ := parsed["list"].([]any)
		return list, nil
	}
	var out []any
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out, nil
}

// entries are the maps of a list, with the keys that each may have. Values are not
// shown in faults: they may be secrets.
func entries(k *koanf.Koanf, key string, known []string, fault func(key, format string, args ...any)) (out []map[string]string) {
	list, err := listOf(k.Get(key))
	if err != nil {
		fault(key, "%w", err)
	}
	for i, item := range list {
		at := fmt.Sprintf("%s.%d", key, i)
		given, ok := item.(map[string]any)
		if !ok {
			fault(at, "write an entry with the keys %s", strings.Join(known, ", "))
			continue
		}
		entry := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if !slices.Contains(known, name) {
				fault(at, "there is no key %q; there are %s", name, strings.Join(known, ", "))
				continue
			}
			entry[name] = fmt.Sprint(given[name])
		}
		out = append(out, entry)
	}
	return out
}
