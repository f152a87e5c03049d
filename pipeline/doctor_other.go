//go:build !linux && !darwin

package pipeline

// fileLimit is not known here.
func fileLimit() (n uint64, known bool) { return 0, false }

// diskSpace is not known here.
func diskSpace(string) (free, total int64, known bool, err error) { return 0, 0, false, nil }
