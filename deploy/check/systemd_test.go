package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// systemRoot is a root file system with the unit and the programs that it names.
func systemRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "usr/lib/systemd/system/etl.service"), read(t, filepath.Join(deploy, "systemd/etl.service")))
	program(t, filepath.Join(root, "usr/bin/etl"))
	program(t, filepath.Join(root, "bin/kill"))
	for _, unit := range []string{"network-online.target", "sysinit.target", "basic.target", "multi-user.target", "shutdown.target", "system.slice"} {
		write(t, filepath.Join(root, "usr/lib/systemd/system", unit), "[Unit]\nDefaultDependencies=no\n")
	}
	return root
}

func TestSystemdTakesEveryLineOfTheUnit(t *testing.T) {
	if out := mustRun(t, "systemd-analyze", "--root="+systemRoot(t), "--man=no", "verify", "etl.service"); strings.Contains(out, "etl.service") {
		t.Error(out)
	}
}

func TestTheServiceIsExposedLittle(t *testing.T) {
	// 10 is the worst; what is left is the network, and files that a group may read.
	out, err := tool(t, "systemd-analyze", "security", "--offline=true", "--root="+systemRoot(t), "--threshold=15", "etl.service")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestUserAndFoldersAreMade(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "usr/lib/sysusers.d/etl.conf"), read(t, filepath.Join(deploy, "systemd/sysusers.conf")))
	write(t, filepath.Join(root, "usr/lib/tmpfiles.d/etl.conf"), read(t, filepath.Join(deploy, "systemd/tmpfiles.conf")))
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "systemd-sysusers", "--root="+root)
	for _, file := range []string{"etc/passwd", "etc/group"} {
		if !strings.Contains("\n"+read(t, filepath.Join(root, file)), "\netl:") {
			t.Errorf("%s lacks etl", file)
		}
	}
	mustRun(t, "systemd-tmpfiles", "--root="+root, "--create")
	for dir, mode := range map[string]string{"etc/etl/pipelines": "2770", "etc/etl/credentials": "700"} {
		if got := strings.TrimSpace(mustRun(t, "stat", "--format=%a", filepath.Join(root, dir))); got != mode {
			t.Errorf("%s has mode %s, want %s", dir, got, mode)
		}
	}
}

// unitDuration is a time of the unit, such as TimeoutStopSec.
func unitDuration(t *testing.T, key string) time.Duration {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(read(t, filepath.Join(deploy, "systemd/etl.service")))
	if m == nil {
		t.Fatalf("the unit has no %s", key)
	}
	d, err := time.ParseDuration(strings.ReplaceAll(m[1], "min", "m"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// shutdownTimeout is the one of a settings file.
func shutdownTimeout(t *testing.T, path string) time.Duration {
	t.Helper()
	var settings struct {
		ShutdownTimeout string `json:"shutdown_timeout"`
	}
	if err := yaml.Unmarshal([]byte(read(t, path)), &settings); err != nil {
		t.Fatal(err)
	}
	d, err := time.ParseDuration(settings.ShutdownTimeout)
	if err != nil {
		t.Fatalf("%s: shutdown_timeout: %v", path, err)
	}
	return d
}

func TestAStopHasTimeForItsLastCheckpoint(t *testing.T) {
	last := shutdownTimeout(t, filepath.Join(deploy, "packaging/etl.yaml"))
	if stop := unitDuration(t, "TimeoutStopSec"); stop <= last {
		t.Errorf("systemd kills after %s, and a checkpoint may take %s", stop, last)
	}
}

func TestWhatNeedsAPersonIsNotStartedAgain(t *testing.T) {
	if !strings.Contains(read(t, filepath.Join(deploy, "systemd/etl.service")), "\nRestartPreventExitStatus=2 3 4\n") {
		t.Error("the exit codes 2, 3 and 4 must end the service")
	}
}
