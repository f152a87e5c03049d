package daemon

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/storage"
)

// Settings are the program's own, from defaults, the settings file, ETL_…
// variables and flags, the later ones winning. configs/etl.yaml shows them all.
type Settings struct {
	LogLevel  slog.Level
	LogFormat string // "text" or "json"
	// Memory bounds what fetch buffers, queues and sinks of a pipeline hold that is run by
	// itself, in bytes; for the service it is the budget of all, with state in memory.
	Memory int64
	// ShutdownTimeout is how long the last checkpoint of a stop may take.
	ShutdownTimeout time.Duration
	// Pipelines is the folder of pipelines that the service runs.
	Pipelines string
	// StateDir is where the service keeps what has to outlive it; empty for the default.
	StateDir string
	// ReloadTimeout is how long a changed pipeline may take to run.
	ReloadTimeout time.Duration
	// RuntimeDir is where the process has its socket; empty for the user's own.
	RuntimeDir string
	// HTTP says where the daemon's API is served, and to whom.
	HTTP web.Settings
}

// defaults are the keys with their default values, as text.
var defaults = map[string]any{
	"log.level":        "info",
	"log.format":       "text",
	"memory":           "", // see pipeline.DefaultMemory
	"shutdown_timeout": "30s",
	"runtime_dir":      "",
	"pipelines":        "",
	"state_dir":        "",
	"reload_timeout":   "5m",

	"http.listen":          "127.0.0.1:8700",
	"http.insecure":        "false",
	"http.local_role":      "",
	"http.hosts":           "",
	"http.cert_file":       "",
	"http.key_file":        "",
	"http.client_ca_file":  "",
	"http.clients":         "",
	"http.tokens":          "",
	"http.audit_file":      "",
	"http.roots":           "",
	"http.pprof":           "false",
	"http.metrics_public":  "false",
	"http.max_connections": "512",
}

// leastMemory is what a pipeline needs.
const leastMemory = 64 << 20

// envPrefix begins the names of variables; the rest is the key, with __ for a dot.
const envPrefix = "ETL_"

// LoadSettings reads the settings. path is the settings file, empty for none;
// environ is the process's environment; flags are keys given on the command
// line. All faults are returned at once.
func LoadSettings(path string, environ []string, flags map[string]string) (Settings, error) {
	k, err := readSettings(path, environ, flags)
	if err != nil {
		return Settings{}, err
	}
	return settingsOf(k, origins{path: path, lines: linesOfFile(path), environ: environ, flags: flags})
}

// readSettings puts all that gives settings one over the other.
func readSettings(path string, environ []string, flags map[string]string) (*koanf.Koanf, error) {
	k := koanf.New(".")
	if err := k.Load(confmap.Provider(defaults, "."), nil); err != nil {
		return nil, fmt.Errorf("load default settings: %w", err)
	}
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return nil, fmt.Errorf("read settings file %s: %w", path, err)
		}
	}
	fromEnv := env.Provider(".", env.Opt{
		Prefix: envPrefix,
		TransformFunc: func(name, v string) (string, any) {
			return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "__", "."), v
		},
		EnvironFunc: func() []string { return environ },
	})
	if err := k.Load(fromEnv, nil); err != nil {
		return nil, fmt.Errorf("read settings from the environment: %w", err)
	}
	set := make(map[string]any, len(flags))
	for key, v := range flags {
		set[key] = v
	}
	if err := k.Load(confmap.Provider(set, "."), nil); err != nil {
		return nil, fmt.Errorf("read settings from flags: %w", err)
	}
	return k, nil
}

func settingsOf(k *koanf.Koanf, from origins) (Settings, error) {
	var s Settings
	var faults []error
	known := slices.Sorted(maps.Keys(defaults))
	for _, key := range slices.Sorted(maps.Keys(k.All())) {
		if _, ok := defaults[key]; !ok && !strings.HasPrefix(key, storagePrefix) {
			faults = append(faults, fmt.Errorf("%sthere is no setting %q; there are %s", from.place(key), key, strings.Join(known, ", ")))
		}
	}
	if err := s.LogLevel.UnmarshalText([]byte(k.String("log.level"))); err != nil {
		faults = append(faults, fmt.Errorf("log.level is %q: write debug, info, warn or error", k.String("log.level")))
	}
	if s.LogFormat = k.String("log.format"); s.LogFormat != "text" && s.LogFormat != "json" {
		faults = append(faults, fmt.Errorf("log.format is %q: write text or json", s.LogFormat))
	}
	memory, err := connectors.ByteSize(max(pipeline.DefaultMemory(), leastMemory)), error(nil)
	if text := k.String("memory"); text != "" {
		memory, err = connectors.ParseByteSize(text)
	}
	if err == nil && memory < leastMemory {
		err = errors.New("a pipeline needs at least 64MiB")
	}
	if err != nil {
		faults = append(faults, fmt.Errorf("memory: %w", err))
	}
	s.Memory = int64(memory)
	faults = append(faults, applyStorage(k)...)
	if s.ShutdownTimeout, err = connectors.ParseDuration(k.String("shutdown_timeout")); err != nil {
		faults = append(faults, fmt.Errorf("shutdown_timeout: %w", err))
	}
	if s.ReloadTimeout, err = connectors.ParseDuration(k.String("reload_timeout")); err != nil {
		faults = append(faults, fmt.Errorf("reload_timeout: %w", err))
	}
	s.RuntimeDir, s.Pipelines, s.StateDir = k.String("runtime_dir"), k.String("pipelines"), k.String("state_dir")
	var httpFaults []error
	s.HTTP, httpFaults = httpSettings(k)
	faults = append(faults, httpFaults...)
	return s, errors.Join(faults...)
}

// storagePrefix begins the keys of settings of storage schemes, such as
// storage.s3.region.
const storagePrefix = "storage."

// applyStorage hands each storage scheme its settings.
func applyStorage(k *koanf.Koanf) []error {
	given, ok := k.Raw()["storage"].(map[string]any)
	if !ok {
		return nil
	}
	known := storage.SettingsOf()
	var faults []error
	for _, scheme := range slices.Sorted(maps.Keys(given)) {
		s, ok := known[scheme]
		values, isMap := given[scheme].(map[string]any)
		switch {
		case !ok:
			faults = append(faults, fmt.Errorf("storage.%s: no storage scheme of that name has settings; there are %s", scheme, strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		case !isMap:
			faults = append(faults, fmt.Errorf("storage.%s: keys with values are wanted, not %v", scheme, given[scheme]))
		default:
			faults = append(faults, within("storage."+scheme, s.Apply(values))...)
		}
	}
	return faults
}

// within puts a key in front of each of the joined errors.
func within(key string, err error) (faults []error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, one := range all {
		if one != nil {
			faults = append(faults, fmt.Errorf("%s.%w", key, one))
		}
	}
	return faults
}

// Logger makes the program's log.
func (s *Settings) Logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.LogLevel}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
