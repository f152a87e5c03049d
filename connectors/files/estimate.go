package files

// estimate is how large a file becomes. What is kept of its rows differs from it where the
// file is made of them only when it is complete: what those before it came to says then.
func (s *Sink) estimate(p *part) int64 {
	if p.form.convert == nil {
		return p.size
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.rows > 0:
		return int64(float64(p.raw) * s.made / s.rows)
	case s.config.compression() == compressionNone:
		return p.raw
	}
	return p.size // it is compressed too
}

// learn takes what became of a file. Files of the past weigh less and less.
func (s *Sink) learn(p *part) {
	if p.form.convert == nil || p.raw == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = s.rows/2 + float64(p.raw)
	s.made = s.made/2 + float64(p.staged.Size)
}

// ratio is what has been learned, for the next process; 0 for nothing.
func (s *Sink) ratio() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == 0 {
		return 0
	}
	return s.made / s.rows
}

// relearn takes over what an earlier process has learned.
func (s *Sink) relearn(ratio float64) {
	if ratio > 0 {
		s.rows, s.made = 1, ratio
	}
}
