//go:build integration

package s3_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// need is a variable that deploy/services/s3.sh env gives.
func need(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf(`%s is not set: start a server with deploy/services/s3.sh start and eval "$(deploy/services/s3.sh env)"`, name)
	}
	return v
}

var prefixes atomic.Int64

// address is a place of the real server that no other test uses.
func address(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("s3://%s/storage-test/%d-%d", need(t, "S3_BUCKET"), time.Now().UnixNano(), prefixes.Add(1))
}

// server is how the real server is reached. Of each id there is a client of its own,
// as in another process.
func server(t testing.TB, id int) s3.Config {
	t.Helper()
	c := small()
	c.Endpoint = need(t, "S3_ENDPOINT")
	c.Concurrency += id
	need(t, "AWS_SECRET_ACCESS_KEY")
	t.Cleanup(s3.CloseIdle)
	return c
}

// openAt opens an address, and removes all that is in it at the end of the test.
func openAt(t testing.TB, address string, cfg s3.Config) storage.FS {
	t.Helper()
	f, err := s3.New(address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		at := strings.LastIndex(address, "/")
		if up, err := s3.New(address[:at], cfg); err == nil {
			_ = up.RemoveAll(context.Background(), address[at+1:])
		}
	})
	return f
}

func TestARealServerKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS { return openAt(t, address(t), server(t, 0)) })
}

func TestARealServerKeepsTheContractWithAllChecksums(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS {
		c := server(t, 0)
		c.Checksums = "when_supported"
		return openAt(t, address(t), c)
	})
}

func TestARealServerKeepsTheContractByTheEnvironmentAlone(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_S3", need(t, "S3_ENDPOINT"))
	t.Cleanup(s3.CloseIdle)
	f, err := storage.Open(address(t))
	must(t, err)
	can, err := storage.Probe(t.Context(), f)
	must(t, err)
	if !can.Exclusive {
		t.Fatalf("found %+v", can)
	}
	must(t, f.Claim(t.Context(), "x"))
	must(t, f.Remove(t.Context(), "x"))
}

func TestProcessesThatRaceForANameOnARealServer(t *testing.T) {
	at := address(t)
	var all []storage.FS
	for id := range 4 {
		all = append(all, openAt(t, at, server(t, id)))
	}
	race := func(do func(f storage.FS, i int) error) (won int) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range 16 {
			wg.Go(func() {
				err := do(all[i%len(all)], i)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("a loser got %v", err)
				}
			})
		}
		wg.Wait()
		return won
	}
	for round := range 5 {
		claim, file, large, rows := fmt.Sprintf("claim%d", round), fmt.Sprintf("file%d", round), fmt.Sprintf("large%d", round), fmt.Sprintf("rows%d", round)
		staged := make([]storage.Staged, 16)
		for i := range staged {
			staged[i] = stage(t, all[0], rows, []byte{byte(i)})
		}
		for what, do := range map[string]func(f storage.FS, i int) error{
			"claims":  func(f storage.FS, _ int) error { return f.Claim(t.Context(), claim) },
			"creates": func(f storage.FS, i int) error { return storage.WriteFile(t.Context(), f, file, []byte{byte(i)}) },
			"uploads": func(f storage.FS, i int) error {
				return storage.WriteFile(t.Context(), f, large, pattern(5<<20+1+i))
			},
			"publications": func(f storage.FS, i int) error { return f.Publish(t.Context(), staged[i]) },
		} {
			if won := race(do); won != 1 {
				t.Errorf("%d of 16 %s succeeded", won, what)
			}
		}
	}
}

func TestALargeFileOnARealServer(t *testing.T) {
	f := openAt(t, address(t), server(t, 0))
	const size = 120<<20 + 12345
	source := rand.NewChaCha8([32]byte{1})
	sum := crc32.NewIEEE()
	w, err := f.Create(t.Context(), "large")
	must(t, err)
	_, err = io.CopyN(io.MultiWriter(w, sum), source, size)
	must(t, err)
	if _, err := f.Stat(t.Context(), "large"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before it is closed: %v", err)
	}
	must(t, w.Close())
	r, err := f.Open(t.Context(), "large")
	must(t, err)
	defer func() { must(t, r.Close()) }()
	got := crc32.NewIEEE()
	if n, err := io.Copy(got, r); err != nil || n != size || got.Sum32() != sum.Sum32() {
		t.Fatalf("read back are %d bytes, sum %x instead of %x, %v", n, got.Sum32(), sum.Sum32(), err)
	}
	whole := make([]byte, size)
	var wg sync.WaitGroup
	for off := 0; off < size; off += 16 << 20 {
		wg.Go(func() {
			if _, err := r.ReadAt(whole[off:min(size, off+16<<20)], int64(off)); err != nil {
				t.Errorf("read at %d: %v", off, err)
			}
		})
	}
	wg.Wait()
	if crc32.ChecksumIEEE(whole) != sum.Sum32() {
		t.Fatal("reading in ranges gave other bytes")
	}
}

func TestARealServerKeepsTheContractBehindALineThatFails(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS {
		c := server(t, 0)
		line := newLine(t, c.Endpoint, 0.2)
		c.Endpoint = line.URL
		return openAt(t, address(t), c)
	})
}

// newLine is a proxy before the real server that fails a part of all requests: with
// 500, 503, a reset before the request arrives, one after it has been carried out, and
// an answer that breaks off.
func newLine(t *testing.T, endpoint string, faults float64) *httptest.Server {
	t.Helper()
	to, err := url.Parse(endpoint)
	must(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	line := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fault := -1
		if rand.Float64() < faults {
			fault = rand.IntN(5)
			if fault == 1 && rand.IntN(10) > 0 {
				fault = 0 // each 503 makes the client slow for a second
			}
		}
		switch fault {
		case 0, 1:
			_, _ = io.Copy(io.Discard, req.Body)
			w.WriteHeader([]int{http.StatusInternalServerError, http.StatusServiceUnavailable}[fault])
			_, _ = io.WriteString(w, []string{"<Error><Code>InternalError</Code></Error>", "<Error><Code>SlowDown</Code></Error>"}[fault])
			return
		case 2:
			panic(http.ErrAbortHandler)
		}
		out := req.Clone(req.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host = "", to.Scheme, to.Host
		resp, err := transport.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || fault == 3 {
			panic(http.ErrAbortHandler)
		}
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		if fault == 4 {
			_, _ = w.Write(body[:len(body)/2])
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(line.Close)
	return line
}

func TestARealServerRefuses(t *testing.T) {
	secret := server(t, 0)
	secret.AccessKeyID, secret.SecretAccessKey = need(t, "AWS_ACCESS_KEY_ID"), "wrong-secret"
	key := server(t, 0)
	key.AccessKeyID, key.SecretAccessKey = "nobody", s3.Secret(need(t, "AWS_SECRET_ACCESS_KEY"))
	for name, c := range map[string]struct {
		cfg    s3.Config
		at     string
		status string
		says   string
	}{
		"a wrong secret":     {secret, address(t), "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"},
		"a wrong access key": {key, address(t), "does not know the access key", "AWS_ACCESS_KEY_ID"},
		"a missing bucket":   {server(t, 0), "s3://no-such-bucket-here/p", "NoSuchBucket", "make the bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := s3.New(c.at, c.cfg)
			must(t, err)
			_, statErr := f.Stat(t.Context(), "x")
			_, listErr := f.List(t.Context(), "")
			for _, err := range []error{statErr, listErr, f.Claim(t.Context(), "x")} {
				wantIs(t, err, fs.ErrPermission)
				wantSays(t, err, c.status, c.says)
				if strings.Contains(err.Error(), "wrong-secret") {
					t.Errorf("the secret is shown: %v", err)
				}
			}
		})
	}
}

func TestARealServerBehindTLSWithItsOwnCA(t *testing.T) {
	c := server(t, 0)
	to, err := url.Parse(c.Endpoint)
	must(t, err)
	plain := newLine(t, c.Endpoint, 0)
	secure := httptest.NewUnstartedServer(plain.Config.Handler)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))

	c.Endpoint = secure.URL
	f, err := s3.New(address(t), c)
	must(t, err)
	err = f.Claim(t.Context(), "x")
	wantIs(t, err, fs.ErrPermission)
	wantSays(t, err, "unknown authority", "storage.s3.ca_file")

	c.CAFile = ca
	f2 := openAt(t, address(t), c)
	must(t, f2.Claim(t.Context(), "x"))
	write(t, f2, "large", pattern(6<<20))
	wantData(t, f2, "large", pattern(6<<20))

	wrong := server(t, 0)
	wrong.Endpoint = "https://" + to.Host
	f3, err := s3.New(address(t), wrong)
	must(t, err)
	wantSays(t, f3.Claim(t.Context(), "x"), "http://")
}

// own is a server that this test may kill.
func own(t *testing.T) (endpoint string, do func(command string)) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	must(t, free.Close())
	env := append(os.Environ(), fmt.Sprintf("SERVICES_INSTANCE=s3-test-%d", port), fmt.Sprintf("S3_PORT=%d", port), "S3_BUCKETS=etl-test", "S3_TLS=0")
	do = func(command string) {
		cmd := exec.Command("../../deploy/services/s3.sh", command)
		cmd.Env = env
		var out bytes.Buffer
		cmd.Stderr = &out
		if err := cmd.Run(); err != nil {
			t.Errorf("s3.sh %s: %v: %s", command, err, out.String())
		}
	}
	do("start")
	t.Cleanup(func() { do("clean") })
	return fmt.Sprintf("http://127.0.0.1:%d", port), do
}

func TestARealServerIsKilledInTheMiddleOfAWrite(t *testing.T) {
	c := server(t, 0)
	endpoint, do := own(t)
	c.Endpoint = endpoint
	f, err := s3.New("s3://etl-test/p", c)
	must(t, err)
	must(t, f.Claim(t.Context(), "before"))
	w, err := f.Create(t.Context(), "large")
	must(t, err)
	staging, err := f.Stage(t.Context(), "staged")
	must(t, err)
	data := pattern(20 << 20)
	for _, w := range []io.Writer{w, staging} {
		_, err = w.Write(data[:12<<20])
		must(t, err)
	}
	do("kill")
	back := make(chan struct{})
	go func() {
		defer close(back)
		do("restart")
	}()
	for _, w := range []io.Writer{w, staging} {
		_, err = w.Write(data[12<<20:])
		must(t, err)
	}
	must(t, f.Claim(t.Context(), "during"))
	must(t, w.Close())
	s, err := staging.Close()
	must(t, err)
	<-back
	wantIs(t, f.Claim(t.Context(), "before"), fs.ErrExist)
	do("kill")
	do("restart")
	must(t, f.Publish(t.Context(), s))
	wantData(t, f, "large", data)
	wantData(t, f, "staged", data)
}

func BenchmarkARealServer(b *testing.B) {
	cfg := server(b, 0)
	cfg.PartSize = 8 << 20
	f := openAt(b, address(b), cfg)
	const size = 1 << 30
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var last string
	b.Run("write 1 GiB", func(b *testing.B) {
		b.SetBytes(size)
		for range b.N {
			last = fmt.Sprintf("file-%d", prefixes.Add(1))
			w, err := f.Create(b.Context(), last)
			if err != nil {
				b.Fatal(err)
			}
			for range size / len(block) {
				if _, err := w.Write(block); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read 1 GiB", func(b *testing.B) {
		b.SetBytes(size)
		buf := make([]byte, 256<<10)
		for range b.N {
			r, err := f.Open(b.Context(), last)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf); err != nil || n != size {
				b.Fatalf("%d bytes, %v", n, err)
			}
			_ = r.Close()
		}
	})
	b.Run("read 1 GiB, 4 at once", func(b *testing.B) {
		b.SetBytes(size)
		for range b.N {
			r, err := f.Open(b.Context(), last)
			if err != nil {
				b.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					buf := make([]byte, 8<<20)
					for off := int64(i) * (8 << 20); off < size; off += 4 * (8 << 20) {
						if _, err := r.ReadAt(buf, off); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			_ = r.Close()
		}
	})
}
