package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// What a machine should have. Each partition, open file of a sink and file of state can
// take a descriptor; the disk backend and sinks that spool work in folders.
const (
	fewFiles  = 4096
	littleRAM = 1.5 // times the memory budget, for what is not counted in it
	littleOf  = 20  // a disk is nearly full when less than 1/20 of it is free …
	littleGiB = 10  // … and less than that
)

// hostName is the machine's name; what it is called does not matter to any check.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "this machine"
	}
	return name
}

// host looks at the limits of this process, its memory and its folders.
func (d *doctor) host(_ context.Context, dg *connectors.Diagnosis) {
	if limit, known := fileLimit(); known {
		if limit < fewFiles {
			dg.Warn("open files", "", fmt.Sprintf("the limit is %d", limit), fmt.Sprintf("raise it to %d or more: ulimit -n, or LimitNOFILE of the systemd unit", fewFiles))
		} else {
			dg.OK("open files", fmt.Sprintf("the limit is %d", limit))
		}
	}
	d.memory(dg)
	for _, f := range d.folders() {
		f.look(dg)
	}
}

// memory compares what there is with what the program may take.
func (d *doctor) memory(dg *connectors.Diagnosis) {
	there, from := memoryLimit(os.DirFS("/"))
	if there == 0 {
		return
	}
	cp := &d.attempt.plan.Spec.Checkpoint
	wanted, of := d.runner.opts.memory(), "memory"
	if cp.State.Backend == spec.DiskState && len(d.attempt.plan.keyedSteps()) > 0 {
		wanted, of = wanted+cp.State.Budget(), "memory and checkpoint.state.memory"
	}
	text := fmt.Sprintf("%s, %s; the program plans with %s (%s)", sizeOf(there), from, sizeOf(wanted), of)
	if float64(there) < littleRAM*float64(wanted) {
		dg.Warn("memory", "", text, "lower memory (--memory of etl run), or give it more: the kernel ends a process that goes beyond its limit")
		return
	}
	dg.OK("memory", text)
}

// folder is one that the program works in.
type folder struct {
	path, use string
}

// folders are those on local disks, each once.
func (d *doctor) folders() []folder {
	cp := &d.attempt.plan.Spec.Checkpoint
	all := []folder{{os.TempDir(), "temporary files"}}
	if cp.State.Backend == spec.DiskState && len(d.attempt.plan.keyedSteps()) > 0 && cp.State.Dir != "" {
		all = append(all, folder{cp.State.Dir, "checkpoint.state.dir"})
	}
	if cp.LocalRecovery != "" {
		all = append(all, folder{cp.LocalRecovery, "checkpoint.local_recovery"})
	}
	return slices.CompactFunc(all, func(a, b folder) bool { return a.path == b.path })
}

// look reports whether the folder can be used and has room. One that is not there is
// made by the first start, in the nearest one that is.
func (f folder) look(dg *connectors.Diagnosis) {
	check := "disk of " + f.path
	at := f.path
	for {
		_, err := os.Stat(at)
		if err == nil {
			break
		}
		if up := filepath.Dir(at); errors.Is(err, fs.ErrNotExist) && up != at {
			at = up
			continue
		}
		dg.Fail(check, "", err, "let this user read and write there ("+f.use+")")
		return
	}
	free, total, known, err := diskSpace(at)
	switch {
	case err != nil:
		dg.Fail(check, "", fmt.Errorf("%s: %w", f.use, err), "let this user write there")
	case !known:
	case free < total/littleOf && free < littleGiB<<30:
		dg.Warn(check, "", fmt.Sprintf("%s: %s of %s are free", f.use, sizeOf(free), sizeOf(total)), "make room, or choose another disk")
	default:
		dg.OK(check, fmt.Sprintf("%s: %s of %s are free", f.use, sizeOf(free), sizeOf(total)))
	}
}

// memoryLimit is how much memory a process of this machine can have, and what says so:
// the limit of its control group, or what the machine has. 0 where it is not known.
func memoryLimit(root fs.FS) (bytes int64, from string) {
	if text, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemTotal:" {
				kib, _ := strconv.ParseInt(fields[1], 10, 64)
				bytes, from = kib<<10, "of the machine"
			}
		}
	}
	for _, name := range groupFiles(root) {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && (bytes == 0 || n < bytes) {
			bytes, from = n, groupLimit
		}
	}
	return bytes, from
}

// groupLimit says where a limit of memory is from.
const groupLimit = "by the limit of the control group"

// groupFiles are the files that can limit this process's memory: of its group and those
// above it in version 2, and of the first version's tree.
func groupFiles(root fs.FS) []string {
	names := []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return names
	}
	for line := range strings.Lines(string(text)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for group = strings.Trim(group, "/"); group != "" && fs.ValidPath(group); group = strings.Trim(filepath.Dir(group), "./") {
			names = append(names, "sys/fs/cgroup/"+group+"/memory.max")
		}
	}
	return names
}

// sizeOf is a number of bytes for people.
func sizeOf(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
