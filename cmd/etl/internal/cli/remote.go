package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// remote is the daemon that a command talks to: the one at an address, or those of
// this user on this machine, by their sockets.
type remote struct {
	server    string // URL; empty for sockets
	tokenFile string
	caFile    string
	certFile  string
	keyFile   string
}

// The variables that say the same as the flags. None is a setting of the daemon.
const (
	serverVariable    = "ETL_SERVER"
	tokenVariable     = "ETL_TOKEN"
	tokenFileVariable = "ETL_TOKEN_FILE" //nolint:gosec // the name of a variable, not a token
	caFileVariable    = "ETL_CA_FILE"
	certFileVariable  = "ETL_CERT_FILE"
	keyFileVariable   = "ETL_KEY_FILE"
)

var remoteVariables = []string{serverVariable, tokenVariable, tokenFileVariable, caFileVariable, certFileVariable, keyFileVariable}

// settingsOnly is the environment without the variables that name a daemon.
func settingsOnly(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(remoteVariables, name)
	})
}

// reaches gives a command the flags that say which daemon it talks to.
func (a *app) reaches(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringVar(&a.remote.server, "server", "", "address of the daemon, such as https://etl:8080 ("+serverVariable+"; default: those of this user on this machine)")
	f.StringVar(&a.remote.tokenFile, "token-file", "", "file with the token for --server ("+tokenFileVariable+", or the token itself in "+tokenVariable+")")
	f.StringVar(&a.remote.caFile, "ca-file", "", "file with the certificates that --server is trusted by ("+caFileVariable+")")
	f.StringVar(&a.remote.certFile, "cert-file", "", "certificate of this user for --server ("+certFileVariable+")")
	f.StringVar(&a.remote.keyFile, "key-file", "", "key of --cert-file ("+keyFileVariable+")")
	return c
}

// process is a daemon or a run that answers, with its pipelines.
type process struct {
	client    *web.Client
	pipelines []api.Pipeline
}

// processes asks the daemon that is named, or else all of this user. Where some could
// not be asked there is an error beside those that answer.
func (a *app) processes(ctx context.Context) ([]process, error) {
	if a.remote.at() != "" {
		client, err := a.remote.client()
		if err != nil {
			return nil, err
		}
		all, err := client.Pipelines(ctx)
		if err != nil {
			return nil, answerError(fmt.Errorf("%s: %w", a.remote.at(), err))
		}
		return []process{{client, all}}, nil
	}
	found, err := web.Processes(ctx, web.RuntimeDirs(a.settings.RuntimeDir))
	var out []process
	for _, p := range found {
		out = append(out, process{p.Client, p.Pipelines})
	}
	if err != nil {
		err = failed(err)
	}
	return out, err
}

// at is the address of the daemon, empty for those of this user.
func (r *remote) at() string { return orVariable(r.server, serverVariable) }

func orVariable(flag, variable string) string {
	if flag != "" {
		return flag
	}
	return os.Getenv(variable)
}

// client makes a client of the daemon at the address.
func (r *remote) client() (*web.Client, error) {
	token := os.Getenv(tokenVariable)
	if file := orVariable(r.tokenFile, tokenFileVariable); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, usageError(fmt.Errorf("read the token: %w", err))
		}
		token = string(text)
	}
	settings, err := r.tls()
	if err != nil {
		return nil, usageError(err)
	}
	c, err := web.NewClientTo(r.at(), strings.TrimSpace(token), settings)
	if err != nil {
		return nil, usageError(err)
	}
	return c, nil
}

// tls is whom the client trusts, and how it shows who it is.
func (r *remote) tls() (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := orVariable(r.caFile, caFileVariable); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the certificates that are trusted: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", file)
		}
	}
	cert, key := orVariable(r.certFile, certFileVariable), orVariable(r.keyFile, keyFileVariable)
	if (cert == "") != (key == "") {
		return nil, errors.New("--cert-file and --key-file belong together: name both or none")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate of this user: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// where tells where was looked for daemons.
func (a *app) where() string {
	return strings.Join(web.RuntimeDirs(a.settings.RuntimeDir), " and ")
}

// target is the pipeline that a command is about, in the process that runs it.
type target struct {
	name   string // of the pipeline
	file   string // as the next run takes it
	served bool   // by etl serve, which starts the next job too
	client *web.Client
}

// find looks for the process that runs a pipeline, which is named by its name or its
// file: the newest, where there are several.
func (a *app) find(ctx context.Context, named string) (*target, error) {
	t := &target{name: named, file: "FILE"}
	storage := ""
	if isFile(named) {
		p, faults := spec.Load(named, spec.Options{})
		if p.Name == "" {
			_ = faults.Print(a.err, a.color())
			return nil, usageError(fmt.Errorf("%s does not tell the name of its pipeline", named))
		}
		t.name, t.file, storage = p.Name, named, p.Checkpoint.Storage
	}
	processes, unasked := a.processes(ctx)
	var found *api.Pipeline
	var others []string
	for i := range processes {
		for j := range processes[i].pipelines {
			p := &processes[i].pipelines[j]
			switch {
			case p.Name != t.name || storage != "" && storageOf(p) != "" && storageOf(p) != storage:
				others = append(others, p.Name)
			case found != nil && storageOf(found) != storageOf(p):
				return nil, usageError(fmt.Errorf("several processes run a pipeline %s, with checkpoints in %s and in %s: name the file of the one that is meant",
					t.name, storageOf(found), storageOf(p)))
			case found == nil || newer(p, found):
				found, t.client = p, processes[i].client
			}
		}
	}
	switch {
	case found == nil && unasked != nil:
		return nil, unasked
	case found == nil:
		return nil, a.notFound(t.name, others)
	}
	if d, err := t.client.Daemon(ctx); err == nil {
		t.served = d.Folder != ""
	}
	return t, nil
}

// notFound says where a pipeline was looked for, and what is there instead.
func (a *app) notFound(name string, others []string) error {
	if at := a.remote.at(); at != "" {
		text := fmt.Sprintf("%s has no pipeline %s", at, name)
		if len(others) > 0 {
			text += "; it has " + strings.Join(others, ", ")
		}
		return failed(errors.New(text))
	}
	text := fmt.Sprintf("no process of this user runs pipeline %s; looked in %s", name, a.where())
	if len(others) > 0 {
		text += ", where there are " + strings.Join(others, ", ")
	}
	return failed(errors.New(text))
}

// nobody says that no daemon was found.
func (a *app) nobody() error {
	return failed(fmt.Errorf("no process of this user runs pipelines; looked in %s: start one by etl serve or etl run, or name another one by --server", a.where()))
}

// storageOf is where a pipeline has its checkpoints; empty while it has never run.
func storageOf(p *api.Pipeline) string {
	if p.Status == nil {
		return ""
	}
	return p.Status.Storage
}

// newer tells which of two processes of a pipeline has it: the later generation.
func newer(p, than *api.Pipeline) bool {
	s, other := p.Status, than.Status
	switch {
	case s == nil || other == nil:
		return other == nil && s != nil
	case (s.Phase == pipeline.Ended) != (other.Phase == pipeline.Ended):
		return other.Phase == pipeline.Ended
	}
	return s.Generation > other.Generation
}

func isFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// everyPipeline is each pipeline of the processes once, in the order of their names,
// with the process that has it.
func everyPipeline(processes []process) ([]api.Pipeline, map[string]*web.Client) {
	newest := map[string]api.Pipeline{}
	clients := map[string]*web.Client{}
	for _, p := range processes {
		for i := range p.pipelines {
			one := p.pipelines[i]
			if other, ok := newest[one.Name]; !ok || newer(&one, &other) {
				newest[one.Name], clients[one.Name] = one, p.client
			}
		}
	}
	out := make([]api.Pipeline, 0, len(newest))
	for _, p := range newest {
		out = append(out, p)
	}
	slices.SortFunc(out, func(x, y api.Pipeline) int { return strings.Compare(x.Name, y.Name) })
	return out, clients
}

// untilSignal is a context that a SIGINT or SIGTERM ends, for what is shown until then.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// answerError gives what a process has answered its exit code.
func answerError(err error) error {
	if err == nil {
		return nil
	}
	var p *web.Problem
	if errors.As(err, &p) && p.Code == web.CodeUnauthenticated {
		err = fmt.Errorf("%w; here the token is that of --token-file or %s", err, tokenVariable)
	}
	return &codeError{code: exitOfAnswer(err), err: err}
}

// exitOfAnswer is the exit code for what a process has answered.
func exitOfAnswer(err error) int {
	var p *web.Problem
	if !errors.As(err, &p) {
		return exitFailed
	}
	switch p.Code {
	case web.CodeInvalid:
		return exitUsage
	case web.CodePermanent:
		return exitPerson
	case web.CodeFenced:
		return exitFenced
	}
	return exitFailed
}
