package accumulate

import (
	"cmp"
	"encoding/binary"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// place is where a record stands among others: by event time, topic, partition and
// offset. Records without an Origin come before others of their time.
type place struct {
	time      int64
	known     bool // the record has an Origin
	topic     string
	partition int32
	offset    int64
}

func placeOf(r *connectors.Record) place {
	if r == nil {
		return place{}
	}
	if r.Origin == nil {
		return place{time: r.Time}
	}
	return place{r.Time, true, r.Origin.Topic, r.Origin.Partition, r.Offset}
}

func (p place) compare(q place) int {
	switch {
	case p.time != q.time:
		return cmp.Compare(p.time, q.time)
	case !p.known || !q.known:
		return truth(p.known) - truth(q.known)
	case p.topic != q.topic:
		return cmp.Compare(p.topic, q.topic)
	case p.partition != q.partition:
		return cmp.Compare(p.partition, q.partition)
	}
	return cmp.Compare(p.offset, q.offset)
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The first byte of a place. 0 is none, so that zeros are no place.
const (
	placeTime  = 1 // only a time follows
	placeWhole = 2 // a time, a topic, a partition and an offset follow
)

// append writes p: numbers as varints, the topic with its length before it.
func (p place) append(b []byte) []byte {
	if !p.known {
		return binary.AppendVarint(append(b, placeTime), p.time)
	}
	b = binary.AppendVarint(append(b, placeWhole), p.time)
	b = appendText(b, []byte(p.topic))
	b = binary.AppendVarint(b, int64(p.partition))
	return binary.AppendVarint(b, p.offset)
}

// readPlace reads what append wrote, and returns what is behind it. The topic is
// borrowed.
func readPlace(b []byte) (p place, rest []byte, err error) {
	if len(b) == 0 || b[0] != placeTime && b[0] != placeWhole {
		return p, nil, state.ErrCorrupt
	}
	r := state.Reader{Rest: b[1:]}
	p.known = b[0] == placeWhole
	p.time = r.Varint()
	if p.known {
		p.topic = connectors.TextValue(connectors.String, r.Bytes()).Text()
		p.partition = int32(r.Varint())
		p.offset = r.Varint()
	}
	if r.Bad {
		return p, nil, state.ErrCorrupt
	}
	return p, r.Rest, nil
}

// appendText writes the length of text and text.
func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
