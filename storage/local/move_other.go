//go:build !linux

package local

import "os"

// moveNew renames a file and never replaces one: fs.ErrExist.
func moveNew(from, to string) error { return link(from, to) }

// lock and abandoned need file locks: without them what a crash left stays.
func lock(*os.File) bool { return true }

func abandoned(*os.File) bool { return false }
