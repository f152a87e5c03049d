package connectors

// Origin is the place that records come from: a topic's partition, or a file.
// All records of a place share one Origin.
type Origin struct {
	Topic     string
	Partition int32
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record as its source gave it. Value, Key and Headers borrow
// from the batch that holds the record and are never written to.
type Record struct {
	Value   []byte // the encoded value; nil is a tombstone, empty is an empty value
	Key     []byte // nil where there is none
	Headers []Header
	Origin  *Origin // nil where a step made the record anew
	Offset  int64   // position within Origin
	Time    int64   // event time, milliseconds since 1970
}

// Tombstone reports whether the record has a null value.
func (r *Record) Tombstone() bool { return r.Value == nil }
