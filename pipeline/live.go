package pipeline

import (
	"context"
	"errors"
	"time"
)

// TapOptions say what is shown of a step.
type TapOptions struct {
	// Limit ends the tap after so many records; 0 for none.
	Limit int
	// PerSecond is how many are shown at most in a second, the others are left out; 0 for 10.
	PerSecond int
	// Input shows what comes in, not what goes out; of a sink it always does.
	Input bool
}

// Tapped is a record at a step.
type Tapped struct {
	Time      time.Time         `json:"time"` // when it passed
	Operator  string            `json:"operator"`
	Topic     string            `json:"topic,omitempty"`
	Partition int32             `json:"partition"` // -1 where that is not known
	Offset    int64             `json:"offset"`
	Key       string            `json:"key,omitempty"`
	Value     string            `json:"value"`
	Headers   map[string]string `json:"headers,omitempty"`
	EventTime *int64            `json:"event_time,omitempty"` // milliseconds since 1970
	// Left is how many were left out since the one before.
	Left int64 `json:"left"`
	// Cut says that Value is not all of it.
	Cut bool `json:"cut,omitempty"`
}

// Tap shows records at an operator until ctx ends, when the channel is closed. It never
// holds up the stream: what is not taken in time is left out and counted.
func (c *Control) Tap(context.Context, string, TapOptions) (<-chan Tapped, error) {
	return nil, errors.New("not built yet")
}
