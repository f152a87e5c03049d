package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format/registry"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

func (a *app) planCommand() *cobra.Command {
	var set []string
	form := "text"
	var restore restoreFlags
	c := &cobra.Command{
		Use:   "plan FILE...",
		Short: "Shows how pipelines will run: fields and types, chains, exchanges and state",
		Long: "Shows how pipelines will run, without opening anything that they name: for each source, step and sink the fields " +
			"and their types as far as they are known, what it is chained to or how records come to it, and the state that it keeps.\n\n" +
			"With --from it shows instead what a start would restore: the checkpoint, what becomes of the state of each operator, the positions against what the sources have, " +
			"and what would be published first or again. It takes nothing over and writes nothing. Where a start would be refused the exit code is 3.",
		Example: "  etl plan pipeline.yaml\n  etl plan --format json pipeline.yaml\n  etl plan pipeline.yaml --from ''\n  etl plan pipeline.yaml --from /var/lib/etl/orders/4f1c…/chk-860",
		Args:    wantFiles,
		RunE: func(c *cobra.Command, files []string) error {
			if c.Flags().Changed("from") {
				if err := checkForm(form); err != nil {
					return err
				}
				return a.planRestore(c.Context(), files, set, restore, form == "json" || a.json)
			}
			return a.plan(files, set, form)
		},
	}
	restore.add(c)
	c.Flags().StringArrayVar(&set, "set", nil, "override a key of the files")
	c.Flags().StringVar(&form, "format", form, "text or json")
	return c
}

func checkForm(form string) error {
	if form != "text" && form != "json" {
		return &codeError{code: exitUsage, err: fmt.Errorf("--format cannot be %q: write text or json", form)}
	}
	return nil
}

func (a *app) plan(files, set []string, form string) error {
	if err := checkForm(form); err != nil {
		return err
	}
	var faulty int
	plans := []pipeline.Description{}
	for _, file := range files {
		p, _ := spec.Load(file, spec.Options{Set: set, ReadSchema: registry.Read})
		plan := pipeline.NewPlan(p)
		if err := p.Diagnostics().Print(a.err, a.color()); err != nil {
			return err
		}
		if p.Diagnostics().HasErrors() {
			faulty++
			continue
		}
		plans = append(plans, plan.Describe())
	}
	if err := a.printPlans(plans, form == "json" || a.json); err != nil {
		return err
	}
	if faulty > 0 {
		return &codeError{code: exitUsage, err: fmt.Errorf("%d files cannot be planned", faulty), shown: true}
	}
	return nil
}

func (a *app) printPlans(plans []pipeline.Description, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		for i := range plans {
			if err := enc.Encode(&plans[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range plans {
		if i > 0 {
			if _, err := fmt.Fprintln(a.out); err != nil {
				return err
			}
		}
		if err := writePlan(a.out, &plans[i]); err != nil {
			return err
		}
	}
	return nil
}

// writePlan writes a plan as text: a paragraph for each operator.
func writePlan(out io.Writer, d *pipeline.Description) error {
	var b strings.Builder
	subtasks := "one for each core"
	if d.Parallelism > 0 {
		subtasks = strconv.Itoa(d.Parallelism)
	}
	fmt.Fprintf(&b, "pipeline %s, parallelism %s, %d key groups\n", d.Pipeline, subtasks, d.MaxParallelism)
	switch {
	case d.Mode == spec.ModeAtLeastOnce && d.ModesEqual:
		b.WriteString("mode at_least_once: no task has several inputs, so it is the same as exactly_once\n")
	case d.Mode == spec.ModeAtLeastOnce:
		b.WriteString("mode at_least_once: a restart can count records twice, and never loses one\n")
	}
	given := map[string]*pipeline.StreamDescription{} // by what a from says
	for i := range d.Operators {
		o := &d.Operators[i]
		fmt.Fprintf(&b, "\n%s %s (%s)\n", o.Role, o.Name, o.Kind)
		for _, in := range o.Inputs {
			fmt.Fprintf(&b, "  from   %s\n", inputText(in))
		}
		if o.State != nil {
			fmt.Fprintf(&b, "  state  %s, in %s\n", keyText(o.State.Key), backendText(o.State.Backend))
		}
		if o.Takes != nil {
			writeStream(&b, "takes", o.Takes)
		} else if o.Role == "sink" {
			b.WriteString("  takes  dead letters\n")
		}
		if o.Changes != "" {
			fmt.Fprintf(&b, "  writes %s\n", o.Changes)
		}
		if o.Guarantee != "" {
			fmt.Fprintf(&b, "  result %s\n", guaranteeText[o.Guarantee])
		}
		for j := range o.Outputs {
			out := &o.Outputs[j]
			name, ref := "gives", o.Name
			if out.Branch != "" {
				name, ref = "."+out.Branch, o.Name+"."+out.Branch
			}
			given[ref] = out
			if len(o.Inputs) == 1 && given[o.Inputs[0].From] != nil && sameRecords(given[o.Inputs[0].From], out) {
				fmt.Fprintf(&b, "  %-6s what comes in\n", name)
				continue
			}
			writeStream(&b, name, out)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// sameRecords reports whether two places have records of the same make.
func sameRecords(a, b *pipeline.StreamDescription) bool {
	return a.Complete == b.Complete && a.Updating == b.Updating && slices.Equal(a.Fields, b.Fields) && slices.Equal(a.Key, b.Key)
}

func inputText(in pipeline.InputDescription) string {
	switch in.Exchange {
	case pipeline.ByKey:
		return in.From + ", dealt out " + keyText(in.Key)
	case pipeline.Forward:
		return in.From + ", handed over within the subtask"
	default:
		return in.From + ", chained"
	}
}

func keyText(key []string) string {
	if len(key) == 0 {
		return "as one group"
	}
	return "by " + strings.Join(key, ", ")
}

var guaranteeText = map[connectors.Guarantee]string{
	connectors.ExactlyOnce: "exactly once", connectors.EffectivelyOnce: "effectively once: a repeated one replaces the first, or is dropped", connectors.AtLeastOnce: "at least once",
}

func backendText(backend string) string {
	if backend == spec.DiskState {
		return "files on disk"
	}
	return backend
}

// writeStream writes the fields of records, a line each where there are many.
func writeStream(b *strings.Builder, name string, s *pipeline.StreamDescription) {
	fmt.Fprintf(b, "  %-6s ", name)
	var fields []string
	for _, f := range s.Fields {
		fields = append(fields, f.Name+": "+f.Type)
	}
	switch {
	case !s.Complete && len(fields) == 0:
		fields = []string{"any fields"}
	case !s.Complete:
		fields = append(fields, "any other field")
	case len(fields) == 0:
		fields = []string{"no fields"}
	}
	line := ""
	for i, f := range fields {
		if i < len(fields)-1 {
			f += ", "
		}
		if line != "" && len(line)+len(f) > 100 {
			b.WriteString(strings.TrimRight(line, " ") + "\n" + strings.Repeat(" ", 9))
			line = ""
		}
		line += f
	}
	b.WriteString(line + "\n")
	switch {
	case s.Updating && len(s.Key) > 0:
		fmt.Fprintf(b, "         updating, a row for each %s\n", strings.Join(s.Key, ", "))
	case s.Updating:
		b.WriteString("         updating\n")
	}
}
