package spec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"slices"
)

// Fingerprint is the SHA-256, in hex, of what Digest covers and of the secrets: two
// definitions of the same fingerprint run the same.
func (p *Pipeline) Fingerprint() string {
	h := sha256.New()
	_, _ = io.WriteString(h, p.Digest()) // a hash takes everything
	for _, s := range p.secrets {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		_, _ = io.WriteString(h, s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Written is the text of the file, with the secrets in it replaced by ***.
func (p *Pipeline) Written() string {
	text := p.file.text
	masks := slices.Clone(p.file.masks)
	slices.SortFunc(masks, func(a, b span) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, m := range masks {
		if m.start < at || m.end > len(text) {
			continue // it lies in the one before
		}
		out = append(append(out, text[at:m.start]...), hidden...)
		at = m.end
	}
	return p.Mask(string(append(out, text[at:]...)))
}
