package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLookupConfigurationThatCannotWorkIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*LookupConfig)
		want   string
	}{
		{"no address", func(c *LookupConfig) { c.URL = "postgres://user:secret@host:port" }, "no address of PostgreSQL"},
		{"nothing to ask", func(c *LookupConfig) { c.Table = "" }, "no table and no query"},
		{"both", func(c *LookupConfig) { c.Query = "SELECT 1" }, "exclude each other"},
		{"columns of a query", func(c *LookupConfig) { c.Table, c.Query, c.Columns = "", "SELECT 1", []string{"a"} }, "the query says"},
		{"a dot at the end", func(c *LookupConfig) { c.Table = "shop." }, "no name"},
		{"a column twice", func(c *LookupConfig) { c.Columns = []string{"a", "a"} }, "twice"},
		{"too many keys", func(c *LookupConfig) { c.MaxKeys = 5000 }, "max_keys"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newLookupConfig().(*LookupConfig)
			c.URL, c.Table = "postgres://localhost/x", "t"
			tt.change(c)
			_, err := NewLookup(*c, []string{"id"})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestLookupComparesValuesOfTheRightKindOnly(t *testing.T) {
	i, s := connectors.IntValue(7), connectors.StringValue
	tests := []struct {
		name   string
		column column
		value  connectors.Value
		want   string // empty for none that can be equal
	}{
		{"an int", column{typ: "bigint", category: 'N'}, i, "7"},
		{"a fraction as an int", column{typ: "bigint", category: 'N'}, connectors.FloatValue(7.5), ""},
		{"a text as an int", column{typ: "bigint", category: 'N'}, s("7"), ""},
		{"a fraction as a number", column{typ: "numeric", category: 'N'}, connectors.FloatValue(7.5), "7.5"},
		{"a decimal", column{typ: "numeric", category: 'N'}, connectors.DecimalValue("12345678901234567890.5"), "12345678901234567890.5"},
		{"a number as a text", column{typ: "text", category: 'S'}, i, ""},
		{"a text", column{typ: "text", category: 'S'}, s("a'b"), "a'b"},
		{"a text that the database cannot hold", column{typ: "text", category: 'S'}, s("a\x00"), ""},
		{"a bool", column{typ: "boolean", category: 'B'}, connectors.BoolValue(true), "true"},
		{"a uuid", column{typ: "uuid", category: 'U'}, s("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
		{"no uuid", column{typ: "uuid", category: 'U'}, s("x"), ""},
		{"bytes", column{typ: "bytea", category: 'U'}, connectors.BytesValue([]byte{1, 0xff}), `\x01ff`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok, err := tt.column.value(tt.value)
			if err != nil || ok != (tt.want != "") || got != tt.want {
				t.Errorf("%q, %v, %v", got, ok, err)
			}
		})
	}
}

func TestLookupKnowsWhichFaultsPass(t *testing.T) {
	for code, permanent := range map[string]bool{
		"28P01": true, "3D000": true, "42P01": true, "42501": true, "25006": true,
		"57P01": false, "57P03": false, "53300": false, "08006": false, "40001": false, "57014": false, "0A000": false, "42P05": false, "26000": false,
	} {
		if got := connectors.IsPermanent(classify(&pgconn.PgError{Code: code})); got != permanent {
			t.Errorf("%s: permanent %v", code, got)
		}
	}
}
