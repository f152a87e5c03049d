package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// SASLConfig says how the client proves who it is.
type SASLConfig struct {
	Mechanism string         `key:"mechanism" doc:"How the client proves who it is." enum:"PLAIN|SCRAM-SHA-256|SCRAM-SHA-512|OAUTHBEARER|GSSAPI|AWS_MSK_IAM"`
	Username  string         `key:"username" doc:"Name of the user, for PLAIN and SCRAM."`
	Password  string         `key:"password" doc:"The user's password; for GSSAPI instead of a keytab." secret:"true"`
	OAuth     OAuthConfig    `key:"oauth" doc:"Token of OAUTHBEARER: as it is, from a file, or from an identity provider."`
	Kerberos  KerberosConfig `key:"kerberos" doc:"Login of GSSAPI."`
	AWS       AWSConfig      `key:"aws" doc:"Credentials of AWS_MSK_IAM; by default those of the environment, the shared files, a web identity or the instance's role."`
}

// OAuthConfig says where a bearer token comes from.
type OAuthConfig struct {
	Token        string            `key:"token" doc:"The token itself." secret:"true"`
	TokenFile    string            `key:"token_file" doc:"File that holds the token; it is read for each login, so that whoever renews the token only replaces the file."`
	TokenURL     string            `key:"token_url" doc:"Address that gives tokens for client_id and client_secret (the client credentials grant). A token is asked for anew before it ends."`
	ClientID     string            `key:"client_id" doc:"Name of the client there."`
	ClientSecret string            `key:"client_secret" doc:"Secret of the client there." secret:"true"`
	Scope        string            `key:"scope" doc:"Scopes to ask for, with spaces between them."`
	Audience     string            `key:"audience" doc:"Audience to ask for, where the provider wants one."`
	Extensions   map[string]string `key:"extensions" doc:"SASL extensions that the broker wants, such as {logicalCluster: lkc-1}."`
	TLS          tlsconfig.Config  `key:"tls" doc:"Encryption of the connections to token_url."`
}

// KerberosConfig is how tickets are got.
type KerberosConfig struct {
	Principal   string `key:"principal" doc:"Name of the client, user@REALM; without realm that of krb5_conf. A ticket cache has its own."`
	Keytab      string `key:"keytab" doc:"File with the principal's keys."`
	CCache      string `key:"ccache" doc:"File with tickets that another program renews, such as kinit; it is read for each login."`
	Krb5Conf    string `key:"krb5_conf" doc:"Kerberos settings; else KRB5_CONFIG, else /etc/krb5.conf."`
	ServiceName string `key:"service_name" doc:"First part of the brokers' principals, sasl.kerberos.service.name in Java."`
}

// AWSConfig says whose credentials prove the client.
type AWSConfig struct {
	Profile string `key:"profile" doc:"Profile of the shared files; else AWS_PROFILE."`
	RoleARN string `key:"role_arn" doc:"Role that is taken on with these credentials."`
	Region  string `key:"region" doc:"Region of the service that gives the role; else AWS_REGION or the profile's."`
}

var mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"}

// login is how the clients of a connection prove who they are. They share what it
// keeps, such as a token.
type login struct {
	cfg *SASLConfig

	once  sync.Once
	made  sasl.Mechanism
	fault error
}

// mechanism is nil where there is none.
func (l *login) mechanism() (sasl.Mechanism, error) {
	l.once.Do(func() { l.made, l.fault = l.make() })
	return l.made, l.fault
}

func (l *login) make() (sasl.Mechanism, error) {
	c := l.cfg
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: c.Username, Pass: c.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.Username, Pass: c.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return newTokens(&c.OAuth)
	case "GSSAPI":
		return newKerberos(&c.Kerberos, c.Password), nil
	case "AWS_MSK_IAM":
		return newMSK(&c.AWS), nil
	}
	return nil, nil
}

// loginError is a login that failed before a broker was asked.
type loginError struct {
	err   error
	help  string
	final bool // trying again does not mend it
}

func (e *loginError) Error() string {
	if e.help == "" {
		return "sasl: " + e.err.Error()
	}
	return fmt.Sprintf("sasl: %v (%s)", e.err, e.help)
}

func (e *loginError) Unwrap() error { return e.err }

// refusedLogin reports whether an error is a login that stays refused.
func refusedLogin(err error) bool {
	var l *loginError
	return errors.As(err, &l) && l.final
}

// check reports the faults of the block.
func (c *SASLConfig) check() []error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	switch c.Mechanism {
	case "":
		if c.Username != "" || c.Password != "" || c.OAuth.set() || c.Kerberos.set() || c.AWS != (AWSConfig{}) {
			fault("sasl.mechanism", "not set", "one of "+strings.Join(mechanisms, ", "))
		}
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if c.Username == "" || c.Password == "" {
			fault("sasl", c.Mechanism+" needs username and password", "")
		}
	case "OAUTHBEARER":
		c.OAuth.check(fault)
	case "GSSAPI":
		c.Kerberos.check(c.Password, fault)
	case "AWS_MSK_IAM":
	default:
		fault("sasl.mechanism", c.Mechanism+" is not known", "one of "+strings.Join(mechanisms, ", "))
	}
	if slices.Contains(mechanisms, c.Mechanism) {
		c.checkBlocks(fault)
	}
	return faults
}

// checkBlocks reports settings of other mechanisms.
func (c *SASLConfig) checkBlocks(fault func(key, msg, help string)) {
	for _, b := range []struct {
		key, mechanism string
		set            bool
	}{
		{"sasl.oauth", "OAUTHBEARER", c.OAuth.set()},
		{"sasl.kerberos", "GSSAPI", c.Kerberos.set()},
		{"sasl.aws", "AWS_MSK_IAM", c.AWS != AWSConfig{}},
	} {
		if b.set && c.Mechanism != b.mechanism {
			fault(b.key, "mechanism "+c.Mechanism+" does not use it", "it is for "+b.mechanism)
		}
	}
}
