package disk

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/statetest"
)

func TestStateSuite(t *testing.T) {
	statetest.Run(t, func(ctx context.Context, o state.Options) (state.Store, error) {
		return open(ctx, o, mem)
	})
}

var mem = vfs.NewMem()
