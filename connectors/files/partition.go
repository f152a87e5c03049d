package files

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// nullPartition is what Hive calls the folder of rows without a value.
const nullPartition = "__HIVE_DEFAULT_PARTITION__"

// Bounds of a folder's name, below those of all storages together with a file's name.
const (
	maxElement = 200
	maxFolder  = 600
)

// partition checks the text of partition_by.
func (f *faults) partition(t *connectors.Template) {
	if !t.Set() {
		return
	}
	const key = "partition_by"
	if fixed, ok := t.Fixed(); ok {
		f.add(key, fmt.Sprintf("there is no expression in %q", fixed), "write dt={expression}, or make it a part of path")
		return
	}
	var shape strings.Builder // x stands for a value
	for _, p := range t.Parts {
		if p.Literal == "" {
			shape.WriteByte('x')
		} else {
			shape.WriteString(p.Literal)
		}
	}
	if err := storage.CheckName(shape.String()); err != nil {
		f.add(key, "is no folder below path: "+err.Error(), "write it like dt={expression}/hour={expression}, without a slash at its beginning or end")
		return
	}
	for element := range strings.SplitSeq(shape.String(), "/") {
		if hidden(element) {
			f.add(key, fmt.Sprintf("readers pass over folders like %s, which begin with . or _", element), "begin with a letter")
		}
	}
}

// hidden reports whether readers pass over a file or folder of that name by convention.
func hidden(element string) bool {
	return strings.HasPrefix(element, ".") || strings.HasPrefix(element, "_")
}

// appendFolder adds the folder of row i, with a slash at its end.
func appendFolder(dst []byte, t *connectors.Template, rows *connectors.Rows, i int) ([]byte, error) {
	out, err := t.Append(dst, rows, i, appendPartitionValue)
	if err != nil {
		return dst, err
	}
	if len(out)-len(dst) > maxFolder {
		return dst, fmt.Errorf("partition_by makes a folder's name of more than %d bytes", maxFolder)
	}
	begin := len(dst)
	for k := begin; k <= len(out); k++ {
		if k == len(out) || out[k] == '/' {
			if k-begin > maxElement {
				return dst, fmt.Errorf("partition_by makes a folder's name of more than %d bytes", maxElement)
			}
			begin = k + 1
		}
	}
	return append(out, '/'), nil
}

// appendPartitionValue writes a value as a part of a folder's name, as Hive does.
func appendPartitionValue(dst []byte, v connectors.Value) ([]byte, error) {
	atStart := len(dst) == 0 || dst[len(dst)-1] == '/'
	if v.IsNull() || v.Kind() == connectors.String && len(v.Raw()) == 0 {
		if atStart {
			return dst, errors.New("there is no value, and a folder needs a name: write name={…} in partition_by")
		}
		return append(dst, nullPartition...), nil
	}
	switch v.Kind() {
	case connectors.String, connectors.Decimal:
		return appendEscaped(dst, v.Raw(), atStart), nil
	case connectors.Int:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case connectors.Bool:
		return strconv.AppendBool(dst, v.Bool()), nil
	case connectors.Float:
		return appendEscaped(dst, strconv.AppendFloat(nil, v.Float(), 'g', -1, 64), atStart), nil
	case connectors.Timestamp:
		return appendEscaped(dst, v.Time().AppendFormat(nil, time.RFC3339Nano), atStart), nil
	case connectors.Duration:
		return appendEscaped(dst, []byte(v.Duration().String()), atStart), nil
	default:
		return dst, fmt.Errorf("%s cannot be a folder's name", v.Kind())
	}
}

// escaped are the bytes, beside those of control characters, that Hive writes as % and
// two digits.
const escaped = "\"#%'*/:=?\\{[]^\x7f"

// appendEscaped escapes what has a meaning in names. At the start of a name that is so
// for a dot and an underscore too: they hide a folder, or lead out of it.
func appendEscaped(dst, text []byte, atStart bool) []byte {
	const hex = "0123456789ABCDEF"
	for i, c := range text {
		if c < ' ' || strings.IndexByte(escaped, c) >= 0 || i == 0 && atStart && (c == '.' || c == '_') {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
