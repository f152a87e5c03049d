package transform

import "slices"

// without is what is known of the rows once a field of theirs has another value:
// if it was part of the key, they have none any more.
func (u *Updates) without(name string) *Updates {
	if u == nil || !slices.Contains(u.Key, name) {
		return u
	}
	return &Updates{Spread: u.Spread}
}

// within is what is known of the rows once they have only these fields.
func (u *Updates) within(names []string) *Updates {
	if u == nil || !slices.ContainsFunc(u.Key, func(k string) bool { return !slices.Contains(names, k) }) {
		return u
	}
	return &Updates{Spread: u.Spread}
}

// renamed is what is known of the rows once a field has another name.
func (u *Updates) renamed(from, to string) *Updates {
	if u == nil {
		return nil
	}
	rename := func(names []string) []string {
		names = slices.Clone(names)
		if i := slices.Index(names, from); i >= 0 {
			names[i] = to
		}
		return names
	}
	return &Updates{Key: rename(u.Key), Spread: rename(u.Spread)}
}
