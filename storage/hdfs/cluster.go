package hdfs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Clients that wait for work. Each asks the namenode something once a second, so
// there are few of them, and not for long.
const (
	idleClients = 8
	idleFor     = 30 * time.Second
	// clientAge is when a client is replaced although it works: keys for encrypted
	// transfers, which it keeps, end after hours.
	clientAge = 30 * time.Minute
)

// Waits between tries.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 5 * time.Second
)

// maxLitter is how many files that could not be removed are remembered.
const maxLitter = 10000

// cluster is one HDFS with the connections to it, shared by all file systems of the
// process that lie on it.
type cluster struct {
	name   string // as in the address
	conf   config
	target target
	logins *logins
	nodes  nodes

	mu     sync.Mutex
	idle   []*client
	active string // the namenode that answered last
	litter []string
	swept  map[string]time.Time // folders, by when they were searched for leftovers
}

func newCluster(name string, conf config, t target) *cluster {
	return &cluster{name: name, conf: conf, target: t, logins: &logins{conf: conf.kerberos}, swept: map[string]time.Time{}}
}

// addresses are the namenodes, the one that answered last first.
func (cl *cluster) addresses() []string {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	out := slices.Clone(cl.target.addresses)
	if i := slices.Index(out, cl.active); i > 0 {
		out = slices.Concat(out[i:i+1], out[:i], out[i+1:])
	}
	return out
}

// acquire takes an idle client or makes one.
func (cl *cluster) acquire(ctx context.Context) (*client, error) {
	for {
		cl.mu.Lock()
		n := len(cl.idle)
		if n == 0 {
			cl.mu.Unlock()
			return cl.connect(ctx)
		}
		c := cl.idle[n-1]
		cl.idle = cl.idle[:n-1]
		cl.mu.Unlock()
		c.expire.Stop()
		if time.Since(c.born) < clientAge {
			return c, nil
		}
		c.close()
	}
}

// release gives a client back, or ends it where it may be broken.
func (cl *cluster) release(c *client, whole bool) {
	host, alive := c.reset()
	if !whole || !alive {
		c.close()
		return
	}
	cl.mu.Lock()
	cl.active = host
	keep := len(cl.idle) < idleClients
	if keep {
		c.expire = time.AfterFunc(idleFor, func() { cl.drop(c) })
		cl.idle = append(cl.idle, c)
	}
	cl.mu.Unlock()
	if !keep {
		c.close()
	}
}

// drop ends a client that nobody took.
func (cl *cluster) drop(c *client) {
	cl.mu.Lock()
	i := slices.Index(cl.idle, c)
	if i >= 0 {
		cl.idle = slices.Delete(cl.idle, i, i+1)
	}
	cl.mu.Unlock()
	if i >= 0 {
		c.close()
	}
}

// forget ends all idle clients: what one of them met, the others may meet too.
func (cl *cluster) forget() {
	cl.mu.Lock()
	idle := cl.idle
	cl.idle = nil
	cl.mu.Unlock()
	for _, c := range idle {
		c.expire.Stop()
		c.close()
	}
}

// once runs a call with a client. The end of the context ends it.
func (cl *cluster) once(ctx context.Context, do func(c *client) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := cl.acquire(ctx)
	if err == nil {
		stop := context.AfterFunc(ctx, c.kill)
		err = c.unknown(do(c))
		alive := stop()
		cl.release(c, alive && answered(err))
		if !answered(err) {
			cl.forget()
		}
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return err
}

// retry repeats a call until it succeeds, fails for good, or has failed for as long
// as patience says.
func (cl *cluster) retry(ctx context.Context, patience time.Duration, do func() error) error {
	begin := time.Now()
	wait := firstWait
	for {
		err := do()
		if err == nil || lasting(err) {
			return err
		}
		if spent := time.Since(begin); spent+wait > patience {
			return fmt.Errorf("HDFS %s, tried for %s: %w", cl.name, spent.Round(time.Second), err)
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-timer.C:
		}
		wait = min(wait*2, lastWait)
	}
}

// call runs a call that asks or changes names, again while the namenodes restart,
// fail over or are in safe mode.
func (cl *cluster) call(ctx context.Context, do func(c *client) error) error {
	return cl.retry(ctx, cl.conf.retry, func() error { return cl.once(ctx, do) })
}

// discard removes hidden files that are of no use any more, also when the context has
// ended. What cannot be removed now is tried again with a later file.
func (cl *cluster) discard(ctx context.Context, paths ...string) {
	cl.mu.Lock()
	cl.litter = append(cl.litter, paths...)
	if over := len(cl.litter) - maxLitter; over > 0 {
		cl.litter = slices.Delete(cl.litter, 0, over)
	}
	todo := cl.litter
	cl.litter = nil
	cl.mu.Unlock()
	if len(todo) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cl.conf.connectTimeout)
	defer cancel()
	done := 0
	_ = cl.once(ctx, func(c *client) error {
		for _, p := range todo {
			if err := c.remove(p, false); err != nil && !errors.As(err, &finalError{}) {
				return err
			}
			done++
		}
		return nil
	})
	cl.mu.Lock()
	cl.litter = append(cl.litter, todo[done:]...)
	cl.mu.Unlock()
}
