package clickhouse

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// target is a table of ClickHouse that kept rows are sent to.
type target struct {
	config  SinkConfig
	env     connectors.SinkEnv
	client  *client
	table   string // quoted, with its database
	commits string // the table of marks, likewise
	zone    string // of the server, for times without one
	chooses bool   // the server has a setting by which users can turn deduplication off
	window  int    // how many blocks the table remembers
	most    int    // bytes of a block: blockBytes, but in tests
	columns []sinkColumn
	started bool
}

var _ deferred.Target = (*target)(nil)

func newTarget(c SinkConfig) (*target, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	state := c.StateDatabase
	if state == "" {
		state = c.Database
	}
	return &target{config: c, client: newClient(&c), table: quote(c.Database, c.Table), commits: quote(state, "sluice_commits"), most: blockBytes}, nil
}

// Guarantee is effectively_once: what makes a repeated block add nothing is the server's
// memory of blocks, which has bounds.
func (t *target) Guarantee() connectors.Guarantee { return connectors.EffectivelyOnce }

// Open connects, makes what is to be made and compares the table with the rows.
func (t *target) Open(ctx context.Context, env connectors.SinkEnv) error {
	t.env = env
	if t.env.Log == nil {
		t.env.Log = slog.New(slog.DiscardHandler)
	}
	if err := t.client.open(&t.config); err != nil {
		return err
	}
	server, err := ask[struct {
		Version, Zone string
		Chooses       int
	}](ctx, t.client, "SELECT version() AS Version, timezone() AS Zone, toUInt8((SELECT count() FROM system.settings WHERE name = 'deduplicate_insert')) AS Chooses")
	if err != nil {
		return err
	}
	if len(server) != 1 || server[0].Version == "" {
		return connectors.Permanent(fmt.Errorf("what answers at %s is not ClickHouse: correct url", t.client.host))
	}
	t.zone, t.chooses = server[0].Zone, server[0].Chooses == 1
	if !env.ReadOnly {
		if err := t.make(ctx); err != nil {
			return err
		}
	}
	return t.describe(ctx)
}

// make creates the tables that are to be there. The right to create is needed only where
// one is not.
func (t *target) make(ctx context.Context) error {
	if err := t.makeTable(ctx, t.commits, func() (string, error) { return t.createCommits(), nil }); err != nil {
		return err
	}
	if !t.config.Create.On {
		return nil
	}
	return t.makeTable(ctx, t.table, t.createTable)
}

func (t *target) makeTable(ctx context.Context, name string, statement func() (string, error)) error {
	there, err := t.exists(ctx, name)
	if err != nil || there {
		return err
	}
	text, err := statement()
	if err != nil {
		return err
	}
	if err := t.client.run(ctx, text); err != nil {
		return fmt.Errorf("create table %s: %w", name, err)
	}
	return nil
}

// exists reports whether a table, whose name is quoted, is there.
func (t *target) exists(ctx context.Context, name string) (bool, error) {
	got, err := ask[struct{ Result int }](ctx, t.client, "EXISTS TABLE "+name)
	return len(got) == 1 && got[0].Result == 1, err
}

// Start lets only this process and newer ones commit; Revoke has done so already.
func (t *target) Start(context.Context) error {
	t.started = true
	return nil
}

// Rejected gives none: whatever a row can be refused for is found before it is kept.
func (t *target) Rejected(context.Context, int64, int) ([]connectors.Rejected, int64, error) {
	return nil, 0, nil
}

// Close ends the connections.
func (t *target) Close() error {
	t.client.close()
	return nil
}

// NewRowEncoder makes the encoder of one subtask.
func (t *target) NewRowEncoder() (deferred.RowEncoder, error) {
	cols := make([]table.Column, 0, len(t.columns))
	for i := range t.columns {
		c := &t.columns[i]
		cols = append(cols, table.Column{Column: connectors.Column{Name: c.name, Type: connectors.Type{Base: c.codec.reads}}, Default: c.hasDefault})
	}
	m, err := table.NewMapper(cols, table.Options{Mode: table.Insert, Values: t.config.Columns, RefuseUnknown: t.config.Unknown != unknownIgnore})
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	return &rowEncoder{mapper: m, columns: t.columns, schema: schemaOf(t.columns), nested: newNested(t.columns)}, nil
}

func (t *target) failpoint(name string) { t.env.Failpoint(sinkKind + "." + name) }
