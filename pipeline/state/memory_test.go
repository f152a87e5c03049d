package state_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryAnswersLikeTheModel(t *testing.T) { statetest.Run(t, state.OpenMemory) }
