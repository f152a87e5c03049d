package web

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Token is a secret that tells who asks, and what they may do.
type Token struct {
	Name string // for events and the audit log
	Role Role
	// Secret is the token, ${NAME} for that of a variable of the environment, or
	// ${file:PATH} as File.
	Secret Secret
	// File has the token, or several, one in each line, so that a new one can be brought
	// in before the old one is dropped. It is read again by Server.Reload.
	File string
}

// Secret is text that is never shown.
type Secret string

// String shows that there is a secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "***"
}

// GoString is as String, for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText is as String, for JSON and logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// hash is what a token is compared by.
func (s Secret) hash() [sha256.Size]byte { return sha256.Sum256([]byte(s)) }

// leastToken is how many characters a token has at least: a random one of that length
// is not guessed.
const leastToken = 20

// checkToken refuses text that is no token, without showing it.
func checkToken(s Secret) error {
	switch {
	case len(s) < leastToken:
		return fmt.Errorf("the token has %d characters, and at least %d are wanted: make one with openssl rand -base64 32", len(s), leastToken)
	case strings.ContainsFunc(string(s), func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token holds characters that no header can carry: make one with openssl rand -base64 32")
	}
	return nil
}

var (
	variable     = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)
	fileVariable = regexp.MustCompile(`^\$\{file:([^}]+)\}$`)
)

// check reports what is wrong with how a token is given, without looking for it.
func (t *Token) check() error {
	switch {
	case (t.Secret == "") == (t.File == ""):
		return errors.New("write either token, as ${NAME} or ${file:PATH}, or token_file")
	case t.File != "", variable.MatchString(string(t.Secret)), fileVariable.MatchString(string(t.Secret)):
		return nil
	}
	return checkToken(t.Secret)
}

// secrets are the tokens that count now.
func (t *Token) secrets() ([]Secret, error) {
	if t.File != "" {
		return readTokens(t.File)
	}
	if m := fileVariable.FindStringSubmatch(string(t.Secret)); m != nil {
		return readTokens(m[1])
	}
	m := variable.FindStringSubmatch(string(t.Secret))
	if m == nil {
		return []Secret{t.Secret}, nil
	}
	value, ok := os.LookupEnv(m[1])
	if !ok {
		return nil, fmt.Errorf("the environment variable %s is not set", m[1])
	}
	s := Secret(strings.TrimSpace(value))
	if err := checkToken(s); err != nil {
		return nil, fmt.Errorf("environment variable %s: %w", m[1], err)
	}
	return []Secret{s}, nil
}

// mostTokenFile bounds the file of a token, in bytes.
const mostTokenFile = 64 << 10

// readTokens reads a file with a token in each line.
func readTokens(path string) ([]Secret, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read token_file: %w", err)
	}
	if len(data) > mostTokenFile {
		return nil, fmt.Errorf("read token_file: %s is larger than %d bytes", path, mostTokenFile)
	}
	var out []Secret
	for line := range strings.Lines(string(data)) {
		s := Secret(strings.TrimSpace(line))
		if s == "" {
			continue
		}
		if err := checkToken(s); err != nil {
			return nil, fmt.Errorf("token_file %s: %w", path, err)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("token_file %s is empty", path)
	}
	return out, nil
}
