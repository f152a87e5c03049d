package transform

import (
	"context"
	"log/slog"
)

// Opener is implemented by steps that are connected to something outside of the
// pipeline. Open is called before Start, again where it failed with an error that may
// pass, and Close once all instances have ended, also after an Open that failed.
type Opener interface {
	Open(ctx context.Context, log *slog.Logger) error
	Close() error
}
