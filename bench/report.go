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
func report(results map[string]result, sinks []*sinkRun, checkpoints []checkpointRun, daemons []daemonRun, o options, now time.Time) error {
	var b strings.Builder
	missed := recordTable(&b, results)
	table, over := sinkTable(sinks)
	b.WriteString(table)
	missed += over
	table, over = checkpointTable(checkpoints, o.state)
	b.WriteString(table)
	missed += over
	table, over = daemonTable(daemons)
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
	return os.WriteFile(o.markdown, []byte(head(o, now)+b.String()), 0o644)
}

// head says what was measured, and on what.
func head(o options, now time.Time) string {
	machine := fmt.Sprintf("%s, %d cores, %s", processor(), runtime.NumCPU(), runtime.Version())
	title := fmt.Sprintf("# Cost per record, %s\n\n", now.Format(time.DateOnly))
	if !o.records() {
		return title + fmt.Sprintf("On %s, with the services on the same machine. CPU is user and system time of the whole process, its client and its start included.\n", machine)
	}
	return title + fmt.Sprintf(`%d bids of about 212 bytes, %d partitions, lz4, on a broker of the same machine: %s.
CPU is user and system time of the whole process, its client and its start included; the best of %d runs. The bare loops are the Kafka client alone, with its pools and its own decompressors:
reading, reading and writing everything, reading and writing as many bytes as the filter leaves.

`, o.count, partitions, machine, o.repeat)
}

// recordTable writes the table of the workloads over the input topic, and gives how many goals are missed.
func recordTable(b *strings.Builder, results map[string]result) (missed int) {
	if len(results) == 0 {
		return 0
	}
	b.WriteString("| workload | CPU ns/record | ratio | goal | records/s | allocations/record | peak MiB |\n|---|---|---|---|---|---|---|\n")
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
		fmt.Fprintf(b, "| %s | %.0f | %s | %s | %.0f | %.3f | %d |\n", m.name, r.nanos(), ratio, goal, r.rate(), r.allocs(), r.PeakRSS>>20)
	}
	return missed
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
