package connectors

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ConfigValue is implemented by configuration types that read more than one
// form, such as `earliest` or `{timestamp: …}`. UnmarshalConfig is given the
// YAML value as nil, bool, int64, float64, string, []any or map[string]any.
type ConfigValue interface{ UnmarshalConfig(v any) error }

// Validator is implemented by configurations that can be wrong as a whole.
// Validate returns all faults at once, joined with errors.Join, those of one key as *FieldError.
type Validator interface{ Validate() error }

// FieldError is a fault of one key of a configuration.
type FieldError struct {
	Key  string // dotted path below the connector's block
	Msg  string
	Help string // what to do; may be empty
}

func (e *FieldError) Error() string {
	s := e.Key + ": " + e.Msg
	if e.Help != "" {
		s += " (" + e.Help + ")"
	}
	return s
}

// TimeSpan is a duration in a configuration: Go's form, plus d for days.
type TimeSpan time.Duration

// UnmarshalConfig reads a text such as 90s, 1h30m or 7d.
func (d *TimeSpan) UnmarshalConfig(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("a duration such as 30s, 5m or 1d is wanted, not %v", v)
	}
	t, err := ParseDuration(s)
	*d = TimeSpan(t)
	return err
}

// String is Go's form of the duration.
func (d TimeSpan) String() string { return time.Duration(d).String() }

// ParseDuration reads Go's duration text, with d for days of 24 hours in front.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	if !found {
		return parseGoDuration(s, s)
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || !(math.Abs(n) <= 100000) {
		return 0, durationError(s)
	}
	d := time.Duration(n * 24 * float64(time.Hour))
	if rest == "" {
		return d, nil
	}
	r, err := parseGoDuration(rest, s)
	if math.Signbit(n) {
		r = -r
	}
	return d + r, err
}

func parseGoDuration(s, whole string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, durationError(whole)
	}
	return d, nil
}

func durationError(s string) error {
	return fmt.Errorf("%q is no duration: write it like 500ms, 30s, 5m, 1h30m or 7d", s)
}

// ByteSize is a number of bytes in a configuration.
type ByteSize int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalConfig reads a text such as 64MiB or 10MB, or a number of bytes.
func (b *ByteSize) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case int64:
		if v < 0 {
			return errors.New("a size cannot be negative")
		}
		*b = ByteSize(v)
		return nil
	case string:
		n, err := ParseByteSize(v)
		*b = n
		return err
	}
	return fmt.Errorf("a size such as 64MiB or 10MB is wanted, not %v", v)
}

// ParseByteSize reads a text such as 64MiB, 10MB or 512.
func ParseByteSize(s string) (ByteSize, error) {
	num, unit := s, int64(1)
	for _, u := range sizeUnits {
		if head, ok := strings.CutSuffix(s, u.suffix); ok {
			num, unit = strings.TrimSpace(head), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || !(f >= 0 && f*float64(unit) <= math.MaxInt64/2) {
		return 0, fmt.Errorf("%q is no size: write it like 512KiB, 64MiB or 10MB", s)
	}
	return ByteSize(f * float64(unit)), nil
}

// String is the size with the largest unit that divides it.
func (b ByteSize) String() string {
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; b != 0 && int64(b)%u.bytes == 0 {
			return strconv.FormatInt(int64(b)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// FormatConfig names a format and its options: `json`, or `{json: {strict: true}}`.
type FormatConfig struct {
	Name    string
	Options map[string]any
}

// RecordFormatter is implemented by configurations whose key format says how records are
// laid out as a whole, as in files of columns, and not each by itself.
type RecordFormatter interface {
	// RecordFormat is the format of single records between the connector and the engine.
	RecordFormat() FormatConfig
}

// UnmarshalConfig reads both forms.
func (f *FormatConfig) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case string:
		f.Name = v
		return nil
	case map[string]any:
		if len(v) == 1 {
			for name, options := range v {
				m, ok := options.(map[string]any)
				if !ok && options != nil {
					return fmt.Errorf("the options of format %s must be a map", name)
				}
				f.Name, f.Options = name, m
			}
			return nil
		}
	}
	return errors.New("a format is a name, or one name with its options: {json: {strict: true}}")
}

// Assignments are named expressions in the order written, as in
// `set: {price_eur: price * 0.908}`.
type Assignments []Assignment

// Assignment is one of Assignments.
type Assignment struct {
	Name string
	Expr Expr
}

// Keys say by what records are grouped: `[auction, bidder]`, fields, or
// `{user: lower(user_id)}`, expressions with the name that the value has in the result.
type Keys []Assignment
