package expr

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

func init() {
	define(
		function{Function: doc("parse_json(text string) any", "reads JSON text", `parse_json("{\"a\": [1]}").a[0]`, `1`), run1: parseJSON},
		function{Function: doc("fromJSON(text string) any", "reads JSON text, as parse_json() does", `fromJSON("[1, 2]")`, `[1, 2]`), run1: parseJSON},
		function{Function: doc("to_json(value any) string", "writes a value as JSON text", `to_json({a: "b"})`, `"{\"a\":\"b\"}"`), run1: toJSON},
		function{Function: doc("toJSON(value any) string", "writes a value as JSON text over several lines", `toJSON([1])`, `"[\n  1\n]"`), run1: toIndented},
		function{Function: doc("toBase64(value string|bytes) string", "writes text or bytes in base64", `toBase64("ab")`, `"YWI="`), run1: toBase64},
		function{Function: doc("fromBase64(text string) string|bytes", "reads base64; gives bytes where they are not text", `fromBase64("YWI=")`, `"ab"`), run1: fromBase64},
		function{Function: doc("xxh64(value string|bytes) int", "gives the XXH64 hash of text or bytes, with seed 0, as a signed int", `xxh64("a")`, `-3292477735350538661`),
			run1: func(_ *Env, _ *site, v connectors.Value) connectors.Value {
				return connectors.IntValue(int64(xxhash.Sum64(v.Raw())))
			}},
		function{Function: doc("sha256(value string|bytes) string", "gives the SHA-256 hash of text or bytes, in hexadecimal", `sha256("")`, `"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`), run1: sha256Hex},
		function{Function: doc("uuid() string", "makes a random UUID (version 4), another one each time", `len(uuid())`, `36`), changing: true, run: uuid},
	)
}

func parseJSON(e *Env, s *site, v connectors.Value) connectors.Value {
	if !e.step(s, len(v.Raw())/regexSteps) {
		return failure
	}
	out, err := format.ParseValue(v.Raw(), e.arena())
	if err != nil {
		return e.fail(s, KindArgument, "the text is no valid JSON: "+err.Error())
	}
	return out
}

func toJSON(e *Env, s *site, v connectors.Value) connectors.Value {
	switch v.Kind() {
	case connectors.List, connectors.Map, connectors.Decimal:
		return connectors.StringValue(v.Text())
	default:
	}
	start := len(e.scratch)
	out, err := format.AppendValue(e.scratch, v)
	if err != nil {
		return e.fail(s, KindOverflow, err.Error())
	}
	text := e.keep(s, stringOf(out[start:]))
	e.scratch = out[:start]
	return text
}

func toIndented(e *Env, s *site, v connectors.Value) connectors.Value {
	text := toJSON(e, s, v)
	if text.Kind() == failed {
		return text
	}
	// Indentation grows with the square of the nesting.
	if depth := nesting(text.Raw()); !e.spend(s, len(text.Raw())*(1+2*depth)) {
		return failure
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text.Raw(), "", "  "); err != nil {
		return e.fail(s, KindArgument, "the value is no valid JSON")
	}
	return e.keep(s, out.String())
}

func nesting(text []byte) int {
	depth, most := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i) - 1
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

func toBase64(e *Env, s *site, v connectors.Value) connectors.Value {
	n := base64.StdEncoding.EncodedLen(len(v.Raw()))
	if !e.spend(s, n) {
		return failure
	}
	a := e.arena()
	return connectors.TextValue(connectors.String, a.Keep(base64.StdEncoding.AppendEncode(a.Grow(n), v.Raw())))
}

func fromBase64(e *Env, s *site, v connectors.Value) connectors.Value {
	n := base64.StdEncoding.DecodedLen(len(v.Raw()))
	if !e.spend(s, n) {
		return failure
	}
	a := e.arena()
	out, err := base64.StdEncoding.AppendDecode(a.Grow(n), v.Raw())
	if err != nil {
		return e.fail(s, KindArgument, "the text is not base64")
	}
	if out = a.Keep(out); len(out) == 0 {
		return connectors.StringValue("")
	}
	return textOrBytes(out)
}

func sha256Hex(e *Env, s *site, v connectors.Value) connectors.Value {
	sum := sha256.Sum256(v.Raw())
	a := e.arena()
	return connectors.TextValue(connectors.String, a.Keep(hex.AppendEncode(a.Grow(2*len(sum)), sum[:])))
}

func uuid(e *Env, _ *site, _ []connectors.Value) connectors.Value {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	a := e.arena()
	out := a.Grow(36)
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			out = append(out, '-')
		}
		out = hex.AppendEncode(out, part)
	}
	return connectors.TextValue(connectors.String, a.Keep(out))
}
