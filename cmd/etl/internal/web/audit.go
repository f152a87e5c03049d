package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// audit writes down who has changed what, and who was refused: a line of JSON each.
// Neither bodies nor queries are written, which may hold secrets and records.
type audit struct {
	path  string
	log   *slog.Logger
	event func(api.Event)
	now   func() time.Time
	// strangers bounds the lines that those write who are not known.
	strangers *failures

	mu   sync.Mutex
	file *os.File // nil where there is no path
}

// entry is a line of the audit log.
type entry struct {
	Time    time.Time `json:"time"`
	Actor   string    `json:"actor,omitempty"` // empty where it is not known
	Role    Role      `json:"role,omitempty"`
	Address string    `json:"address"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	// Outcome is done, refused (by what who asks may do), or failed.
	Outcome string `json:"outcome"`
	Status  int    `json:"status"`
	// Reason is why it was refused.
	Reason string `json:"reason,omitempty"`
	// Moved are the positions that it has moved.
	Moved []api.Moved `json:"moved,omitempty"`
}

// openAudit opens the file of the audit log, where there is one.
func openAudit(path string, log *slog.Logger, event func(api.Event)) (*audit, error) {
	a := &audit{path: path, log: log, event: event, now: time.Now, strangers: newFailures()}
	return a, a.reopen()
}

// reopen opens the file anew, for who moves it away from time to time. Where that does
// not work the old one stays open.
func (a *audit) reopen() error {
	if a.path == "" {
		return nil
	}
	file, err := os.OpenFile(a.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open http.audit_file: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.file
	a.file = file
	if old != nil {
		return old.Close()
	}
	return nil
}

func (a *audit) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}

// longestPath is how much of a path is written, in bytes.
const longestPath = 512

// begin is the entry of a request.
func (a *audit) begin(r *http.Request, c Caller) *entry {
	e := &entry{Time: a.now(), Actor: c.Name, Role: c.Role, Address: r.RemoteAddr, Method: r.Method, Path: r.URL.Path}
	if bySocket(r) {
		e.Address = "socket"
	}
	if len(e.Path) > longestPath {
		e.Path = e.Path[:longestPath]
	}
	return e
}

// refused writes that a request was refused. What strangers send fills neither a disk
// nor the events.
func (a *audit) refused(r *http.Request, c Caller, p *Problem) {
	e := a.begin(r, c)
	e.Outcome, e.Status, e.Reason = "refused", p.Status, p.Code
	from := peer(r)
	many := a.strangers.wait(from) > 0
	if !many {
		a.strangers.count(from)
	}
	if !many || c.Name != "" {
		a.write(e)
	}
	if many || c.Name == "" && r.Header.Get("Authorization") == "" {
		return // a page that is opened asks before its user has logged in
	}
	who := c.Name
	if who == "" {
		who = "somebody unknown"
	}
	a.event(api.Event{Time: e.Time, Kind: "refused", Level: "warning", Actor: c.Name, Text: fmt.Sprintf("%s at %s was refused %s %s: %s", who, e.Address, e.Method, e.Path, p.Detail)})
}

// done writes what has come of a request that changes something.
func (a *audit) done(e *entry, status int) {
	e.Status, e.Outcome = status, "done"
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Outcome = "refused"
	case status >= http.StatusBadRequest:
		e.Outcome = "failed"
	}
	a.write(e)
}

func (a *audit) write(e *entry) {
	line, err := json.Marshal(e)
	if err == nil {
		a.mu.Lock()
		if a.file != nil {
			_, err = a.file.Write(append(line, '\n'))
		}
		a.mu.Unlock()
	}
	if err != nil {
		a.log.Error("the audit log cannot be written", "file", a.path, "err", err)
	}
}

// entryKey is the entry of a request, for its handler.
type entryKey struct{}

// moves adds the positions that a request has moved to its entry, and answers with them.
func moves(ctx context.Context, moved []api.Moved, err error) ([]api.Moved, error) {
	if e, ok := ctx.Value(entryKey{}).(*entry); ok {
		e.Moved = moved
	}
	return filledOr(moved, err)
}
