//go:build integration

package hdfs

import (
	"maps"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/storage"
)

// own is an HDFS that tests may break: two namenodes, three datanodes, with Kerberos,
// at its own ports. It counts a datanode as dead only after ten minutes, as clusters do by
// default, so that nothing gets better by waiting for that.
var own struct {
	once sync.Once
	env  map[string]string
	err  error
}

func script(args ...string) (string, error) {
	cmd := exec.Command("../../deploy/services/hdfs.sh", args...)
	cmd.Env = append(os.Environ(), "SERVICES_INSTANCE=hdfs-faults", "HDFS_PORT=21000", "NODES=3", "HDFS_SECURE=1", "HDFS_HA=1",
		"HDFS_EXTRA=dfs.namenode.heartbeat.recheck-interval=300000")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

// run runs a command of the script of the own HDFS.
func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := script(args...)
	if err != nil {
		t.Fatalf("hdfs.sh %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func startOwn() {
	if _, own.err = script("start"); own.err != nil {
		return
	}
	atEnd = append(atEnd, func() { _, _ = script("clean") })
	var out string
	out, own.err = script("env")
	own.env = map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		own.env[name] = strings.Trim(value, "'")
	}
}

// breakable is a new folder on the own HDFS, with settings on top of those that it takes.
func breakable(t testing.TB, more map[string]any) *FS {
	t.Helper()
	own.once.Do(startOwn)
	if own.err != nil {
		t.Fatal(own.err)
	}
	values := map[string]any{
		"hadoop_conf_dir": own.env["HADOOP_CONF_DIR"],
		"kerberos":        map[string]any{"principal": own.env["HDFS_PRINCIPAL"], "keytab": own.env["HDFS_KEYTAB"], "krb5_conf": own.env["KRB5_CONFIG"]},
	}
	maps.Copy(values, more)
	conf, err := parse(values)
	if err != nil {
		t.Fatal(err)
	}
	return at(t, conf, own.env["HDFS_URL"])
}

// at is a new folder on an HDFS, with connections of its own.
func at(t testing.TB, conf config, address string) *FS {
	t.Helper()
	u, err := storage.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{conf: conf, opened: map[string]*cluster{}}
	f, err := r.open(&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/sluice-test/" + token()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.cluster.shut)
	return f
}

// shut ends all that a cluster keeps for later.
func (cl *cluster) shut() {
	cl.forget()
	cl.logins.mu.Lock()
	defer cl.logins.mu.Unlock()
	if cl.logins.current != nil {
		cl.logins.retire(cl.logins.current)
	}
}
