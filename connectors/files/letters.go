package files

import "github.com/sluice-etl/sluice/connectors"

// letters makes the source that reads the files that a sink has published.
func (c *SinkConfig) letters() (connectors.ReadBack, error) {
	src := newSourceConfig(c.kind).(*SourceConfig)
	src.Path, src.Format = c.Path, c.Format
	s, err := NewSource(*src)
	return connectors.ReadBack{Source: s}, err
}
