package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	krb "github.com/jcmturner/gokrb5/v8/client"
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
)

func (c *KerberosConfig) set() bool {
	d := *c
	d.ServiceName = "" // it has a default
	return d != KerberosConfig{}
}

func (c *KerberosConfig) check(password string, fault func(key, msg, help string)) {
	ways := 0
	for _, way := range []string{c.Keytab, c.CCache, password} {
		if way != "" {
			ways++
		}
	}
	if ways != 1 {
		fault("sasl", "GSSAPI needs one of kerberos.keytab, kerberos.ccache and password", "")
	}
	if c.Principal == "" && c.CCache == "" {
		fault("sasl.kerberos.principal", "not set", "write it as user@REALM")
	}
	if c.ServiceName == "" {
		fault("sasl.kerberos.service_name", "empty", "kafka, or what sasl.kerberos.service.name of the brokers says")
	}
}

// newKerberos logs in anew for each connection: those are few and live long, and a
// login that is kept cannot be renewed once it has ended.
func newKerberos(c *KerberosConfig, password string) sasl.Mechanism {
	return kerberos.Kerberos(func(context.Context) (kerberos.Auth, error) {
		client, err := c.login(password)
		if err != nil {
			return kerberos.Auth{}, err
		}
		return kerberos.Auth{Client: client, Service: c.ServiceName}, nil
	})
}

// login gets a ticket for tickets.
func (c *KerberosConfig) login(password string) (*krb.Client, error) {
	at := c.Krb5Conf
	if at == "" {
		at = os.Getenv("KRB5_CONFIG")
	}
	if at == "" {
		at = "/etc/krb5.conf"
	}
	conf, err := krbconfig.Load(at)
	if err != nil && (conf == nil || !errors.As(err, &krbconfig.UnsupportedDirective{})) {
		return nil, &loginError{err: fmt.Errorf("read the Kerberos settings %s: %w", at, err), help: "check sasl.kerberos.krb5_conf", final: true}
	}
	if c.CCache != "" {
		cache, err := credentials.LoadCCache(c.CCache)
		if err != nil {
			return nil, &loginError{err: fmt.Errorf("read the tickets in %s: %w", c.CCache, err), help: "check sasl.kerberos.ccache"}
		}
		client, err := krb.NewFromCCache(cache, conf, krb.DisablePAFXFAST(true))
		if err != nil {
			return nil, &loginError{err: fmt.Errorf("use the tickets in %s: %w", c.CCache, err), help: "renew them, such as with kinit"}
		}
		return client, nil
	}
	name, realm, found := strings.Cut(c.Principal, "@")
	if !found {
		realm = conf.LibDefaults.DefaultRealm
	}
	var client *krb.Client
	if c.Keytab != "" {
		keys, err := keytab.Load(c.Keytab)
		if err != nil {
			return nil, &loginError{err: fmt.Errorf("read the keytab %s: %w", c.Keytab, err), help: "check sasl.kerberos.keytab", final: true}
		}
		client = krb.NewWithKeytab(name, realm, keys, conf, krb.DisablePAFXFAST(true))
	} else {
		client = krb.NewWithPassword(name, realm, password, conf, krb.DisablePAFXFAST(true))
	}
	if err := client.Login(); err != nil {
		client.Destroy()
		return nil, refusedTicket(fmt.Errorf("log in to Kerberos as %s@%s: %w", name, realm, err))
	}
	return client, nil
}

// ticketAdvice says what to do about what a KDC says. The library puts all causes
// into texts.
var ticketAdvice = []struct{ said, do string }{
	{"KRB_AP_ERR_SKEW", "the clocks of this machine and the KDC differ too much: synchronise them"},
	{"clock skew", "the clocks of this machine and the KDC differ too much: synchronise them"},
	{"KDC_ERR_C_PRINCIPAL_UNKNOWN", "the KDC does not know the principal: check sasl.kerberos.principal and its realm"},
	{"KDC_ERR_PREAUTH_FAILED", "the password or the key in the keytab is not the principal's: export the keytab anew"},
	{"client password/keytab incorrect", "the password or the key in the keytab is not the principal's: export the keytab anew"},
	{"matching key not found in keytab", "the keytab has no key of the principal of the kind that the KDC uses: export it anew with AES keys"},
	{"KDC_ERR_KEY_EXPIRED", "the principal's key has expired: change it"},
	{"KDC_ERR_NAME_EXP", "the principal has expired: have it renewed"},
	{"KDC_ERR_CLIENT_REVOKED", "the principal is locked: have it unlocked"},
	{"KDC_ERR_ETYPE_NOSUPP", "the KDC and the keytab have no kind of encryption in common: export the keytab with AES keys"},
}

// refusedTicket adds what to do, and marks what stays until somebody does it.
func refusedTicket(err error) error {
	for _, a := range ticketAdvice {
		if strings.Contains(err.Error(), a.said) {
			return &loginError{err: err, help: a.do, final: true}
		}
	}
	return &loginError{err: err}
}

// unknownService reports whether a KDC does not know the principal of a broker.
func unknownService(err error) bool {
	return strings.Contains(err.Error(), "KDC_ERR_S_PRINCIPAL_UNKNOWN")
}
