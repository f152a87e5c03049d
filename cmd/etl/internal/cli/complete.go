package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completeWithin bounds how long a completion asks daemons: somebody waits at a prompt.
const completeWithin = 2 * time.Second

// completePipeline completes the name of a pipeline that runs, or its file.
func (a *app) completePipeline(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	a.completing(c, func(ctx context.Context) {
		processes, _ := a.processes(ctx)
		all, _ := everyPipeline(processes)
		for i := range all {
			out = append(out, cobra.CompletionWithDesc(all[i].Name, string(all[i].State)))
		}
	})
	if strings.Contains(c.Use, "FILE") {
		out = append(out, pipelineFiles(typed)...)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// pipelineFiles are the YAML files, and the folders, whose names go on from what was typed.
func pipelineFiles(typed string) []cobra.Completion {
	var out []cobra.Completion
	found, _ := filepath.Glob(globLiteral(typed) + "*")
	for _, name := range found {
		if isFile(name) {
			out = append(out, name)
		} else if info, err := os.Stat(name); err == nil && info.IsDir() {
			out = append(out, name+string(filepath.Separator))
		}
	}
	return out
}

// globLiteral is a pattern that only the text itself matches.
func globLiteral(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

// completeStep completes a pipeline, and then a source, step or sink of it.
func (a *app) completeStep(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completePipeline(c, args, typed)
	}
	var out []cobra.Completion
	a.completing(c, func(ctx context.Context) {
		t, err := a.find(ctx, args[0])
		if err != nil {
			return
		}
		d, err := t.client.Describe(ctx, t.name)
		if err != nil {
			return
		}
		for _, o := range d.Operators {
			out = append(out, cobra.CompletionWithDesc(o.Name, strings.TrimSpace(o.Role+" "+o.Kind)))
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeFailure completes a pipeline, and then a record that it failed at.
func (a *app) completeFailure(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completePipeline(c, args, typed)
	}
	var out []cobra.Completion
	a.completing(c, func(ctx context.Context) {
		t, err := a.find(ctx, args[0])
		if err != nil {
			return
		}
		failures, err := t.client.Failures(ctx, t.name)
		if err != nil {
			return
		}
		for i := range failures {
			if f := &failures[i]; f.Outcome == "fail" && f.Topic != "" && f.Partition >= 0 {
				out = append(out, cobra.CompletionWithDesc(recordName(f), f.Reason))
			}
		}
	})
	return slices.Compact(out), cobra.ShellCompDirectiveNoFileComp
}

// completing asks daemons for what can stand at the prompt. What goes wrong completes
// nothing: a prompt is no place for errors.
func (a *app) completing(c *cobra.Command, ask func(context.Context)) {
	shown := a.err
	a.err = io.Discard
	defer func() { a.err = shown }()
	if a.configure(c) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.Context(), completeWithin)
	defer cancel()
	ask(ctx)
}

// completeFiles makes the other commands that take files complete those.
func completeFiles(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeFiles(sub)
	}
	if c.ValidArgsFunction == nil && strings.Contains(c.Use, "FILE") {
		c.ValidArgsFunction = func(_ *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return []cobra.Completion{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		}
	}
}

// completionExamples gives the commands that print completion scripts examples.
func completionExamples(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion")
	for shell, example := range map[string]string{
		"bash":       "  source <(etl completion bash)\n  etl completion bash > /etc/bash_completion.d/etl",
		"zsh":        "  source <(etl completion zsh)\n  etl completion zsh > \"${fpath[1]}/_etl\"",
		"fish":       "  etl completion fish | source\n  etl completion fish > ~/.config/fish/completions/etl.fish",
		"powershell": "  etl completion powershell | Out-String | Invoke-Expression",
	} {
		if c, _, err := root.Find([]string{"completion", shell}); err == nil {
			c.Example = example
		}
	}
}
