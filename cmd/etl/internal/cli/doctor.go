package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

func (a *app) doctorCommand() *cobra.Command {
	var set []string
	var how pipeline.DoctorOptions
	form := "text"
	c := &cobra.Command{
		Use:   "doctor FILE...",
		Short: "Checks for real what pipelines need: sources, sinks, lookups, storage and this machine",
		Long: "Connects to each source, lookup, sink and storage of a pipeline, all at the same time, and tells of each what was found: whether it is there, " +
			"what this user may do, limits that the pipeline will meet, settings that lose data when the pipeline is down for a while; and of this machine its " +
			"limits of files and memory and the room on its disks.\n\n" +
			"It takes nothing over and publishes nothing, so it can be used beside a running pipeline. Whether storage can be written to is only told with --write, " +
			"which makes scratch files and removes them. The exit code is 1 where a check failed, and 0 where there are warnings only.",
		Example: "  etl doctor pipeline.yaml\n  etl doctor --write pipeline.yaml\n  etl doctor --format json pipelines/*.yaml",
		Args:    wantFiles,
		RunE: func(c *cobra.Command, files []string) error {
			if err := checkForm(form); err != nil {
				return err
			}
			if how.Timeout <= 0 {
				return usageError(errors.New("--timeout must be above 0s"))
			}
			return a.doctor(c.Context(), files, set, how, form == "json" || a.json)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&set, "set", nil, "override a key of the files")
	f.StringVar(&form, "format", form, "text or json")
	f.BoolVar(&how.Write, "write", false, "try whether storage can be written to, by scratch files that are removed again")
	f.DurationVar(&how.Timeout, "timeout", 10*time.Second, "how long the checks of each source, lookup, sink or storage may take")
	return c
}

// checkup is what was found out about one pipeline.
type checkup struct {
	Pipeline   string               `json:"pipeline"`
	File       string               `json:"file"`
	OK         int                  `json:"ok"`
	Warnings   int                  `json:"warnings"`
	Failed     int                  `json:"failed"`
	Components []pipeline.Component `json:"components"`
}

// doctor checks the surroundings of the pipelines of files, one after the other.
func (a *app) doctor(ctx context.Context, files, set []string, how pipeline.DoctorOptions, asJSON bool) error {
	failures := 0
	for i, file := range files {
		plan, err := a.load(file, set)
		if err != nil {
			return err
		}
		found, err := pipeline.Doctor(ctx, pipeline.Options{Plan: plan, Log: slog.New(slog.DiscardHandler), Memory: a.settings.Memory}, how)
		if err != nil {
			return failed(fmt.Errorf("check %s: %w", file, err))
		}
		c := newCheckup(plan.Spec.Name, file, found)
		failures += c.Failed
		if asJSON {
			enc := json.NewEncoder(a.out)
			enc.SetEscapeHTML(false)
			err = enc.Encode(c)
		} else {
			err = c.write(a.out, i > 0, a.paint())
		}
		if err != nil {
			return err
		}
	}
	if failures > 0 {
		return &codeError{code: exitFailed, err: errors.New("a check failed"), shown: true}
	}
	return nil
}

func newCheckup(name, file string, components []pipeline.Component) *checkup {
	c := &checkup{Pipeline: name, File: file, Components: components}
	for _, x := range components {
		for _, f := range x.Findings {
			switch f.Level {
			case connectors.LevelFailed:
				c.Failed++
			case connectors.LevelWarning:
				c.Warnings++
			default:
				c.OK++
			}
		}
	}
	return c
}

// glyphs begin the line of a check, with the colour that they have on a terminal.
var glyphs = map[connectors.Level]struct{ sign, color string }{
	connectors.LevelOK:      {"✓", "\x1b[32m"},
	connectors.LevelWarning: {"!", "\x1b[33m"},
	connectors.LevelFailed:  {"✗", "\x1b[31m"},
}

// painter puts a colour around a text where there is to be any.
type painter func(color, text string) string

// paint is for what goes to the output.
func (a *app) paint() painter {
	if !terminal(a.out) {
		return func(_, text string) string { return text }
	}
	return func(color, text string) string { return color + text + "\x1b[0m" }
}

// write prints a component as a block, a line for each check, and what to do below those
// that are not well.
func (c *checkup) write(out io.Writer, more bool, paint painter) error {
	var b strings.Builder
	if more {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "pipeline %s (%s)\n", c.Pipeline, c.File)
	for i := range c.Components {
		x := &c.Components[i]
		b.WriteString("\n" + x.Role + " " + x.Name)
		if x.Kind != "" {
			b.WriteString(" (" + x.Kind + ")")
		}
		b.WriteString("\n")
		width := 0
		for _, f := range x.Findings {
			width = max(width, utf8.RuneCountInString(f.Check))
		}
		for _, f := range x.Findings {
			writeFound(&b, &f, width, paint)
		}
	}
	fmt.Fprintf(&b, "\n%s: %d ok, %s, %d failed\n", many(c.OK+c.Warnings+c.Failed, "check"), c.OK, many(c.Warnings, "warning"), c.Failed)
	_, err := io.WriteString(out, b.String())
	return err
}

func writeFound(b *strings.Builder, f *pipeline.Found, width int, paint painter) {
	g := glyphs[f.Level]
	pad := strings.Repeat(" ", width-utf8.RuneCountInString(f.Check))
	detail := strings.NewReplacer("\n\t", "\n        ", "\n", "\n        ").Replace(f.Detail)
	fmt.Fprintf(b, "  %s %s%s %6s  %s\n", paint(g.color, g.sign), f.Check, pad, took(f.Took), detail)
	if f.Level == connectors.LevelOK {
		return
	}
	if f.Key != "" {
		at := f.File
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		fmt.Fprintf(b, "      at %s (%s)\n", f.Key, at)
	}
	if f.Advice != "" {
		fmt.Fprintf(b, "      → %s\n", f.Advice)
	}
}

// took is a duration in few characters.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// terminal reports whether an output shows colours.
func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
