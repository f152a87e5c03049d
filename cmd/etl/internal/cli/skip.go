package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
)

// position is one record of a topic.
type position struct {
	topic     string
	partition int32
	offset    int64
}

func (p position) String() string { return fmt.Sprintf("%s/%d@%d", p.topic, p.partition, p.offset) }

func (a *app) skipCommand() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "skip PIPELINE TOPIC/PARTITION@OFFSET",
		Short: "Starts a failed pipeline of a daemon behind the one record that it failed at",
		Long: `Starts a failed pipeline of a daemon behind the one record that it failed at: it goes on from its last checkpoint, and that record
is left out for good, which the audit log tells. etl status PIPELINE shows which record that is and why it failed. On a terminal it is asked
for; elsewhere --yes is needed. Only sources of Kafka can leave a single record out; on_error: skip or dead_letter is for all sources, and takes
such records without stopping.`,
		Example: `  etl skip orders orders/3@1201
  etl skip orders orders/3@1201 --yes`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			at, err := parsePosition(args[1])
			if err != nil {
				return usageError(err)
			}
			return a.reach(c.Context(), args[0], 0, func(ctx context.Context, p *target) error {
				return a.skip(ctx, p, at, yes)
			})
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.steers(c)
	c.ValidArgsFunction = a.completeFailure
	return c
}

// parsePosition reads a position such as orders/3@1201.
func parsePosition(text string) (position, error) {
	split, offset, at := cutLast(text, "@")
	topic, partition, slash := cutLast(split, "/")
	n, err := strconv.ParseInt(offset, 10, 64)
	p, wrong := strconv.ParseInt(partition, 10, 32)
	if !at || !slash || topic == "" || err != nil || wrong != nil || n < 0 || p < 0 {
		return position{}, fmt.Errorf("%q is no record: write TOPIC/PARTITION@OFFSET, such as orders/3@1201", text)
	}
	return position{topic, int32(p), n}, nil
}

func (a *app) skip(ctx context.Context, p *target, at position, yes bool) error {
	if !yes {
		question := fmt.Sprintf("Leave out record %s of pipeline %s for good?", at, p.name)
		if why := p.whyFailed(ctx, at); why != "" {
			question = fmt.Sprintf("%s failed: %s\n%s", at, why, question)
		}
		if err := a.confirm(question); err != nil {
			return err
		}
	}
	moved, err := p.client.Skip(ctx, p.name, web.SkipRequest{Topic: at.topic, Partition: at.partition, Offset: at.offset})
	if err != nil {
		return answerError(err)
	}
	return a.printDone(p.name, "started behind "+at.String(), moved)
}

// whyFailed is why a record failed; empty where the daemon does not know.
func (p *target) whyFailed(ctx context.Context, at position) string {
	failures, err := p.client.Failures(ctx, p.name)
	if err != nil {
		return ""
	}
	for _, f := range failures {
		if f.Topic == at.topic && f.Partition == at.partition && f.Offset == at.offset {
			return f.Operator + ": " + f.Reason
		}
	}
	return ""
}

// confirm asks on the terminal. Where there is none, it is wrong use.
func (a *app) confirm(question string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) || a.json {
		return usageError(errors.New("this needs a yes, and there is no terminal to ask on: add --yes"))
	}
	if _, err := fmt.Fprintf(a.err, "%s [y/N] ", question); err != nil {
		return err
	}
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && answer == "" {
		return failed(fmt.Errorf("read the answer: %w", err))
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return failed(errors.New("nothing was done"))
}
