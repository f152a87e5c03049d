package expr

import (
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// methods maps expr-lang's methods of times and durations to functions.
var methods = map[string]string{}

type zoneCache struct{ byName map[string]*time.Location }

func millis(ms int64) connectors.Value { return connectors.TimestampValue(time.UnixMilli(ms).UTC()) }
