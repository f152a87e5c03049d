//go:build integration

package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-etl/sluice/connectors"
)

// service runs a command of the script that the server was started with.
func service(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("../../deploy/services/redis.sh", command).CombinedOutput(); err != nil {
		t.Fatalf("redis.sh %s: %v\n%s", command, err, out)
	}
}

func realAddress(t *testing.T) string {
	t.Helper()
	address := os.Getenv("REDIS_ADDR")
	if address == "" {
		t.Fatal("REDIS_ADDR is not set: run make integration")
	}
	return address
}

func TestRealServerLookup(t *testing.T) {
	address := realAddress(t)
	client := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	var keys []connectors.Value
	var want []string
	for i := range 600 {
		keys = append(keys, connectors.IntValue(int64(i)))
		if i%3 == 0 {
			want = append(want, "")
			continue
		}
		want = append(want, fmt.Sprintf(`{"n":%d}`, i))
		if err := client.Set(t.Context(), fmt.Sprintf("lookup-test:%d", i), want[i], time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for i := range keys {
			_ = client.Del(context.Background(), fmt.Sprintf("lookup-test:%d", i)).Err()
		}
	})
	l, err := at(t, address, func(c *LookupConfig) { c.Key = "lookup-test:{id}" })
	if err != nil {
		t.Fatal(err)
	}
	ask := func(wait time.Duration) ([]string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return find(ctx, l, keys...)
	}
	right := func() {
		t.Helper()
		rows, err := ask(10 * time.Second)
		if err != nil || !slices.Equal(rows, want) {
			t.Errorf("error %v, rows %.200v", err, rows)
		}
	}
	right()

	service(t, "kill")
	t.Cleanup(func() { service(t, "start") })
	if _, err := ask(2 * time.Second); err == nil || connectors.IsPermanent(err) {
		t.Errorf("without a server: error %v", err)
	}
	service(t, "restart")
	right()

	service(t, "pause")
	_, err = ask(300 * time.Millisecond)
	service(t, "resume")
	if err == nil || connectors.IsPermanent(err) {
		t.Errorf("with a server that hangs: error %v", err)
	}
	right()
}

func TestRealServerKeepsTheContract(t *testing.T) { suite(t, realAddress) }

func TestRealServerTakesWhatRecordsDo(t *testing.T) { whatRecordsDo(t, realAddress(t)) }

func TestRealServerThatIsKilledWhileItIsWrittenTo(t *testing.T) {
	address := realAddress(t)
	w := sending(t, address, nil, func(c *SinkConfig) { c.Key, c.Batch.Records = template("killed:{a}"), 50 })
	if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
		t.Fatal(err)
	}
	service(t, "kill")
	done := make(chan error, 1)
	go func() { done <- w.Write(t.Context(), rows(many(200)...)) }()
	service(t, "restart")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	for i := range 10 {
		key := fmt.Sprint("killed:", i)
		if got := client.GetDel(t.Context(), key).Val(); got != fmt.Sprint(190+i) {
			t.Errorf("key %d is %s", i, got)
		}
	}
}

func TestRealServerWithoutMemoryIsWaitedFor(t *testing.T) {
	address := realAddress(t)
	client := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	full := func(bytes string) {
		if err := client.ConfigSet(context.Background(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w := sending(t, address, nil, func(c *SinkConfig) { c.Key = template("full:{a}") })
	full("1")
	defer full("0")
	done := make(chan error, 1)
	go func() { done <- w.Write(t.Context(), rows(many(10)...)) }()
	select {
	case err := <-done:
		t.Fatalf("the write ended: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	full("0")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if got := client.GetDel(t.Context(), fmt.Sprint("full:", i)).Val(); got != fmt.Sprint(i) {
			t.Errorf("key %d is %s", i, got)
		}
	}
}
