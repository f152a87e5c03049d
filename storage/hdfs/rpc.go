package hdfs

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/colinmarc/hdfs/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/sluice-etl/sluice/storage"
)

// caller sends one request to the namenode.
type caller interface {
	Execute(method string, req, resp proto.Message) error
}

var errUnknownClient = errors.New("this program was built with a version of its HDFS client that it does not know")

// namenodeOf is the client's connection to the namenode, which it does not export.
// It is needed for the one request that makes exclusive names possible, rename2
// without overwriting: the client's own Rename always overwrites. A version of the
// client that is built otherwise is an error, and never a rename that replaces.
func namenodeOf(c *hdfs.Client) (caller, error) {
	field := reflect.ValueOf(c).Elem().FieldByName("namenode")
	if field.IsValid() && field.Kind() == reflect.Pointer {
		if nn, ok := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(caller); ok {
			return nn, nil
		}
	}
	return nil, final(errUnknownClient)
}

// message makes a message of the client protocol with the fields given.
func message(name string, fields map[protoreflect.Name]any) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("hadoop.hdfs." + name))
	if err != nil {
		return nil, final(fmt.Errorf("%w: %w", errUnknownClient, err))
	}
	m := t.New()
	for field, value := range fields {
		fd := m.Descriptor().Fields().ByName(field)
		if fd == nil {
			return nil, final(fmt.Errorf("%w: %s has no %s", errUnknownClient, name, field))
		}
		if list, ok := value.([]protoreflect.Message); ok {
			for _, one := range list {
				m.Mutable(fd).List().Append(protoreflect.ValueOfMessage(one))
			}
			continue
		}
		m.Set(fd, protoreflect.ValueOf(value))
	}
	return m.Interface(), nil
}

// ask sends a request and returns its answer.
func (c *client) ask(method, name string, fields map[protoreflect.Name]any) (protoreflect.Message, error) {
	req, err := message(name+"RequestProto", fields)
	if err != nil {
		return nil, err
	}
	resp, err := message(name+"ResponseProto", nil)
	if err != nil {
		return nil, err
	}
	if err := c.nn.Execute(method, req, resp); err != nil {
		return nil, translate(err)
	}
	return resp.ProtoReflect(), nil
}

// field is a field of a message, which may not be set.
func field(m protoreflect.Message, name protoreflect.Name) (protoreflect.Value, bool) {
	fd := m.Descriptor().Fields().ByName(name)
	if fd == nil || !m.Has(fd) {
		return protoreflect.Value{}, false
	}
	return m.Get(fd), true
}

// rename moves a file and never replaces one. The namenode looks and moves under one
// lock, so that of several callers one succeeds.
func (c *client) rename(from, to string) error {
	_, err := c.ask("rename2", "Rename2", map[protoreflect.Name]any{"src": from, "dst": to, "overwriteDest": false})
	return err
}

// remove deletes a file, or a folder with all that is in it; what is not there is no error.
func (c *client) remove(path string, recursive bool) error {
	_, err := c.ask("delete", "Delete", map[protoreflect.Name]any{"src": path, "recursive": recursive})
	if err = absent(err); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// makeDir makes a folder with those above it; one that is there is no error.
func (c *client) makeDir(path string) error {
	mode, err := message("FsPermissionProto", map[protoreflect.Name]any{"perm": uint32(dirPerm)})
	if err != nil {
		return err
	}
	_, err = c.ask("mkdirs", "Mkdirs", map[protoreflect.Name]any{"src": path, "masked": mode.ProtoReflect(), "createParent": true})
	if errors.Is(err, fs.ErrExist) {
		return final(errNoFolder)
	}
	return err
}

// entry describes a file or folder.
type entry struct {
	name     string // the last element; empty where it was asked for by its path
	dir      bool
	size     int64
	modified time.Time
	id       uint64 // stays the same when it is renamed
}

func (e *entry) hidden() bool { return strings.HasPrefix(e.name, storage.HiddenPrefix) }

func toEntry(m protoreflect.Message) (entry, error) {
	s, ok := m.Interface().(*hdfs.FileStatus)
	if !ok {
		return entry{}, final(errUnknownClient)
	}
	return entry{
		name: string(s.GetPath()), dir: s.GetFileType() == 1, size: int64(s.GetLength()),
		modified: time.UnixMilli(int64(s.GetModificationTime())), id: s.GetFileId(),
	}, nil
}

// stat describes what is at a path.
func (c *client) stat(path string) (entry, error) {
	resp, err := c.ask("getFileInfo", "GetFileInfo", map[protoreflect.Name]any{"src": path})
	if err != nil {
		return entry{}, err
	}
	v, there := field(resp, "fs")
	if !there {
		return entry{}, final(fs.ErrNotExist)
	}
	return toEntry(v.Message())
}

// list describes what is in a folder behind a name, as much of it as the namenode
// hands out at a time (dfs.ls.limit, 1000 by default), and says whether there is more.
// A file, or what is not there, has nothing in it.
func (c *client) list(path, after string) (out []entry, more bool, err error) {
	resp, err := c.ask("getListing", "GetListing", map[protoreflect.Name]any{"src": path, "startAfter": []byte(after), "needLocation": false})
	if err = absent(err); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	v, there := field(resp, "dirList")
	if !there {
		return nil, false, nil
	}
	if all, ok := field(v.Message(), "partialListing"); ok {
		for i := range all.List().Len() {
			e, err := toEntry(all.List().Get(i).Message())
			if err != nil {
				return nil, false, err
			}
			if e.name != "" { // the path is that of a file
				out = append(out, e)
			}
		}
	}
	remaining, ok := field(v.Message(), "remainingEntries")
	return out, ok && remaining.Uint() > 0 && len(out) > 0, nil
}
