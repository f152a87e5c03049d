// Package storagetest is what every storage scheme has to pass, and a wrapper that
// makes any of them fail.
package storagetest

import (
	"testing"

	"github.com/sluice-etl/sluice/storage"
)

// Run tests that a scheme keeps the contract of storage.FS. open makes an empty one.
func Run(t *testing.T, open func(t *testing.T) storage.FS) {
	t.Helper()
	RunWithin(t, func(t *testing.T, test func(t *testing.T)) { test(t) }, open)
}

// RunWithin is Run with each test called by a function, such as synctest.Test, so that
// retries take no time.
func RunWithin(t *testing.T, within func(t *testing.T, test func(t *testing.T)), open func(t *testing.T) storage.FS) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(t *testing.T, f storage.FS)
	}{
		{"a file is there whole once it is closed, and not before", testCreate},
		{"a taken name is never replaced", testCreateExisting},
		{"an aborted file never appears", testAbort},
		{"one of many claims wins", testClaimRace},
		{"one of many creators of a name wins, whole", testCreateRace},
		{"a missing file is reported as such", testMissing},
		{"a staged file is hidden until it is published once", testStaged},
		{"publishing never replaces", testPublishExisting},
		{"one of many publishers wins", testPublishRace},
		{"a discarded staged file is gone", testDiscard},
		{"lists are sorted and go as deep as they say", testList},
		{"removing is idempotent and exact", testRemove},
		{"names that leave the root or hide are refused", testBadNames},
		{"unusual names work", testNames},
		{"large files and every way of reading", testLarge},
		{"a cancelled context does nothing", testCancelled},
		{"a folder of a file system is a file system", testSub},
	} {
		t.Run(c.name, func(t *testing.T) {
			within(t, func(t *testing.T) { c.test(t, open(t)) })
		})
	}
}
