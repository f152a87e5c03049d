package http

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Bounds of tokens.
const (
	mostTokenAnswer = 64 << 10
	defaultLifetime = 5 * time.Minute  // of a token whose answer does not say
	renewBefore     = 30 * time.Second // the end of a token's life, or a fifth of it if shorter
)

// tokens gets bearer tokens for client credentials, and keeps each as long as it is good.
type tokens struct {
	config OAuth2
	client *http.Client

	mu    sync.Mutex
	token string
	until time.Time
}

// get returns a token that is good for some time yet. One caller at a time asks for a new one.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && time.Now().Before(t.until) {
		return t.token, nil
	}
	token, life, err := t.ask(ctx)
	if err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	t.token, t.until = token, time.Now().Add(life-min(renewBefore, life/5))
	return token, nil
}

// drop forgets a token that the service refused, unless there is a newer one already.
func (t *tokens) drop(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.token = ""
	}
}

func (t *tokens) ask(ctx context.Context) (token string, life time.Duration, err error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(t.config.Scopes) > 0 {
		form.Set("scope", strings.Join(t.config.Scopes, " "))
	}
	if t.config.Audience != "" {
		form.Set("audience", t.config.Audience)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.config.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, errors.New("token_url is no address")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	// Both parts are form-encoded first: RFC 6749, 2.3.1.
	req.Header.Set("Authorization", basic(url.QueryEscape(t.config.ClientID), url.QueryEscape(t.config.ClientSecret)))
	resp, err := t.client.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("call %s: %w", req.URL.Host, bare(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		err := fmt.Errorf("%s answers with status %d", req.URL.Host, resp.StatusCode)
		if after := retryAfter(resp.Header.Get("Retry-After"), time.Now()); after > 0 {
			return "", 0, &connectors.RetryAfterError{After: min(after, mostRetryAfter), Err: err}
		}
		return "", 0, err
	}
	var answer struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"`
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostTokenAnswer))
	if err != nil {
		return "", 0, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	if json.Unmarshal(body, &answer) != nil || answer.AccessToken == "" || strings.ContainsAny(answer.AccessToken, "\r\n\x00") {
		return "", 0, fmt.Errorf("the answer of %s holds no access_token", req.URL.Host)
	}
	if answer.ExpiresIn <= 0 {
		return answer.AccessToken, defaultLifetime, nil
	}
	return answer.AccessToken, time.Duration(min(answer.ExpiresIn, 1e6) * float64(time.Second)), nil
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// bare is an error of a call without the address, which can hold values of a record.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
