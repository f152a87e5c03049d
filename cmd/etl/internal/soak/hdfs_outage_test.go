//go:build integration

package soak

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// hdfsScript starts and kills the processes of an HDFS.
var hdfsScript = filepath.Join("..", "..", "..", "..", "deploy", "services", "hdfs.sh")

// ownNamenode is the HDFS that tests may break.
const ownNamenode = "127.0.0.1:24000"

// ownHDFS runs the script for it.
func ownHDFS(args ...string) error {
	cmd := exec.Command(hdfsScript, args...)
	cmd.Env = append(os.Environ(), "SERVICES_INSTANCE=outage", "HDFS_PORT=24000", "NODES=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("hdfs.sh %v: %w\n%s", args, err, out)
	}
	return nil
}

var ownHDFSStarted = sync.OnceValue(func() error { return ownHDFS("start") })

// TestSoakAnHDFSThatIsAway kills the namenode of a running pipeline's checkpoints and
// starts it again, and has it be in safe mode, in which nothing can be written: the
// process goes on, checkpoints come again, and every record comes out once.
func TestSoakAnHDFSThatIsAway(t *testing.T) {
	if err := ownHDFSStarted(); err != nil {
		t.Fatal(err)
	}
	hdfs := func(args ...string) {
		t.Helper()
		if err := ownHDFS(args...); err != nil {
			t.Fatal(err)
		}
	}
	j := newJob(t, "kafka", "")
	j.storage = "hdfs://" + ownNamenode + "/" + j.name
	j.env = []string{"HADOOP_CONF_DIR="}
	j.rewrite(t, "file://"+j.dir+"/checkpoints", j.storage)
	w := newWatch(t, j.out)
	stop := j.ledger.feed(t, 2000, 1<<30)
	p := j.start(t)
	goesOn := func(what string) {
		t.Helper()
		before := w.count.Load()
		p.until(patience+time.Minute, "results "+what, func() bool { return w.count.Load() > before+4000 })
	}
	goesOn("at the beginning")

	hdfs("kill", "nn")
	hdfs("restart", "nn")
	goesOn("after the namenode was killed and started again")

	hdfs("admin", "-safemode", "enter")
	shown := w.count.Load()
	time.Sleep(safeMode) //nolint:forbidigo // how long nothing can be written is what is tested
	if now := w.count.Load(); now > shown+10_000 {
		t.Errorf("%d results became visible while no checkpoint could be written", now-shown)
	}
	hdfs("admin", "-safemode", "leave")
	goesOn("after safe mode")

	stop()
	j.finish(t, p, w)
	j.verifyTopic(t)
	if n := p.logged("level=ERROR"); n > 0 {
		t.Errorf("%d errors in the log\n%s", n, p.tail())
	}
}
