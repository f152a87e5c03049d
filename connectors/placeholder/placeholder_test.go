package placeholder_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/placeholder"
)

func TestTextsWithPlaces(t *testing.T) {
	i, s := connectors.IntValue, connectors.StringValue
	at := connectors.TimestampValue(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	tests := []struct {
		name, text  string
		values      []connectors.Value
		plain, json string
	}{
		{"no place", "abc", []connectors.Value{i(1), i(2)}, "abc", "abc"},
		{"two", "/{a}/x/{b-c}", []connectors.Value{i(1), s("q")}, "/1/x/q", `/1/x/"q"`},
		{"braces around a place", "u:{{a}}:x", []connectors.Value{i(1), i(2)}, "u:{1}:x", "u:{1}:x"},
		{"JSON around places", `{"id": {a}, "l": [{b-c}], "o": {}}`, []connectors.Value{s(`x"y`), i(2)}, `{"id": x"y, "l": [2], "o": {}}`, `{"id": "x\"y", "l": [2], "o": {}}`},
		{"a value that looks like a place", "{a}{b-c}", []connectors.Value{s("{b-c}"), i(2)}, "{b-c}2", `"{b-c}"2`},
		{"a time and a truth value", "{a} {b-c}", []connectors.Value{at, connectors.BoolValue(true)}, "2026-01-02T03:04:05Z true", `"2026-01-02T03:04:05Z" true`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text, err := placeholder.Parse(tt.text, []string{"a", "b-c"})
			if err != nil {
				t.Fatal(err)
			}
			plain, err := text.Fill(tt.values, placeholder.Plain)
			if err != nil || plain != tt.plain {
				t.Errorf("plain %s, %v", plain, err)
			}
			json, err := text.Fill(tt.values, placeholder.JSON)
			if err != nil || json != tt.json {
				t.Errorf("JSON %s, %v", json, err)
			}
		})
	}
	if _, err := placeholder.Parse("{user_i}", []string{"user_id"}); err == nil || !strings.Contains(err.Error(), "did you mean {user_id}?") {
		t.Errorf("error %v", err)
	}
}
