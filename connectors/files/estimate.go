package files

// estimate is how large a file becomes, of whose rows so many bytes are kept. It
// differs where the file is made of them only when it is complete: what those before
// it came to says.
func (s *Sink) estimate(f *form, kept int64) int64 {
	if f.convert == nil {
		return kept
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == 0 {
		return kept
	}
	return int64(float64(kept) * s.made / s.kept)
}

// learn takes what became of a file. Files of the past weigh less and less.
func (s *Sink) learn(f *form, kept, made int64) {
	if f.convert == nil || kept == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = s.kept/2 + float64(kept)
	s.made = s.made/2 + float64(made)
}
