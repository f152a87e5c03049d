package redis

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at opens a lookup of user:{id} at a server.
func at(t *testing.T, address string, change func(*LookupConfig)) (*Lookup, error) {
	t.Helper()
	c := newLookupConfig().(*LookupConfig)
	c.Addresses, c.Key = []string{address}, "user:{id}"
	if change != nil {
		change(c)
	}
	l, err := NewLookup(*c, []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Open(t.Context(), connectors.LookupEnv{Log: slog.New(slog.DiscardHandler), Concurrency: 4, Timeout: 5 * time.Second})
}

// find asks for keys in one call, and writes the answers down.
func find(ctx context.Context, l *Lookup, keys ...connectors.Value) (rows []string, err error) {
	asked, answers := make([]connectors.LookupKey, len(keys)), make([]connectors.Answer, len(keys))
	for i, k := range keys {
		asked[i].Values = []connectors.Value{k}
	}
	err = l.Find(ctx, asked, answers)
	for _, a := range answers {
		if a.Err != nil {
			rows = append(rows, "failed: "+a.Err.Error())
		} else {
			rows = append(rows, string(a.Row))
		}
	}
	return rows, err
}

func TestLookupReadsWhatIsKept(t *testing.T) {
	server := miniredis.RunT(t)
	_ = server.Set("user:1", `{"name": "a", "n": 1.10}`)
	_ = server.Set("user:x", ` null `)
	_ = server.Set("user:2", `[1]`)
	_ = server.Set("user:3", `secret`)
	_ = server.Set("user:4", `{"x":"`+strings.Repeat("y", 2000)+`"}`)
	server.HSet("user:5", "b", `q"`, "a", "1")
	i, s := connectors.IntValue, connectors.StringValue
	tests := []struct {
		typ  string
		keys []connectors.Value
		want []string
	}{
		{typeJSON, []connectors.Value{i(1), i(99), s("x"), i(2), i(3), i(4), i(5), s("1")}, []string{
			`{"name": "a", "n": 1.10}`, ``, ``,
			"failed: what is kept under the key is no object but of type list",
			"failed: what is kept under the key is no JSON",
			"failed: the row is larger than 1000B (max_value)",
			"failed: what is kept under the key is of another type: the key type says which one is wanted",
			`{"name": "a", "n": 1.10}`,
		}},
		{typeHash, []connectors.Value{i(5), i(99), i(1)}, []string{`{"a":"1","b":"q\""}`, ``, "failed: what is kept under the key is of another type"}},
		{typeString, []connectors.Value{i(3), i(99)}, []string{`{"value":"secret"}`, ``}},
	}
	for _, tt := range tests {
		t.Run(tt.typ, func(t *testing.T) {
			l, err := at(t, server.Addr(), func(c *LookupConfig) { c.Type, c.MaxValue = tt.typ, 1000 })
			if err != nil {
				t.Fatal(err)
			}
			rows, err := find(t.Context(), l, tt.keys...)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tt.want {
				if rows[i] != tt.want[i] && (tt.want[i] == "" || !strings.HasPrefix(rows[i], tt.want[i])) {
					t.Errorf("key %d: %s, want %s", i, rows[i], tt.want[i])
				}
				if strings.Contains(rows[i], "failed") && strings.Contains(rows[i], "secret") {
					t.Errorf("key %d: %s shows record data", i, rows[i])
				}
			}
		})
	}
}

func TestLookupProvesWhoItIs(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("right")
	for _, password := range []string{"", "wrong"} {
		if _, err := at(t, server.Addr(), func(c *LookupConfig) { c.Password = password }); !connectors.IsPermanent(err) {
			t.Errorf("password %q: error %v", password, err)
		}
	}
	if _, err := at(t, server.Addr(), func(c *LookupConfig) { c.Password = "right" }); err != nil {
		t.Error(err)
	}
}

func TestLookupFaultsThatPass(t *testing.T) {
	server := miniredis.RunT(t)
	_ = server.Set("user:1", `{}`)
	l, err := at(t, server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"LOADING Redis is loading the dataset in memory", "CLUSTERDOWN The cluster is down", "READONLY"} {
		server.SetError(text)
		if _, err := find(t.Context(), l, connectors.IntValue(1)); err == nil || connectors.IsPermanent(err) {
			t.Errorf("%s: error %v", text, err)
		}
	}
	server.SetError("NOPERM no permission")
	if _, err := find(t.Context(), l, connectors.IntValue(1)); !connectors.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
	server.SetError("")
	if rows, err := find(t.Context(), l, connectors.IntValue(1)); err != nil || rows[0] != "{}" {
		t.Errorf("rows %v, error %v", rows, err)
	}
	server.Close()
	if _, err := find(t.Context(), l, connectors.IntValue(1)); err == nil || connectors.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if rows, err := find(t.Context(), l, connectors.IntValue(1)); err != nil || rows[0] != "{}" {
		t.Errorf("rows %v, error %v", rows, err)
	}
}

func TestLookupConfigurationThatCannotWorkIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*LookupConfig)
		want   string
	}{
		{"no address", func(c *LookupConfig) { c.Addresses = nil }, "addresses"},
		{"an address without a port", func(c *LookupConfig) { c.Addresses = []string{"host"} }, "host:port"},
		{"several servers", func(c *LookupConfig) { c.Addresses = []string{"a:1", "b:1"} }, "cluster: true"},
		{"a cluster with sentinels", func(c *LookupConfig) { c.Cluster, c.Master = true, "m" }, "sentinels"},
		{"a database of a cluster", func(c *LookupConfig) { c.Cluster, c.Database = true, 1 }, "0 only"},
		{"a user without a password", func(c *LookupConfig) { c.Username = "u" }, "password"},
		{"another column", func(c *LookupConfig) { c.Key = "user:{code}" }, "{code} is no column of on"},
		{"a column not used", func(c *LookupConfig) { c.Key = "user" }, "does not use it"},
		{"half a certificate", func(c *LookupConfig) { c.TLS.Key = "x" }, "belong together"},
		{"no keys", func(c *LookupConfig) { c.MaxKeys = 0 }, "max_keys"},
		{"no value", func(c *LookupConfig) { c.MaxValue = 0 }, "max_value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newLookupConfig().(*LookupConfig)
			c.Addresses, c.Key = []string{"localhost:6379"}, "user:{id}"
			tt.change(c)
			if _, err := NewLookup(*c, []string{"id"}); err == nil || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}
