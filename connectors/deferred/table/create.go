package table

import "github.com/sluice-etl/sluice/connectors/columns"

// Create says whether a table is made, and with which columns.
type Create struct {
	On      bool
	Columns columns.List // none for those of the rows
}

// UnmarshalConfig reads true, false or a list of columns.
func (c *Create) UnmarshalConfig(v any) error {
	if on, ok := v.(bool); ok {
		c.On = on
		return nil
	}
	c.On = true
	return c.Columns.UnmarshalConfig(v)
}
