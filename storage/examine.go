package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Remark is what an examination says of a file system. Without Err and Advice all is well.
type Remark struct {
	Check  string // what was looked at, in a word or two
	Detail string // what was found; empty where Err says it
	Advice string // what to do
	Err    error  // why it does not work
}

// Examiner is a file system that can tell more of itself than whether it answers: free
// space, the clock of its server, rules that remove files.
type Examiner interface {
	// Examine reports what a user should know. It writes nothing.
	Examine(ctx context.Context, o ExamineOptions, report func(Remark))
}

// ExamineOptions say what a file system is wanted for.
type ExamineOptions struct {
	// Write allows to try what writes, by files that are removed again.
	Write bool
	// Staging says that files wait staged, as those of sinks do; others are checkpoints,
	// all of which have to stay.
	Staging bool
}

// Examine looks at whether a file system can be read and, where it may write, tries what
// checkpoints and sinks ask of it.
func Examine(ctx context.Context, f FS, o ExamineOptions, report func(Remark)) {
	failed := func(r Remark) bool {
		if errors.Is(r.Err, fs.ErrPermission) {
			r.Advice = "let this user list, read and write there"
		}
		report(r)
		return r.Err != nil
	}
	_, err := f.Dirs(ctx, "")
	if failed(Remark{Check: "list", Detail: f.URL(), Err: err}) {
		return
	}
	if e, ok := f.(Examiner); ok {
		e.Examine(ctx, o, report)
	}
	// What follows a write that failed would only say so again, or be no proof.
	if !o.Write || failed(examineWrites(ctx, f)) || o.Staging && failed(examineStage(ctx, f)) {
		return
	}
	switch can, err := Probe(ctx, f); {
	case err != nil:
		report(Remark{Check: "conditional writes", Err: err})
	case !can.Exclusive:
		report(Remark{Check: "conditional writes", Detail: can.Reason, Advice: "start no second process of the pipeline, also not for a moment; or use a server that has them"})
	default:
		report(Remark{Check: "conditional writes", Detail: "a name is given to one of several processes"})
	}
}

// examineWrites makes a file, tries its name again, and reads and removes it.
func examineWrites(ctx context.Context, f FS) Remark {
	name := "sluice-doctor-" + randomName()
	r := Remark{Check: "write"}
	defer tidy(ctx, func(ctx context.Context) { _ = f.Remove(ctx, name) })
	want := []byte("written by etl doctor --write, and of no use\n")
	if err := WriteFile(ctx, f, name, want); err != nil {
		r.Err = fmt.Errorf("write a scratch file: %w", err)
		return r
	}
	if err := f.Claim(ctx, name); !errors.Is(err, fs.ErrExist) {
		if err == nil {
			err = errors.New("the name of a file that there is was given away again: the pipeline would overwrite its own files")
		}
		r.Err = fmt.Errorf("claim a name that is taken: %w", err)
		return r
	}
	got, err := ReadFile(ctx, f, name, 1<<10)
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("it holds something else than was written")
	}
	if err != nil {
		r.Err = fmt.Errorf("read the scratch file back: %w", err)
		return r
	}
	if err := f.Remove(ctx, name); err != nil {
		r.Err = fmt.Errorf("remove the scratch file: %w", err)
		return r
	}
	if there, err := Exists(ctx, f, name); err != nil || there {
		r.Err = errors.Join(errors.New("the scratch file is still there after it was removed"), err)
		return r
	}
	r.Detail = "a scratch file was written, read back and removed"
	return r
}

// examineStage stages a file, finds it among the staged ones, and drops it.
func examineStage(ctx context.Context, f FS) Remark {
	r := Remark{Check: "staged files"}
	dir := "sluice-doctor-" + randomName()
	staged, err := stageScratch(ctx, f, dir+"/file")
	if err == nil {
		defer tidy(ctx, func(ctx context.Context) {
			_ = f.Discard(ctx, staged)
			_ = f.RemoveAll(ctx, dir)
		})
		var all []Staged
		if all, err = f.Staged(ctx, dir); err == nil && len(all) != 1 {
			err = fmt.Errorf("%d staged files are listed where there is one", len(all))
		}
	}
	if err != nil {
		r.Err = fmt.Errorf("stage a scratch file: %w", err)
		return r
	}
	if err := f.Discard(ctx, staged); err != nil {
		r.Err = fmt.Errorf("discard the staged file: %w", err)
		return r
	}
	r.Detail = "one was made, listed and discarded"
	return r
}

func stageScratch(ctx context.Context, f FS, name string) (Staged, error) {
	w, err := f.Stage(ctx, name)
	if err != nil {
		return Staged{}, err
	}
	defer w.Abort()
	if _, err := w.Write([]byte("staged by etl doctor --write\n")); err != nil {
		return Staged{}, err
	}
	return w.Close()
}

// tidyTime is how long removing what was tried may take once the time is over.
const tidyTime = 5 * time.Second

// tidy removes what was made, also when ctx has ended.
func tidy(ctx context.Context, remove func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	remove(ctx)
}

func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
