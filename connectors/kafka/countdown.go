package kafka

import "sync/atomic"

// countdown counts acknowledgements against a number that is known only after
// some of them came: it starts far above any and seal takes the difference off.
type countdown struct{ n atomic.Int64 }

const countdownStart = 1 << 40

func (c *countdown) start() { c.n.Store(countdownStart) }

// done counts one and reports whether it was the last.
func (c *countdown) done() bool { return c.n.Add(-1) == 0 }

// seal tells how many there are in all, and reports whether they have all come.
func (c *countdown) seal(total int) bool { return c.n.Add(int64(total)-countdownStart) == 0 }
