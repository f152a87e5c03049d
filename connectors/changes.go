package connectors

// ChangeMode is how a sink takes an updating stream.
type ChangeMode uint8

// The modes.
const (
	// AppendOnly refuses an updating stream: what is written cannot be taken back.
	AppendOnly ChangeMode = iota
	// Changelog takes every row of an updating stream, with the operation in a field op.
	Changelog
	// Upserts takes an update as its new row, and as a tombstone the row of a key that
	// is not there any more.
	Upserts
	// AllChanges takes every row as it is.
	AllChanges
)

// Changes is how a sink, configured as it is, takes an updating stream. The engine
// makes what the sink is given.
type Changes struct {
	Mode ChangeMode
	// Key is the expression of the key that rows replace each other by, for Upserts.
	Key *Expr
}

// TakesChangelog is the Changes of a sink that can only append.
func TakesChangelog(changelog bool) Changes {
	if changelog {
		return Changes{Mode: Changelog}
	}
	return Changes{}
}
