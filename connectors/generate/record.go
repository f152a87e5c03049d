package generate

import (
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// fill makes the record of a partition and offset. Its number within the whole
// source is offset × partitions + partition, so that partitions advance together
// in event time.
func (s *Source) fill(r *connectors.Record, arena *connectors.Arena, partition, offset int64) {
	seq := offset*s.config.Partitions + partition
	r.Origin, r.Offset = &s.origins[partition], offset
	r.Time = s.start + seq*int64(s.step)/int64(time.Millisecond)
	if s.config.Kind == "bid" {
		fillBid(r, arena, uint64(seq))
		return
	}
	b := arena.Grow(96)
	b = append(b, `{"seq":`...)
	b = strconv.AppendInt(b, seq, 10)
	b = append(b, `,"partition":`...)
	b = strconv.AppendInt(b, partition, 10)
	b = append(b, `,"time":`...)
	b = strconv.AppendInt(b, r.Time, 10)
	r.Value = arena.Keep(append(b, '}'))
}

// bidBytes is more than any bid and its key take.
const bidBytes = 384

// fillBid makes a bid in the shape of Nexmark's: most bids go to a few hot
// auctions, prices spread over the orders of magnitude.
func fillBid(r *connectors.Record, arena *connectors.Arena, seq uint64) {
	rnd := random(seq)
	auction := 1000 + seq/50
	if rnd.next()%2 == 0 {
		auction -= auction % 100 // hot
	} else {
		auction -= rnd.next() % min(auction-999, 100)
	}
	key := strconv.AppendUint(arena.Grow(20), auction, 10)
	r.Key = arena.Keep(key)

	b := arena.Grow(bidBytes)
	b = append(b, `{"auction":`...)
	b = strconv.AppendUint(b, auction, 10)
	b = append(b, `,"bidder":`...)
	b = strconv.AppendUint(b, 1000+rnd.next()%(1000+seq/50), 10)
	b = append(b, `,"price":`...)
	b = strconv.AppendUint(b, 100+rnd.next()%pow10[rnd.next()%uint64(len(pow10))], 10)
	channel := rnd.next() % 10000
	b = append(b, `,"channel":"channel-`...)
	b = strconv.AppendUint(b, channel, 10)
	b = append(b, `","url":"https://www.nexmark.com/`...)
	for range 3 {
		b = append(rnd.letters(b, 3, 5), '/')
	}
	b = append(b, `item.htm?query=1&channel_id=`...)
	b = strconv.AppendUint(b, channel*209715, 10)
	b = append(b, `","date_time":`...)
	b = strconv.AppendInt(b, r.Time, 10)
	b = append(b, `,"extra":"`...)
	b = rnd.letters(b, 8, 32)
	r.Value = arena.Keep(append(b, `"}`...))
}

var pow10 = [...]uint64{100, 1000, 10_000, 100_000, 1_000_000, 10_000_000}

// random is SplitMix64 (Steele, Lea, Flood 2014): one multiplication chain a
// number, and any seed is a good one.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// letters appends from lo to hi lower-case letters.
func (r *random) letters(b []byte, lo, hi uint64) []byte {
	n := lo + r.next()%(hi-lo+1)
	var bits uint64
	for i := range n {
		if i%12 == 0 {
			bits = r.next()
		}
		b = append(b, 'a'+byte(bits%26))
		bits /= 26
	}
	return b
}
