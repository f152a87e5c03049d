package connectors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Diagnoser is implemented by sources, sinks and lookups that can tell more of what they
// are connected to than whether it answers: rights, limits, settings that will hurt.
type Diagnoser interface {
	// Diagnose reports what it finds. It is called once, after a Splits or a read-only Open
	// that succeeded, and returns soon after ctx ends. It publishes nothing, aborts
	// nothing and fences nobody, with Diagnosis.Write neither: the pipeline may be running.
	Diagnose(ctx context.Context, d *Diagnosis)
}

// OpenAdviser is implemented by sources, sinks and lookups that know what to do about an
// error of their Splits or Open.
type OpenAdviser interface {
	// OpenAdvice is the key of the configuration to look at, and what to do; both may be
	// empty.
	OpenAdvice(err error) (key, help string)
}

// Diagnosis is what a Diagnoser is given. Its methods are called by one goroutine at a time.
type Diagnosis struct {
	// Write allows scratch files, objects and the like, which are removed again.
	Write bool
	// Timeout is how long all checks of the connector may take; ctx ends then.
	Timeout time.Duration
	// Reach is how old the oldest checkpoint or savepoint is that the pipeline keeps by
	// itself, and so how far a restore can go back.
	Reach time.Duration
	// Report takes a finding. One without Took gets the time since the one before.
	Report func(Finding)
}

// Finding is what one check has found.
type Finding struct {
	Check  string // what was looked at, in a word or two, such as "topic orders"
	Level  Level
	Detail string // what was found, or what is wrong
	Advice string // what to do; empty where all is well, or where Detail says it
	// Key is the key of the configuration that it is about, dotted, below the connector's
	// block; empty for the block.
	Key  string
	Took time.Duration
}

// Level is how much a finding matters.
type Level string

// The levels.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // it works now, and will hurt
	LevelFailed  Level = "failed"  // the pipeline cannot start, or not go on
)

// OK reports that a check found what it should.
func (d *Diagnosis) OK(check, detail string) {
	d.Report(Finding{Check: check, Level: LevelOK, Detail: detail})
}

// Warn reports what will hurt, and what to do.
func (d *Diagnosis) Warn(check, key, detail, advice string) {
	d.Report(Finding{Check: check, Level: LevelWarning, Key: key, Detail: detail, Advice: advice})
}

// Fail reports an error, with what Advise says of it; key and advice are for where it
// says nothing.
func (d *Diagnosis) Fail(check, key string, err error, advice string) {
	f := Finding{Check: check, Level: LevelFailed, Key: key, Detail: err.Error(), Advice: advice}
	var known adviser
	if errors.As(err, &known) {
		place, help := known.Advice()
		if place != "" {
			f.Key = place
		}
		if help != "" {
			f.Advice = help
		}
	}
	if f.Advice != "" {
		f.Detail = withoutAdvice(f.Detail, f.Advice)
	}
	if d.Timeout > 0 && errors.Is(err, context.DeadlineExceeded) && !strings.Contains(f.Detail, noAnswer) {
		f.Detail = fmt.Sprintf("%s within %s: %s", noAnswer, d.Timeout, f.Detail)
	}
	d.Report(f)
}

// Remark reports what is known of a file system, in the parts of storage.Remark.
func (d *Diagnosis) Remark(key, check, detail, advice string, err error) {
	switch {
	case err != nil:
		d.Fail(check, key, err, advice)
	case advice != "":
		d.Warn(check, key, detail, advice)
	default:
		d.OK(check, detail)
	}
}

const noAnswer = "no answer"

// withoutAdvice is the text of an error up to its advice, where that ends it.
func withoutAdvice(text, advice string) string {
	at := strings.LastIndex(text, advice)
	if at < 0 || strings.Trim(text[at+len(advice):], " )") != "" {
		return text
	}
	return strings.TrimRight(text[:at], " :;(")
}

// adviser is implemented by errors whose text ends with what to do, and that say so apart.
type adviser interface {
	// Advice is the key of the configuration that the error is about, empty where it does
	// not know, and what to do.
	Advice() (key, help string)
}

// Advise is an error whose text is that of err with what to do behind it; an empty help
// says only which key it is about. The check of a pipeline's surroundings shows the two
// apart.
func Advise(key string, err error, help string) error { return &advisedError{key, help, err} }

type advisedError struct {
	key, help string
	err       error
}

func (e *advisedError) Error() string {
	if e.help == "" {
		return e.err.Error()
	}
	return e.err.Error() + ": " + e.help
}

func (e *advisedError) Unwrap() error              { return e.err }
func (e *advisedError) Advice() (key, help string) { return e.key, e.help }
