//go:build !linux

package local

// moveNew renames a file and never replaces one: fs.ErrExist.
func moveNew(from, to string) error { return link(from, to) }
