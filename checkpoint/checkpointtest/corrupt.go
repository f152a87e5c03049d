// Package checkpointtest damages checkpoints, to test that damage is found.
package checkpointtest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/storage"
)

// Damage is one way to damage a file.
type Damage struct {
	Name string
	// Apply returns the damaged content; nil where the file goes.
	Apply func(data []byte) []byte
}

// Flip inverts the bits of one byte.
func Flip(at int) Damage {
	return Damage{fmt.Sprintf("byte %d flipped", at), func(data []byte) []byte {
		out := bytes.Clone(data)
		out[at] ^= 0xff
		return out
	}}
}

// FlipBit inverts one bit.
func FlipBit(at, bit int) Damage {
	return Damage{fmt.Sprintf("bit %d of byte %d flipped", bit, at), func(data []byte) []byte {
		out := bytes.Clone(data)
		out[at] ^= 1 << bit
		return out
	}}
}

// Truncate keeps the first bytes only.
func Truncate(length int) Damage {
	return Damage{fmt.Sprintf("cut off after %d bytes", length), func(data []byte) []byte { return bytes.Clone(data[:length]) }}
}

// Remove drops one byte from the middle.
func Remove(at int) Damage {
	return Damage{fmt.Sprintf("byte %d missing", at), func(data []byte) []byte {
		return append(bytes.Clone(data[:at]), data[at+1:]...)
	}}
}

// Append adds bytes at the end.
func Append(more string) Damage {
	return Damage{fmt.Sprintf("%q added", more), func(data []byte) []byte { return append(bytes.Clone(data), more...) }}
}

// Zero makes all bytes zero, as a disk does that lost the content and kept the size.
func Zero() Damage {
	return Damage{"zeroed", func(data []byte) []byte { return make([]byte, len(data)) }}
}

// Drop removes the file.
func Drop() Damage { return Damage{"dropped", func([]byte) []byte { return nil }} }

// Swap puts other content in its place.
func Swap(other []byte) Damage {
	return Damage{"swapped", func([]byte) []byte { return bytes.Clone(other) }}
}

// All are the ways to damage a file of a given size, one of each kind and place that matters.
func All(size int) []Damage {
	out := []Damage{Zero(), Drop(), Append("x"), Append("\n"), Truncate(0)}
	if size > 0 {
		out = append(out, Flip(0), Flip(size/2), Flip(size-1), FlipBit(size/3, 0), Truncate(size/2), Truncate(size-1), Remove(size/2))
	}
	return out
}

// Do damages a file in place.
func (d Damage) Do(ctx context.Context, f storage.FS, name string) error {
	data, err := storage.ReadFile(ctx, f, name, 1<<30)
	if err != nil {
		return fmt.Errorf("damage %s: %w", name, err)
	}
	if err := f.Remove(ctx, name); err != nil {
		return fmt.Errorf("damage %s: %w", name, err)
	}
	data = d.Apply(data)
	if data == nil {
		return nil
	}
	return storage.WriteFile(ctx, f, name, data)
}
