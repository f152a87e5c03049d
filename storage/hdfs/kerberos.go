package hdfs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	krb "github.com/jcmturner/gokrb5/v8/client"
	krbconfig "github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
)

// protections are those of connections to datanodes that the library gets right. It
// reads what is signed and not encrypted wrongly, and so what is encrypted by other
// means than AES.
var protections = []string{"authentication", "privacy"}

const protectionAdvice = "give the datanodes authentication, or privacy with AES " +
	"(dfs.data.transfer.protection, dfs.encrypt.data.transfer.cipher.suites=AES/CTR/NoPadding): this program cannot read from others"

// kerberos is what the settings say of it.
type kerberos struct {
	principal  string
	keytab     string
	krb5Conf   string
	service    string
	protection string
}

// login is a ticket for tickets. The library renews it before it ends, or logs in
// again from the keytab.
type login struct {
	client *krb.Client
	users  int
	old    bool
}

// logins hands out one login to all clients of a cluster. After a failure that may be
// the login's, the next client gets a new one, made from the keytab as it is by then:
// the library tries to renew a ticket that has ended instead of asking for a new one.
type logins struct {
	conf *kerberos

	mu      sync.Mutex
	current *login
}

func (l *logins) get() (*login, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		if err := l.current.client.AffirmLogin(); err != nil {
			l.retire(l.current)
		}
	}
	if l.current == nil {
		made, err := l.conf.login()
		if err != nil {
			return nil, err
		}
		l.current = &login{client: made}
	}
	l.current.users++
	return l.current, nil
}

// suspect keeps a login from further clients.
func (l *logins) suspect(bad *login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retire(bad)
}

func (l *logins) retire(bad *login) {
	bad.old = true
	if l.current == bad {
		l.current = nil
	}
	if bad.users == 0 {
		bad.client.Destroy()
	}
}

// put gives a login back.
func (l *logins) put(used *login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if used.users--; used.users == 0 && used.old {
		used.client.Destroy()
	}
}

// login asks the KDC for a ticket with the key of the keytab.
func (k *kerberos) login() (*krb.Client, error) {
	at := k.krb5Conf
	if at == "" {
		at = os.Getenv("KRB5_CONFIG")
	}
	if at == "" {
		at = "/etc/krb5.conf"
	}
	conf, err := krbconfig.Load(at)
	if err != nil && (conf == nil || !errors.As(err, &krbconfig.UnsupportedDirective{})) {
		return nil, final(fmt.Errorf("read the Kerberos settings %s (storage.hdfs.kerberos.krb5_conf): %w", at, err))
	}
	keys, err := keytab.Load(k.keytab)
	if err != nil {
		return nil, final(fmt.Errorf("read the keytab %s (storage.hdfs.kerberos.keytab): %w", k.keytab, err))
	}
	name, realm, found := strings.Cut(k.principal, "@")
	if !found {
		realm = conf.LibDefaults.DefaultRealm
	}
	if have := principals(keys); !slices.Contains(have, name+"@"+realm) {
		return nil, final(fmt.Errorf("the keytab %s has no key of %s@%s, only of %s: export the keys of the principal anew, or set storage.hdfs.kerberos.principal",
			k.keytab, name, realm, strings.Join(have, ", ")))
	}
	made := krb.NewWithKeytab(name, realm, keys, conf, krb.DisablePAFXFAST(true))
	if err := made.Login(); err != nil {
		return nil, explain(fmt.Errorf("log in to Kerberos as %s@%s: %w", name, realm, err))
	}
	return made, nil
}

// principals are the names that a keytab has keys of.
func principals(keys *keytab.Keytab) (out []string) {
	for _, e := range keys.Entries {
		name := strings.Join(e.Principal.Components, "/") + "@" + e.Principal.Realm
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// advice says what to do about what a KDC, or a namenode that checks a ticket, says.
// The library puts all causes into texts.
var advice = []struct{ said, do string }{
	{"KRB_AP_ERR_SKEW", "the clocks of this machine and the KDC differ too much: synchronise them"},
	{"clock skew", "the clocks of this machine and the KDC differ too much: synchronise them"},
	{"KDC_ERR_C_PRINCIPAL_UNKNOWN", "the KDC does not know the principal: check storage.hdfs.kerberos.principal and its realm"},
	{"KDC_ERR_S_PRINCIPAL_UNKNOWN", "the KDC does not know the principal of the namenode: check storage.hdfs.kerberos.service_principal and the name of the host in its address"},
	{"KDC_ERR_PREAUTH_FAILED", "the key in the keytab is not the principal's any more: export the keytab anew"},
	{"client password/keytab incorrect", "the key in the keytab is not the principal's any more: export the keytab anew"},
	{"KDC_ERR_KEY_EXPIRED", "the key of the principal has expired: change it and export the keytab anew"},
	{"KDC_ERR_NAME_EXP", "the principal has expired: have it renewed"},
	{"KDC_ERR_CLIENT_REVOKED", "the principal is locked: have it unlocked"},
	{"KDC_ERR_ETYPE_NOSUPP", "the KDC and the keytab have no kind of encryption in common: export the keytab with AES keys"},
	{"matching key not found in keytab", "the keytab has no key of the kind or version that the KDC uses: export it anew with AES keys"},
	{"unsupported etype", "the keytab's keys are of a kind that is not supported: export it with AES keys"},
}

// explain adds what to do, and marks what stays until somebody does it.
func explain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, a := range advice {
		if strings.Contains(text, a.said) {
			return final(fmt.Errorf("%s (%w)", a.do, err))
		}
	}
	if strings.Contains(text, "kerberos authentication not supported by namenode") {
		return final(fmt.Errorf("the namenode takes no Kerberos: remove storage.hdfs.kerberos (%w)", err))
	}
	return err
}
