package postgres

import (
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
)

// instant and local take epoch milliseconds of the years that the server knows and
// RFC 3339 has no text for, too.
func instant(v connectors.Value) (time.Time, error) {
	if t, ok := late(v); ok {
		return t, nil
	}
	return columns.Time(v)
}

func local(v connectors.Value) (time.Time, error) {
	if t, ok := late(v); ok {
		return t, nil
	}
	return columns.LocalTime(v)
}

func late(v connectors.Value) (time.Time, bool) {
	if v.Kind() != connectors.Int {
		return time.Time{}, false
	}
	t := time.UnixMilli(v.Int()).UTC()
	return t, t.Year() > 9999 && t.Year() <= lastYear
}
