package files

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/compress"
)

// laidOut are the formats that this package writes and reads itself, beside json, of
// rows that are JSON for the rest of the program. Values of raw are lines of any text.
var laidOut = []string{}

func recordFormat(c connectors.FormatConfig) connectors.FormatConfig {
	if slices.Contains(laidOut, c.Name) {
		return connectors.FormatConfig{Name: formatJSON}
	}
	return c
}

func (f *faults) sinkFormat(c *SinkConfig) {
	if !slices.Contains(append([]string{formatJSON, formatRaw}, laidOut...), c.Format.Name) {
		f.add("format", fmt.Sprintf("%q is no format of files", c.Format.Name), "write json, "+strings.Join(append(laidOut, formatRaw), ", "))
		return
	}
	if c.Compression != compressionAuto && !slices.Contains(compress.Names, c.Compression) {
		f.add("compression", fmt.Sprintf("%s files have no %q", c.Format.Name, c.Compression), "write auto, "+strings.Join(compress.Names, ", "))
	}
}

func (f *faults) sourceFormat(c *SourceConfig) {
	if !slices.Contains(append([]string{formatJSON, formatRaw, "debezium"}, laidOut...), c.Format.Name) {
		f.add("format", fmt.Sprintf("%q is no format of files", c.Format.Name), "write json, "+strings.Join(append(laidOut, formatRaw), ", "))
	}
}
