package pipeline

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/schema"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// declare makes the view of a source's records from what the file says of them.
func (b *planner) declare(c *chain, s *spec.Source) {
	if _, err := format.NewInput(s.Format); err != nil {
		b.fault(s.ConfigPath(), err)
	}
	if s.Schema != nil {
		c.view, c.source.check = transform.Declare(c.base, s.Schema)
	} else if t := transform.FormatType(s.Format); t != nil {
		c.view = transform.Known(c.base, t)
	}
	if key, ok := format.Updates(s.Format); ok {
		c.view = c.view.Updating(key)
	}
}

func viewsOf(ins []input) []*transform.View {
	views := make([]*transform.View, len(ins))
	for i, in := range ins {
		views[i] = in.view
	}
	return views
}

// conforming leaves out the rows that violate the source's schema, and turns the
// fields of the others into what they are declared as.
func (t *task) conforming(b *connectors.Batch, rows []uint16) []uint16 {
	if t.chain.source == nil || t.chain.source.check == nil {
		return rows
	}
	ok := rows[:0]
	for _, row := range rows {
		if !b.Records[row].Tombstone() {
			if wrong := t.chain.source.check.Check(b, int(row)); wrong != "" {
				t.refused = append(t.refused, refusal{row, recordError(b, row, t.chain.name, "schema", wrong)})
				continue
			}
		}
		ok = append(ok, row)
	}
	return ok
}

// newDecoder makes the decoder of a chain's fields. But in a source that checks
// its records as a whole, fields that are declared are turned into what they are
// declared as each time they are decoded.
func (c *chain) newDecoder(cfg connectors.FormatConfig) (format.Decoder, error) {
	d, err := format.NewDecoder(cfg, c.base.Fields(), c.editsSinks())
	if err != nil || c.source != nil && c.source.check != nil || len(c.base.Conversions()) == 0 {
		return d, err
	}
	return &declaredDecoder{Decoder: d, fields: c.base.Conversions()}, nil
}

type declaredDecoder struct {
	format.Decoder
	fields []transform.Conversion
}

// Decode implements format.Decoder. What cannot be turned into what it is declared
// as stays as it is: the source has checked it, and a step has changed it since.
func (d *declaredDecoder) Decode(b *connectors.Batch, sel []uint16, fail func(row uint16, err *format.SyntaxError)) []uint16 {
	rows := d.Decoder.Decode(b, sel, fail)
	for _, row := range rows {
		slots := b.Row(int(row))
		for _, c := range d.fields {
			schema.Convert(c.Type, &slots[c.Slot], &b.Arena)
		}
	}
	return rows
}
