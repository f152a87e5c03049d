package spec

import (
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// joinColons mends what the lexer takes apart: within braces it ends a plain
// text at every colon, but YAML does so only where a blank follows, so that
// {brokers: [localhost:9092]} is a list of one text.
func joinColons(tokens token.Tokens) token.Tokens {
	out := make(token.Tokens, 0, len(tokens))
	var open []token.Type
	for i := 0; i < len(tokens); i++ {
		tk := tokens[i]
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, tk.Type)
		case token.MappingEndType, token.SequenceEndType:
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		default:
		}
		if len(open) > 0 && isPlain(tk) && (open[len(open)-1] == token.SequenceStartType || isValue(out)) {
			for i+2 < len(tokens) {
				gap, ok := adjacent(tk, tokens[i+1], tokens[i+2])
				if !ok {
					break
				}
				tk.Value += gap + ":" + tokens[i+2].Value
				tk.Origin += gap + ":" + tokens[i+2].Origin
				tk.Type = token.StringType
				i += 2
			}
		}
		out = append(out, tk)
	}
	if len(out) == len(tokens) {
		return tokens
	}
	for i, tk := range out {
		tk.Prev, tk.Next = nil, nil
		if i > 0 {
			tk.Prev, out[i-1].Next = out[i-1], tk
		}
	}
	return out
}

// isValue reports whether what follows out stands behind the colon of a key.
func isValue(out token.Tokens) bool {
	return len(out) > 0 && out[len(out)-1].Type == token.MappingValueType
}

func isPlain(tk *token.Token) bool {
	switch tk.Type {
	case token.StringType, token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType,
		token.FloatType, token.BoolType, token.NullType, token.InfinityType, token.NanType:
		return true
	default:
		return false
	}
}

// adjacent reports whether three tokens are a text, a colon and a text that
// follows without a blank, and what stands before the colon.
func adjacent(text, colon, next *token.Token) (gap string, ok bool) {
	if colon.Type != token.MappingValueType || !isPlain(next) {
		return "", false
	}
	a, b, c := text.Position, colon.Position, next.Position
	blanks := b.Column - a.Column - utf8.RuneCountInString(text.Value)
	if a.Line != b.Line || b.Line != c.Line || blanks < 0 || b.Column+1 != c.Column {
		return "", false
	}
	return strings.Repeat(" ", blanks), true
}
