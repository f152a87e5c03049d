// Package systemd tells the service manager what the daemon is at, over the socket of
// NOTIFY_SOCKET. Where there is none, nothing is told.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier tells the service manager. Its zero value tells nobody.
type Notifier struct {
	address  string        // of the socket; empty for none
	watchdog time.Duration // within which it wants to hear of the process; 0 for never
}

// New makes a Notifier from the environment of the process, as getenv shows it.
func New(getenv func(string) string) (*Notifier, error) {
	n := &Notifier{address: getenv("NOTIFY_SOCKET")}
	if n.address == "" {
		return n, nil
	}
	if n.address[0] != '/' && n.address[0] != '@' {
		return nil, fmt.Errorf("NOTIFY_SOCKET is %q: a path or an abstract address, which begins with @, is wanted", n.address)
	}
	text := getenv("WATCHDOG_USEC")
	if pid := getenv("WATCHDOG_PID"); text == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n, nil // the watchdog is another process's
	}
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil || us <= 0 {
		return nil, fmt.Errorf("WATCHDOG_USEC is %q: a number of microseconds is wanted", text)
	}
	n.watchdog = time.Duration(us) * time.Microsecond
	return n, nil
}

// Ready tells that the start, or a reload, is over.
func (n *Notifier) Ready(status string) error { return n.send("READY=1", "STATUS="+line(status)) }

// Status shows a line in systemctl status.
func (n *Notifier) Status(status string) error { return n.send("STATUS=" + line(status)) }

// Reloading tells that a reload has begun. Ready ends it.
func (n *Notifier) Reloading() error {
	if n.address == "" {
		return nil
	}
	us, err := monotonic()
	if err != nil {
		return err
	}
	return n.send("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(us, 10))
}

// Stopping tells that the end has begun.
func (n *Notifier) Stopping(status string) error {
	return n.send("STOPPING=1", "STATUS="+line(status))
}

// Extend asks for so much more time, from now on, for the start or the end that is under way.
func (n *Notifier) Extend(d time.Duration) error {
	return n.send("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10))
}

// extendAhead is how much more time ExtendWhile asks for, each half of it.
const extendAhead = 10 * time.Second

// ExtendWhile asks for more time again and again until ctx ends, such as while a last
// checkpoint is being taken.
func (n *Notifier) ExtendWhile(ctx context.Context) error {
	return n.every(ctx, extendAhead/2, func() error { return n.Extend(extendAhead) })
}

// Watch feeds the watchdog until ctx ends, at half of its interval, but only while
// alive: the service manager restarts the process that no longer feeds it. So alive is
// to be false for what a new process may mend, such as tasks that hang, and not for
// what it finds again, such as a broker that is down.
func (n *Notifier) Watch(ctx context.Context, alive func() bool) error {
	if n.watchdog == 0 {
		return nil
	}
	return n.every(ctx, n.watchdog/2, func() error {
		if !alive() {
			return nil
		}
		return n.send("WATCHDOG=1")
	})
}

// statusEvery is how often Show looks for a new status.
const statusEvery = 2 * time.Second

// Show keeps the line of systemctl status at what status gives, until ctx ends.
func (n *Notifier) Show(ctx context.Context, status func() string) error {
	shown := ""
	return n.every(ctx, statusEvery, func() error {
		now := status()
		if now == shown {
			return nil
		}
		shown = now
		return n.Status(now)
	})
}

// every calls f now, and after each interval until ctx ends. It returns what f failed
// with, once it has ended.
func (n *Notifier) every(ctx context.Context, interval time.Duration, f func() error) error {
	if n.address == "" {
		return nil
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var failure error
	for {
		if err := f(); err != nil {
			failure = err
		}
		select {
		case <-ctx.Done():
			return failure
		case <-ticker.C:
		}
	}
}

// send tells all of it at once, or nothing.
func (n *Notifier) send(fields ...string) (err error) {
	if n.address == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("tell the service manager at %s: %w", n.address, err)
		}
	}()
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.address, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(strings.Join(fields, "\n")))
	return errors.Join(err, conn.Close())
}

// line makes a status one line.
func line(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' }), " ")
}
