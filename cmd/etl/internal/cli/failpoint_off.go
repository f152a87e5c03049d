//go:build !failpoint

package cli

// failpoint is nil: crash points exist only in test builds.
func failpoint() func(name string) { return nil }
