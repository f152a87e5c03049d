package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

func TestLaterSettingsWin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etl.yaml")
	if err := os.WriteFile(path, []byte("log: {level: warn, format: json}\nmemory: 1GiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSettings(path, []string{"ETL_LOG__LEVEL=error", "ETL_MEMORY=2GiB", "HOME=/"}, map[string]string{"memory": "64MiB"})
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{LogLevel: slog.LevelError, LogFormat: "json", Memory: 64 << 20, ShutdownTimeout: 30 * time.Second, ReloadTimeout: 5 * time.Minute, HTTP: s.HTTP}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("settings are %+v, want %+v", s, want)
	}
}

func TestTheSettingsFileShowsTheDefaults(t *testing.T) {
	shown, err := LoadSettings("../../../../configs/etl.yaml", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := LoadSettings("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(shown, defaults) {
		t.Errorf("the file says %+v, the defaults are %+v", shown, defaults)
	}
}

func TestAllFaultsOfSettingsAreReported(t *testing.T) {
	_, err := LoadSettings("", []string{"ETL_LOG__LEVEL=loud", "ETL_MEMROY=1", "ETL_MEMORY=1KiB"}, map[string]string{"log.format": "xml"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"memroy"`, `log.level is "loud"`, `log.format is "xml"`, "at least 64MiB"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestEachFaultOfAStoreNamesItsKey(t *testing.T) {
	storage.RegisterSettings("fake", storage.Settings{Apply: func(values map[string]any) error {
		return errors.Join(errors.New("one: bad"), fmt.Errorf("two: %v is bad", values["two"]))
	}})
	_, err := LoadSettings("", []string{"ETL_STORAGE__FAKE__TWO=2", "ETL_STORAGE__NONE__X=1"}, nil)
	for _, want := range []string{"storage.fake.one: bad", "storage.fake.two: 2 is bad", "storage.none: no storage scheme"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error that says %q", err, want)
		}
	}
}

func TestEachSettingTellsWhereItIsFrom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etl.yaml")
	text := "memory: 1GiB\nlog:\n  level: warn\nhttp:\n  tokens:\n    - {name: ci, role: operate, token: \"0123456789abcdefghij-secret\"}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Effective(path, []string{"ETL_SHUTDOWN_TIMEOUT=5s"}, map[string]string{"pipelines": "/p"})
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]string{}
	for _, s := range got {
		from[s.Key] = s.Origin
		if strings.Contains(s.Value, "-secret") {
			t.Errorf("%s shows a secret: %s", s.Key, s.Value)
		}
	}
	for key, want := range map[string]string{
		"memory": path + ":1", "log.level": path + ":3", "http.tokens": path + ":5", "shutdown_timeout": "variable ETL_SHUTDOWN_TIMEOUT",
		"pipelines": "flag", "log.format": "default",
	} {
		if from[key] != want {
			t.Errorf("%s is from %q, want %q", key, from[key], want)
		}
	}
	if err := os.WriteFile(path, []byte("memory: 1GiB\nmemroy: 2GiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Effective(path, nil, nil); err == nil || !strings.Contains(err.Error(), path+`:2: there is no setting "memroy"`) {
		t.Errorf("an unknown key: %v", err)
	}
}
