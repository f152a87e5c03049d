//go:build integration

package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// checkpointStore is a system that checkpoints are kept on.
type checkpointStore struct {
	name string
	// place is a new folder on it, as checkpoint.storage takes it, and the variables by
	// which the program reaches the system.
	place func(t *testing.T) (address string, env []string)
}

// checkpointStores are all of them, each a real one.
var checkpointStores = []checkpointStore{
	{"file", func(t *testing.T) (string, []string) {
		return "file://" + filepath.Join(t.TempDir(), "checkpoints"), nil
	}},
	{"s3", func(t *testing.T) (string, []string) {
		return "s3://" + variable(t, "S3_BUCKET") + "/" + unique(), []string{"ETL_STORAGE__S3__ENDPOINT=" + variable(t, "S3_ENDPOINT")}
	}},
	{"hdfs", func(t *testing.T) (string, []string) {
		return variable(t, "HDFS_URL") + "/soak/" + unique(), nil
	}},
}

// variable is one that deploy/services/with.sh sets.
func variable(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run `make integration`, which starts the services", name)
	}
	return v
}

// unique is a name that no test had before.
func unique() string { return "soak-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

// run runs a command of the program to its end, on what the job's variables say.
func (j *job) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := j.try(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (j *job) try(args ...string) (string, error) {
	cmd := exec.Command(etl, args...)
	cmd.Env = append(os.Environ(), j.env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("etl %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// kept is a checkpoint as the list shows it.
type kept struct {
	Job    string `json:"job"`
	Number int    `json:"number"`
	State  string `json:"state"`
	Kind   string `json:"kind"`
	Path   string `json:"path"`
}

// committed are the checkpoints of the current job whose commits are proven, the newest
// first.
func (j *job) committed(t *testing.T) (list []kept) {
	t.Helper()
	var rows []struct {
		kept
		Current bool `json:"current"`
	}
	if err := json.Unmarshal([]byte(j.run(t, "checkpoint", "list", j.storage+"/"+j.name, "--json")), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Current && r.State == "committed" {
			list = append(list, r.kept)
		}
	}
	return list
}

// offsets are the positions that a checkpoint has of a topic's partitions.
func (j *job) offsets(t *testing.T, path string) map[string]int64 {
	t.Helper()
	var m struct {
		Operators []struct {
			Splits []struct {
				ID     string `json:"id"`
				Offset int64  `json:"offset"`
			} `json:"splits"`
		} `json:"operators"`
	}
	if err := json.Unmarshal([]byte(j.run(t, "checkpoint", "inspect", path, "--json")), &m); err != nil {
		t.Fatal(err)
	}
	at := map[string]int64{}
	for _, op := range m.Operators {
		for _, s := range op.Splits {
			at[s.ID] = s.Offset
		}
	}
	return at
}

// state is what a checkpoint has of the groups of an aggregate: the result of count() by
// what the key is.
func (j *job) state(t *testing.T, path, operator, key string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	if !strings.Contains(j.run(t, "state", "read", path, "--json"), fmt.Sprintf(`"operator":%q`, operator)) {
		return counts // it was taken before the operator had any
	}
	dec := json.NewDecoder(strings.NewReader(j.run(t, "state", "read", path, "--operator", operator, "--table", "groups")))
	for dec.More() {
		var e struct {
			Key   map[string]any `json:"key"`
			Value map[string]any `json:"value"`
		}
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		n, ok := e.Value["count()"].(float64)
		if !ok {
			t.Fatalf("an entry of %s has no count: %v", path, e)
		}
		counts[fmt.Sprint(e.Key[key])] = int(n)
	}
	return counts
}

// newPipeline makes a pipeline of a file in testdata, whose variables are NAME=VALUE.
func newPipeline(t *testing.T, file string, store checkpointStore, variables ...string) *job {
	t.Helper()
	j := &job{name: unique(), dir: t.TempDir(), file: filepath.Join("testdata", file)}
	var env []string
	j.storage, env = store.place(t)
	j.env = append(append(env, "PIPELINE="+j.name, "BROKERS="+strings.Join(brokers(t), ","), "CHECKPOINTS="+j.storage), variables...)
	return j
}
