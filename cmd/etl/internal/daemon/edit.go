package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// pipelineName is what names of pipelines are: DNS labels.
var pipelineName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// Put implements api.Service. A definition that is not taken over leaves the file as it was.
func (d *Daemon) Put(ctx context.Context, actor, name, text string) (*api.Pipeline, error) {
	if !pipelineName.MatchString(name) {
		return nil, invalid("%q cannot be the name of a pipeline: write lower-case letters, digits and -", name)
	}
	def := d.posted(text)
	switch {
	case !def.valid():
		return nil, invalid("the definition has faults:\n%s", def.report())
	case def.name != name:
		return nil, invalid("the definition is of pipeline %s, and not of %s", def.name, name)
	}
	done, err := d.edits(name)
	if err != nil {
		return nil, err
	}
	defer done()
	path, before, err := d.place(name)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // who has left must not leave a file behind that is not taken over
	if err := writeDurably(path, []byte(text), modeOf(path)); err != nil {
		return nil, conflict("the file of pipeline %s cannot be written: %s", name, err)
	}
	d.Tell(api.Event{Kind: "definition", Level: levelInfo, Pipeline: name, Text: "its file is written: " + path, Actor: actor})
	report, err := d.Reload(ctx, actor)
	if err != nil {
		return nil, err
	}
	if result := report.Pipelines[name]; before != nil && isBad(result) {
		err := writeDurably(path, before, modeOf(path))
		_, again := d.Reload(ctx, actor)
		return nil, errors.Join(conflict("the definition of pipeline %s is not taken over, and its file is as it was: %s", name, result), err, again)
	}
	return d.Pipeline(ctx, name)
}

// edits begins a change of a pipeline's file. Two at a time would put each other's file
// back: the second one is refused.
func (d *Daemon) edits(name string) (done func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.edited[name] {
		return nil, conflict("the file of pipeline %s is being changed by somebody else: try again when that is done", name)
	}
	d.edited[name] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.edited, name)
	}, nil
}

// isBad reports whether a result of a reload says that a file is not taken over.
func isBad(result string) bool {
	return strings.HasPrefix(result, refusedAs) || strings.HasPrefix(result, rolledBack) || strings.HasPrefix(result, faulty)
}

// place is the file of a pipeline, and what is in it now; nil for nothing.
func (d *Daemon) place(name string) (path string, before []byte, err error) {
	path = filepath.Join(d.folder, name+".yaml")
	u, unknown := d.find(name)
	if unknown == nil {
		path = u.written().file
	}
	if filepath.Dir(path) != d.folder {
		return "", nil, conflict("the file of pipeline %s is not in the folder of pipelines", name)
	}
	before, err = readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, nil, nil
	case err != nil:
		return "", nil, conflict("the file of pipeline %s cannot be read: %s", name, err)
	case unknown != nil:
		return "", nil, conflict("%s is the file of another pipeline: rename it, or give this one another name", path)
	}
	return path, before, nil
}

// modeOf is the mode that a file has, or gets.
func modeOf(path string) fs.FileMode {
	if info, err := os.Stat(path); err == nil {
		return info.Mode().Perm()
	}
	return 0o640
}

// Delete implements api.Service.
func (d *Daemon) Delete(ctx context.Context, actor, name string) error {
	u, err := d.find(name)
	if err != nil {
		return err
	}
	done, err := d.edits(name)
	if err != nil {
		return err
	}
	defer done()
	if r := u.running(); r != nil {
		if _, err := d.Stop(ctx, actor, name, pipeline.StopOptions{}); err != nil {
			return err
		}
	}
	path := u.written().file
	if err := os.Remove(path); err != nil {
		return conflict("the file of pipeline %s cannot be removed, and the pipeline is left stopped: %s", name, err)
	}
	if err := syncFolder(d.folder); err != nil {
		d.log.Warn("the folder of pipelines could not be synced", "err", err)
	}
	d.Tell(api.Event{Kind: "definition", Level: levelInfo, Pipeline: name, Text: "its file is removed: " + path, Actor: actor})
	_, err = d.Reload(ctx, actor)
	return err
}
