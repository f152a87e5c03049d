package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// project is the local stack, by the loader of Docker Compose itself: it holds the file
// to the schema and looks whether what it names is there.
func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(deploy, "compose/compose.yaml")}, cli.WithDiscardEnvFile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNothingOfTheStackIsReachedFromOtherMachines(t *testing.T) {
	for name, s := range project(t).Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s listens on %q:%s", name, port.HostIP, port.Published)
			}
		}
	}
}

func TestEveryFileThatTheStackMountsIsThere(t *testing.T) {
	p := project(t)
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s may write %s, a file of the repository", name, v.Source)
			}
		}
		if b := s.Build; b != nil {
			if _, err := os.Stat(filepath.Join(b.Context, b.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for name, s := range p.Secrets {
		if _, err := os.Stat(s.File); err != nil {
			t.Errorf("the secret %s: %v", name, err)
		}
	}
}

func TestImagesOfTheStackDoNotChangeByThemselves(t *testing.T) {
	for name, s := range project(t).Services {
		_, tag, _ := strings.Cut(s.Image[strings.LastIndexByte(s.Image, '/')+1:], ":")
		if tag == "" || tag == "latest" {
			t.Errorf("%s runs %s: name a version", name, s.Image)
		}
	}
}

func TestTheStackStartsInOrderAndStopsWithACheckpoint(t *testing.T) {
	p := project(t)
	etl := p.Services["etl"]
	for name, want := range map[string]string{
		"topics": types.ServiceConditionCompletedSuccessfully, "s3": types.ServiceConditionHealthy, "postgres": types.ServiceConditionHealthy,
	} {
		if d := etl.DependsOn[name]; d.Condition != want {
			t.Errorf("the program does not wait for %s to be %s", name, want)
		}
		if want == types.ServiceConditionHealthy && p.Services[name].HealthCheck == nil {
			t.Errorf("%s has no health check to wait for", name)
		}
	}
	last := shutdownTimeout(t, filepath.Join(deploy, "compose/etl.yaml"))
	if etl.StopGracePeriod == nil || time.Duration(*etl.StopGracePeriod) <= last {
		t.Errorf("the container is killed after %v, and a checkpoint may take %s", etl.StopGracePeriod, last)
	}
	if !etl.ReadOnly {
		t.Error("the program may write its image")
	}
}
