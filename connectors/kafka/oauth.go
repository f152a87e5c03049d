package kafka

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

func (c *OAuthConfig) set() bool {
	return c.Token != "" || c.TokenFile != "" || c.TokenURL != "" || c.ClientID != "" || c.ClientSecret != "" || c.Scope != "" || c.Audience != "" || len(c.Extensions) > 0
}

func (c *OAuthConfig) check(fault func(key, msg, help string)) {
	ways := 0
	for _, way := range []string{c.Token, c.TokenFile, c.TokenURL} {
		if way != "" {
			ways++
		}
	}
	if ways != 1 {
		fault("sasl.oauth", "OAUTHBEARER needs one of token, token_file and token_url", "")
	}
	if c.TokenURL != "" {
		if u, err := url.Parse(c.TokenURL); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			fault("sasl.oauth.token_url", "\""+c.TokenURL+"\" is no address", "write it as https://host/path")
		}
		if c.ClientID == "" || c.ClientSecret == "" {
			fault("sasl.oauth", "token_url needs client_id and client_secret", "")
		}
	}
	if err := c.TLS.Check(); err != nil {
		fault("sasl.oauth.tls", "cert and key belong together", "set both or neither")
	}
}

// tokens gives a bearer token for each login.
type tokens struct {
	cfg    *OAuthConfig
	client *http.Client // of token_url

	mu    sync.Mutex
	token string
	until time.Time // when another one is asked for
}

func newTokens(c *OAuthConfig) (sasl.Mechanism, error) {
	t := &tokens{cfg: c}
	if c.TokenURL != "" {
		secure, err := c.TLS.Build()
		if err != nil {
			return nil, &loginError{err: err, final: true}
		}
		t.client = tokenClient(secure)
	}
	return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
		token, err := t.get(ctx)
		if err != nil {
			return oauth.Auth{}, err
		}
		return oauth.Auth{Token: token, Extensions: c.Extensions}, nil
	}), nil
}

// tokenPatience is how long the answer with a token may take.
const tokenPatience = 10 * time.Second

func tokenClient(secure *tls.Config) *http.Client {
	return &http.Client{
		Timeout: tokenPatience,
		// A token is asked for seldom: no connection waits for the next time.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, DisableKeepAlives: true},
		// The secret goes to the address that was written, and to no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (t *tokens) get(ctx context.Context) (string, error) {
	switch {
	case t.cfg.Token != "":
		return t.cfg.Token, nil
	case t.cfg.TokenFile != "":
		data, err := os.ReadFile(t.cfg.TokenFile)
		if err != nil {
			return "", &loginError{err: fmt.Errorf("read the token: %w", err), help: "check sasl.oauth.token_file"}
		}
		token := strings.TrimSpace(string(data))
		if token == "" {
			return "", &loginError{err: fmt.Errorf("file %s holds no token", t.cfg.TokenFile), help: "check sasl.oauth.token_file"}
		}
		return token, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.token == "" || !now.Before(t.until) {
		token, lasts, err := t.ask(ctx)
		if err != nil {
			return "", err
		}
		// The broker ends the session with its token: a new login gets a new one before.
		t.token, t.until = token, now.Add(lasts*4/5)
	}
	return t.token, nil
}

// maxTokenAnswer bounds what is read of an answer.
const maxTokenAnswer = 1 << 20

// ask gets a token from the identity provider, and how long it lasts.
func (t *tokens) ask(ctx context.Context) (string, time.Duration, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.cfg.Scope != "" {
		form.Set("scope", t.cfg.Scope)
	}
	if t.cfg.Audience != "" {
		form.Set("audience", t.cfg.Audience)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.cfg.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, &loginError{err: err, final: true}
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(url.QueryEscape(t.cfg.ClientID), url.QueryEscape(t.cfg.ClientSecret))
	resp, err := t.client.Do(req)
	if err != nil {
		return "", 0, &loginError{err: fmt.Errorf("ask for a token: %w", err)}
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	if err != nil {
		return "", 0, &loginError{err: fmt.Errorf("ask %s for a token: %w", t.cfg.TokenURL, err)}
	}
	var answer struct {
		AccessToken string      `json:"access_token"`
		ExpiresIn   json.Number `json:"expires_in"`
		Error       string      `json:"error"`
		Description string      `json:"error_description"`
	}
	decoded := json.Unmarshal(body, &answer)
	switch {
	case resp.StatusCode == http.StatusOK && decoded == nil && answer.AccessToken != "":
		return answer.AccessToken, lifetime(answer.ExpiresIn), nil
	case resp.StatusCode == http.StatusOK:
		return "", 0, &loginError{err: fmt.Errorf("%s answered without an access_token", t.cfg.TokenURL), help: "check sasl.oauth.token_url", final: true}
	}
	why := resp.Status
	if answer.Error != "" {
		why += ": " + strings.TrimSpace(answer.Error+" "+answer.Description)
	}
	final := resp.StatusCode >= 300 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusRequestTimeout
	return "", 0, &loginError{
		err: fmt.Errorf("%s gives no token: %w", t.cfg.TokenURL, errors.New(why)), final: final,
		help: "check sasl.oauth.client_id, client_secret, scope and token_url",
	}
}

// lifetime is how long a token lasts; a minute where nobody says.
func lifetime(seconds json.Number) time.Duration {
	if f, err := seconds.Float64(); err == nil && f > 0 {
		return time.Duration(min(f, 30*24*3600) * float64(time.Second))
	}
	return time.Minute
}
