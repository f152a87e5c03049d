package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// Options are what a server shows, and to whom.
type Options struct {
	Settings Settings
	// Service is asked for its readiness, and for where its pipelines keep checkpoints.
	Service api.Service
	// API answers /api/ and /openapi.json, Metrics /metrics, and Dashboard all other
	// paths; nil for none.
	API, Metrics, Dashboard http.Handler
	// Socket is the listener of Listen, over which the user's own programs may do
	// everything; nil for none. The server closes it.
	Socket net.Listener
	// Roots are the folders below which callers may name paths where the settings name
	// none; nil stands for the checkpoint storages of the pipelines.
	Roots func() []string
	// Event tells of requests that were refused; nil for nobody.
	Event func(api.Event)
	Log   *slog.Logger
}

// Server answers requests until it is closed.
type Server struct {
	log          *slog.Logger
	http         *http.Server
	handler      *handler
	certificates *certificates // nil without TLS
	addresses    []string
	ended        chan error // of each listener
	listeners    int
	stopWatching context.CancelFunc
	watched      sync.WaitGroup
}

// The limits of connections. Answers that go on, such as streams, have none as a whole.
const (
	headersWithin  = 5 * time.Second  // a request's headers come
	bodyWithin     = 30 * time.Second // its body comes
	idleWithin     = 2 * time.Minute  // the next request of a connection comes
	stalledWithin  = 30 * time.Second // who asked takes a part of an answer
	mostHeaders    = 64 << 10         // bytes
	mostServedBody = 2 << 20          // bytes; a definition of a pipeline has half of that
	mostStreams    = 128              // of a connection with HTTP/2, at a time
)

// Serve takes the addresses and begins to answer. An address that other machines reach
// without protection, files that cannot be read and addresses in use are errors of it.
func Serve(ctx context.Context, o Options) (*Server, error) {
	s := &o.Settings
	if err := s.Check(); err != nil {
		return nil, err
	}
	h, err := newHandler(&o) //nolint:contextcheck // it asks for the roots while requests come, after this
	if err != nil {
		return nil, err
	}
	out := &Server{log: o.Log, handler: h, stopWatching: func() {}}
	out.http = &http.Server{
		Handler: h, ReadHeaderTimeout: headersWithin, IdleTimeout: idleWithin, MaxHeaderBytes: mostHeaders,
		ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug), ConnContext: connected,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: mostStreams},
	}
	if s.CertFile != "" {
		if out.certificates, err = loadCertificates(s, o.Log); err != nil {
			return nil, errors.Join(err, h.audit.close())
		}
		out.http.TLSConfig = out.certificates.config()
	}
	listeners, err := listen(ctx, s)
	if err != nil {
		return nil, errors.Join(err, h.audit.close())
	}
	out.start(ctx, listeners, &o)
	return out, nil
}

// listen takes all addresses, or none.
func listen(ctx context.Context, s *Settings) (all []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, ln := range all {
				err = errors.Join(err, ln.Close())
			}
		}
	}()
	var lc net.ListenConfig
	for _, address := range s.Listen {
		ln, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return all, fmt.Errorf("http.listen: %w", err)
		}
		all = append(all, ln)
		// A name such as localhost is what the machine takes it for.
		asked, _, _ := net.SplitHostPort(address)
		if got, _, _ := net.SplitHostPort(ln.Addr().String()); loopback(asked) && !loopback(got) {
			return all, fmt.Errorf("http.listen: %s is %s here, which other machines reach: write 127.0.0.1", address, got)
		}
	}
	return all, nil
}

func (s *Server) start(ctx context.Context, listeners []net.Listener, o *Options) {
	s.ended = make(chan error, len(listeners)+1)
	serve := func(f func() error) {
		s.listeners++
		go func() { s.ended <- f() }()
	}
	scheme := "http://"
	for _, ln := range listeners {
		limited := limitConnections(ln, o.Settings.MaxConnections)
		if s.certificates != nil {
			scheme = "https://"
			serve(func() error { return s.http.ServeTLS(limited, "", "") })
		} else {
			serve(func() error { return s.http.Serve(limited) })
		}
		s.addresses = append(s.addresses, scheme+ln.Addr().String())
		if !loopbackAddr(ln.Addr()) && s.certificates == nil {
			s.log.Warn("the API is reached from other machines without TLS: who listens in sees tokens", "address", ln.Addr().String())
		}
	}
	if o.Socket != nil {
		serve(func() error { return s.http.Serve(o.Socket) })
	}
	if s.certificates != nil {
		var watching context.Context
		watching, s.stopWatching = context.WithCancel(context.WithoutCancel(ctx))
		s.watched.Go(func() { s.certificates.watch(watching) })
	}
}

func loopbackAddr(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Addresses are where the API is served, such as https://127.0.0.1:8700.
func (s *Server) Addresses() []string { return slices.Clone(s.addresses) }

// Reload reads the files of tokens and certificates again, and opens the audit log anew.
// What cannot be used leaves the last one in use.
func (s *Server) Reload() error {
	err := errors.Join(s.handler.auth.reload(), s.handler.audit.reopen())
	if s.certificates != nil {
		err = errors.Join(err, s.certificates.reload())
	}
	return err
}

// Close takes no more requests, ends those that only look, lets those that change
// something come to their end, for five seconds, and returns when all have ended.
func (s *Server) Close(ctx context.Context) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutDownWithin)
	defer cancel()
	s.handler.end()
	err := s.http.Shutdown(last)
	if err != nil {
		err = fmt.Errorf("end the API: %w", errors.Join(err, s.http.Close()))
	}
	for range s.listeners {
		if served := <-s.ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	s.stopWatching()
	s.watched.Wait()
	return errors.Join(err, s.handler.audit.close())
}
