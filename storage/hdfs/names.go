package hdfs

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"github.com/sluice-etl/sluice/storage"
)

// Hidden files: those being written, which a crash leaves behind, and staged ones.
// A staged file is called stagedPrefix, its token, tokenEnd, and the last element
// of the name that it will have.
const (
	tempPrefix   = storage.HiddenPrefix + "new-"
	stagedPrefix = storage.HiddenPrefix + "staged-"
	tokenEnd     = "~"
	tokenLen     = 16
)

func token() string {
	var b [tokenLen / 2]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func validToken(s string) bool {
	return len(s) == tokenLen && strings.Trim(s, "0123456789abcdef") == ""
}

// encode makes a name that HDFS takes. It refuses colons, which become %3A, as in
// the partition folders of Hive; so that every name has one spelling, a percent
// sign in front of 3A or 25 becomes %25.
func encode(name string) string {
	if !strings.ContainsAny(name, ":%") {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c == ':':
			b.WriteString("%3A")
		case c == '%' && (strings.HasPrefix(name[i+1:], "3A") || strings.HasPrefix(name[i+1:], "25")):
			b.WriteString("%25")
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

var decoder = strings.NewReplacer("%3A", ":", "%25", "%")

// decode is the reverse of encode.
func decode(name string) string { return decoder.Replace(name) }
