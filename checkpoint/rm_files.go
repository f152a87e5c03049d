package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/storage"
)

// do removes what was found to be removable: the metadata, the rest of the folder, and
// what only this checkpoint shared.
func (r *removal) do(ctx context.Context) error {
	infos, err := r.fs.List(ctx, r.dir)
	if err != nil {
		return fmt.Errorf("remove %s: list it: %w", r.path, err)
	}
	shared, err := r.loose(ctx)
	if err != nil {
		return err
	}
	if err := r.unlessStarted(ctx); err != nil {
		return err
	}
	if err := r.remove(ctx, []storage.Info{{Name: path.Join(r.dir, metadataName)}}); err != nil {
		return err
	}
	gone, left := r.own(infos)
	if err := r.remove(ctx, gone); err != nil {
		return err
	}
	if left == 0 {
		if err := r.fs.RemoveAll(ctx, r.dir); err != nil {
			return fmt.Errorf("remove %s: %w", r.path, err)
		}
	}
	if err := r.remove(ctx, shared); err != nil {
		return err
	}
	for _, info := range slices.Concat(gone, shared) {
		r.out.Files++
		r.out.Bytes += info.Size
	}
	return nil
}

// unlessStarted refuses to go on where a process has started since the checks.
func (r *removal) unlessStarted(ctx context.Context) error {
	if r.store == nil {
		return nil
	}
	newer, err := r.store.exists(ctx, ownerName(r.highest+1))
	if err != nil {
		return fmt.Errorf("look for a newer owner: %w", err)
	}
	if newer && r.highest > 0 {
		return fmt.Errorf("remove %s: %w", r.path, ErrStarted)
	}
	return nil
}

func (r *removal) remove(ctx context.Context, infos []storage.Info) error {
	for part := range slices.Chunk(infos, removeAtOnce) {
		names := make([]string, len(part))
		for i := range part {
			names[i] = part[i].Name
		}
		if err := r.fs.Remove(ctx, names...); err != nil {
			return fmt.Errorf("remove %s: %w", r.path, err)
		}
	}
	return nil
}

// own tells the files of the checkpoint in its folder from those of somebody else, who
// may have put the metadata among their own. left counts those that stay.
func (r *removal) own(infos []storage.Info) (own []storage.Info, left int) {
	known := map[string]bool{metadataName: true, committedName: true, statisticsName: true, claimName: true}
	if r.meta != nil {
		for f := range r.meta.files() {
			known[f.Path] = true
		}
	}
	for _, info := range infos {
		rel := strings.TrimPrefix(info.Name, r.dir+"/")
		if _, state := parseShared(rel); state && isSavepointName(r.dir) {
			known[rel] = true
		}
		switch {
		case r.keepClaim && rel == claimName:
			r.leave("%s: the job must not use its number again", rel)
		case r.store == nil && !known[rel]:
			r.leave("%s: it does not belong to the checkpoint", rel)
		default:
			own = append(own, info)
			continue
		}
		left++
	}
	return own, left
}

func (r *removal) leave(format string, args ...any) {
	r.out.Left = append(r.out.Left, fmt.Sprintf(format, args...))
}

// loose are the shared files that only this checkpoint refers to. Where that cannot be
// known, or a running process may refer to them, they stay.
func (r *removal) loose(ctx context.Context) ([]storage.Info, error) {
	if r.meta == nil {
		r.leave("files in %s: its metadata does not tell which are its own", sharedDir)
		return nil, nil
	}
	mine := map[string]int64{}
	for f := range r.meta.files() {
		if name, ok := strings.CutPrefix(f.Path, "../"+sharedDir+"/"); ok {
			mine[name] = f.Size
		}
	}
	if len(mine) == 0 {
		return nil, nil
	}
	if r.goesOn {
		r.leave("its files in %s: the job goes on, and removes by itself what it needs no more", sharedDir)
		return nil, nil
	}
	dirs, err := r.fs.Dirs(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("remove %s: look for checkpoints beside it: %w", r.path, err)
	}
	for _, d := range dirs {
		if d == r.dir {
			continue
		}
		m, err := readMetadata(ctx, r.fs, d)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			r.leave("its files in %s: it is not known what %s beside it needs: %v", sharedDir, d, err)
			return nil, nil
		}
		for name := range sharedRefs(m) {
			delete(mine, name)
		}
	}
	var out []storage.Info
	for _, name := range slices.Sorted(maps.Keys(mine)) {
		out = append(out, storage.Info{Name: path.Join(sharedDir, name), Size: mine[name]})
	}
	return out, nil
}
