package connectors

import "math"

// Origin is the place that records come from: a topic's partition, or a file.
// All records of a place share one Origin.
type Origin struct {
	Topic     string
	Partition int32
	// Letter is set where the record is a dead letter that is brought back; the place is
	// then the one that the record came from at first.
	Letter *Letter
}

// Letter is what is known of a dead letter that is brought back.
type Letter struct {
	Step    string // where the record failed
	Attempt int    // how often it has failed
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Op is what a record does to the result that it is a row of. A stream of
// records that are all inserts is append-only; any other is updating. The two
// records of an update stand next to each other in a batch, the old one first;
// a step may leave one of them out, after which an UpdateBefore without an
// UpdateAfter behind it is a delete and an UpdateAfter without an UpdateBefore
// an insert.
type Op uint8

// The operations.
const (
	Insert       Op = iota // a new row
	UpdateBefore           // the row as it was before an update
	UpdateAfter            // the row as it is after an update
	Delete                 // the row that is not there any more
)

var opNames = [...]string{"insert", "update_before", "update_after", "delete"}

// String names the operation in the words of the pipeline language.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

// Retracts reports whether the record takes back a row that came earlier.
func (o Op) Retracts() bool { return o == UpdateBefore || o == Delete }

// NoMark is the Mark of records that no split's watermark goes with.
const NoMark = math.MinInt64

// Record is one record as its source gave it. Value, Key and Headers borrow
// from the batch that holds the record and are never written to.
type Record struct {
	Value   []byte // the encoded value; nil is a tombstone, empty is an empty value
	Key     []byte // nil where there is none
	Headers []Header
	Origin  *Origin // nil where a step made the record anew
	Offset  int64   // position within Origin
	Time    int64   // event time, milliseconds since 1970
	// Mark is the watermark of the record's own split just before the record: what
	// lies before it has come as far as this split knows. Set by the engine where
	// event time begins; NoMark in records that steps make anew. Windows judge
	// lateness by it, so that the answer does not hang on how splits are mixed.
	Mark int64
	Op   Op // Insert but in updating streams
}

// Tombstone reports whether the record has a null value.
func (r *Record) Tombstone() bool { return r.Value == nil }
