package protobuf

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// sources finds .proto files and keeps their texts. The compiler asks it from several
// goroutines.
type sources struct {
	folders []string

	mu    sync.Mutex
	texts map[string]string // by the name that a file is imported by
}

// place is the name of a file by which others import it, for which its folder may become
// one of those that are searched.
func (s *sources) place(path string) string {
	for _, f := range s.folders {
		if rel, err := filepath.Rel(f, path); err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.ToSlash(rel)
		}
	}
	s.folders = append([]string{filepath.Dir(path)}, s.folders...)
	return filepath.Base(path)
}

// FindFileByPath implements protocompile.Resolver.
func (s *sources) FindFileByPath(name string) (protocompile.SearchResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.texts[name]
	err := protoregistry.NotFound
	for i := 0; i < len(s.folders) && !ok; i++ {
		var data []byte
		if data, err = os.ReadFile(filepath.Join(s.folders[i], filepath.FromSlash(name))); err == nil {
			text, ok = string(data), true
		}
	}
	if !ok {
		return protocompile.SearchResult{}, err
	}
	s.texts[name] = text
	return protocompile.SearchResult{Source: strings.NewReader(text)}, nil
}

// draft is a file with those that it imports, but for the ones that every registry has.
func (s *sources) draft(f protoreflect.FileDescriptor, done map[string]*registry.Draft) *registry.Draft {
	if d := done[f.Path()]; d != nil {
		return d
	}
	d := &registry.Draft{Name: f.Path(), Type: "PROTOBUF", Text: s.texts[f.Path()]}
	done[f.Path()] = d
	for i := range f.Imports().Len() {
		imported := f.Imports().Get(i).FileDescriptor
		if _, ours := s.texts[imported.Path()]; ours && !strings.HasPrefix(imported.Path(), "google/protobuf/") {
			d.References = append(d.References, s.draft(imported, done))
		}
	}
	return d
}
