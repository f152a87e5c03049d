package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// report prints the results as a table, which is Markdown too, and writes it to a file if asked to.
func report(results map[string]result, checkpoints []checkpointRun, o options, now time.Time) error {
	var b strings.Builder
	b.WriteString("| workload | CPU ns/record | ratio | goal | records/s | allocations/record | peak MiB |\n|---|---|---|---|---|---|---|\n")
	missed := 0
	for _, m := range measurements {
		r, ok := results[m.name]
		if !ok {
			continue
		}
		ratio, goal := "", ""
		if m.base != "" {
			x := r.nanos() / results[m.base].nanos()
			ratio = fmt.Sprintf("%.2f", x)
			if m.goal > 0 {
				goal = fmt.Sprintf("%.1f × %s", m.goal, m.base)
			}
			if m.goal > 0 && x > m.goal {
				ratio += " (over)"
				missed++
			}
		}
		if m.peak > 0 {
			goal = fmt.Sprintf("%d MiB", m.peak)
			if r.PeakRSS>>20 > m.peak {
				goal += " (over)"
				missed++
			}
		}
		fmt.Fprintf(&b, "| %s | %.0f | %s | %s | %.0f | %.3f | %d |\n", m.name, r.nanos(), ratio, goal, r.rate(), r.allocs(), r.PeakRSS>>20)
	}
	table, over := checkpointTable(checkpoints, o.state)
	b.WriteString(table)
	missed += over
	fmt.Print(b.String())
	if missed > 0 {
		fmt.Printf("\n%d over their goal\n", missed)
	}
	if o.markdown == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(o.markdown), 0o755); err != nil {
		return err
	}
	head := fmt.Sprintf(`# Cost per record, %s

%d bids of about 212 bytes, %d partitions, lz4, on a broker of the same machine: %s, %d cores, %s.
CPU is user and system time of the whole process, its client and its start included; the best of %d runs. The bare loops are the Kafka client alone, with its pools and its own decompressors:
reading, reading and writing everything, reading and writing as many bytes as the filter leaves.

`, now.Format(time.DateOnly), o.count, partitions, processor(), runtime.NumCPU(), runtime.Version(), o.repeat)
	return os.WriteFile(o.markdown, []byte(head+b.String()), 0o644)
}

// processor names the machine's processor.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if key, name, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(name)
		}
	}
	return runtime.GOARCH
}
