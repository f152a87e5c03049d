package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxMetadata is the largest `_metadata` that is written or read, in bytes.
const MaxMetadata = 64 << 20

// maxRecord bounds the small documents: owner files and the end of a job.
const maxRecord = 1 << 20

// DamageError says that a file of a checkpoint is not what was written: it is
// missing, cut off, changed, or another one's. Errors of the storage itself, which may
// pass, are never one.
type DamageError struct {
	File string
	Err  error
}

func (e *DamageError) Error() string { return e.File + " is damaged: " + e.Err.Error() }
func (e *DamageError) Unwrap() error { return e.Err }

func isDamage(err error) bool {
	var d *DamageError
	return errors.As(err, &d)
}

// trailer is the end of a sealed document: the last member of its object, the
// checksum of all bytes before it. Its spelling is fixed, so that every byte of
// the document is either hashed or compared.
func trailer(body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(",\n\"checksum\":\"sha256:" + hex.EncodeToString(sum[:]) + "\"}\n")
}

var trailerLen = len(trailer(nil))

// seal encodes v, a struct with at least one member, as a JSON document that ends
// in its own checksum.
func seal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	return append(body, trailer(body)...), nil
}

// unseal checks the checksum and decodes the document into v, which must know
// every member of it.
func unseal(data []byte, v any) error {
	body, err := unsealed(data)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(io.MultiReader(bytes.NewReader(body), bytes.NewReader([]byte("}"))))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode: more follows the document")
	}
	return nil
}

func unsealed(data []byte) ([]byte, error) {
	if len(data) <= trailerLen {
		return nil, fmt.Errorf("it is cut off: %d bytes are left", len(data))
	}
	body, end := data[:len(data)-trailerLen], data[len(data)-trailerLen:]
	if !bytes.Equal(end, trailer(body)) {
		return nil, errors.New("its checksum does not match its content")
	}
	return body, nil
}

// Encode is the content of `_metadata`: a JSON document whose last member is the
// SHA-256 of every byte before it. Metadata that Decode would refuse is an error.
func (m *Metadata) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("encode checkpoint %d: %w", m.Number, err)
	}
	data, err := seal(m)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint %d: %w", m.Number, err)
	}
	if len(data) > MaxMetadata {
		return nil, fmt.Errorf("encode checkpoint %d: its metadata has %d bytes, more than the %d allowed", m.Number, len(data), MaxMetadata)
	}
	return data, nil
}

// Decode reads what Encode wrote. It finds every changed, missing and added byte,
// and refuses a format that is newer than this program.
func Decode(data []byte) (*Metadata, error) {
	if len(data) > MaxMetadata {
		return nil, fmt.Errorf("it has %d bytes, more than the %d allowed", len(data), MaxMetadata)
	}
	body, err := unsealed(data)
	if err != nil {
		return nil, err
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(append(bytes.Clone(body), '}'), &version); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if version.Format > FormatVersion {
		return nil, &VersionError{Format: version.Format}
	}
	m := &Metadata{}
	if err := unseal(data, m); err != nil {
		return nil, err
	}
	return m, m.Validate()
}

// VersionError says that a newer program wrote a checkpoint.
type VersionError struct{ Format int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("it was written by a newer program: its format is %d and this program reads up to %d; upgrade, or restore an older checkpoint", e.Format, FormatVersion)
}
