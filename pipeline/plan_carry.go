package pipeline

// findCarries finds what each edge hands on in slots rather than as text: the
// fields that steps of the sending chain made and the receiving one reads. So a
// decimal or a timestamp stays what it is.
func (b *planner) findCarries() {
	letters := b.plan.deadLetters()
	for _, c := range b.plan.chains {
		for _, e := range c.in {
			if e.keying != nil {
				if !e.keying.rows {
					continue
				}
				e.keying.letters = e.keying.letters || letters
			}
			made := e.from.Made()
			for _, f := range c.base.Fields() {
				if len(f.Path) != 1 {
					continue
				}
				if ref, ok := made[f.Path[0]]; ok {
					e.carries = append(e.carries, carry{from: ref.Slot, hold: c.base.NewSlot(), to: f.Slot})
				}
			}
		}
	}
}

// carry is one field that travels in a slot: from the sender's slot, held in a
// slot that no decoder fills, to the slot where the receiver reads the field.
type carry struct{ from, hold, to int }
