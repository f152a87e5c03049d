package transform

import "slices"

// ringForm is the form of a ring, the panes of one key that a sliding window consists
// of: how many of them are in front, in 8 bytes; the states of those behind the front
// taken together; and the panes in order of their ends, each the end and states. What
// a pane in front has is not its own states only but those of all panes from it to the
// end of the front, so that those of a window are the first of its panes in front and
// the sum behind, whatever its size. Once the front has left the window the panes
// behind it become the front. So a pane is merged a few times in its life; see
// "two stacks" in Tangwongsan et al., General Incremental Sliding-Window Aggregation,
// VLDB 2015.
type ringForm struct {
	size  int // of states
	merge func(states, other []byte) error
}

func (f *ringForm) head() int  { return 8 + f.size }
func (f *ringForm) entry() int { return paneStates + f.size }

func (f *ringForm) count(v []byte) int             { return (len(v) - f.head()) / f.entry() }
func (f *ringForm) front(v []byte) int             { return int(get64(v, 0)) }
func (f *ringForm) behind(v []byte) []byte         { return v[8 : 8+f.size : 8+f.size] }
func (f *ringForm) end(v []byte, i int) int64      { return get64(v, f.head()+i*f.entry()) }
func (f *ringForm) states(v []byte, i int) []byte  { return f.pane(v, i)[paneStates:] }
func (f *ringForm) last(v []byte) int64            { return f.end(v, f.count(v)-1) }
func (f *ringForm) at(i int) int                   { return f.head() + i*f.entry() }
func (f *ringForm) pane(v []byte, i int) []byte    { return v[f.at(i):f.at(i+1):f.at(i+1)] }
func (f *ringForm) spent(v []byte, first int) bool { return first > 0 && first >= f.front(v) }

// since is the first pane that ends after a time.
func (f *ringForm) since(v []byte, t int64) int {
	i, n := 0, f.count(v)
	for i < n && f.end(v, i) <= t {
		i++
	}
	return i
}

// total is the states of the panes from first on taken together, maybe in the memory
// of sum.
func (f *ringForm) total(sum, v []byte, first int) (total, memory []byte, err error) {
	front, n := f.front(v), f.count(v)
	switch {
	case first == front:
		return f.behind(v), sum, nil
	case first < front && front == n:
		return f.states(v, first), sum, nil
	case first < front:
		sum = append(sum[:0], f.states(v, first)...)
		return sum, sum, f.merge(sum, f.behind(v))
	}
	sum = append(sum[:0], f.states(v, first)...)
	for i := first + 1; i < n; i++ {
		if err := f.merge(sum, f.states(v, i)); err != nil {
			return nil, sum, err
		}
	}
	return sum, sum, nil
}

// turn appends to dst the ring whose front is the panes from first on, which are
// behind the front of v.
func (f *ringForm) turn(dst, v []byte, first int) ([]byte, error) {
	at, n := len(dst), f.count(v)-first
	dst = append(dst, make([]byte, f.head())...)
	put64(dst, at, int64(n))
	dst = append(dst, v[f.at(first):]...)
	ring := dst[at:]
	for i := n - 2; i >= 0; i-- {
		if err := f.merge(f.states(ring, i), f.states(ring, i+1)); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// push fills the last pane of v, which is there with zeros.
func (f *ringForm) push(v []byte, end int64, states []byte) error {
	pane := f.pane(v, f.count(v)-1)
	put64(pane, paneEnd, end)
	copy(pane[paneStates:], states)
	return f.merge(f.behind(v), states)
}

// add adds states to the pane that ends at end, and makes one where there is none.
func (f *ringForm) add(v []byte, end int64, states []byte) ([]byte, error) {
	i, front := f.since(v, end-1), f.front(v)
	if i == f.count(v) || f.end(v, i) != end {
		v = slices.Insert(v, f.at(i), make([]byte, f.entry())...)
		put64(v, f.at(i), end)
		if i < front {
			front++
			put64(v, 0, int64(front))
			if i+1 < front {
				copy(f.states(v, i), f.states(v, i+1))
			}
		}
	}
	if i >= front {
		if err := f.merge(f.states(v, i), states); err != nil {
			return nil, err
		}
		return v, f.merge(f.behind(v), states)
	}
	for ; i >= 0; i-- {
		if err := f.merge(f.states(v, i), states); err != nil {
			return nil, err
		}
	}
	return v, nil
}
