package redis

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/placeholder"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// LookupConfig is the block of a lookup in Redis.
type LookupConfig struct {
	Addresses []string            `key:"addresses" doc:"Addresses, host:port: one server, some nodes of a cluster, or the sentinels of a master." required:"true"`
	Cluster   bool                `key:"cluster" doc:"The addresses are those of a cluster."`
	Master    string              `key:"master" doc:"Name of the master that the addresses are the sentinels of."`
	Username  string              `key:"username" doc:"Name of the user, where the server has users."`
	Password  string              `key:"password" secret:"true" doc:"The user's password, or the server's."`
	Database  int                 `key:"database" doc:"Number of the database; a cluster has 0 only."`
	TLS       TLS                 `key:"tls" doc:"Encryption of the connections."`
	Key       string              `key:"key" doc:"The key in Redis: the name of a column in braces stands for its value, user:{id}." required:"true"`
	Type      string              `key:"type" enum:"json|hash|string" doc:"What is kept under a key: a text that holds a JSON object, which is the row; a hash, whose fields are those of the row, as texts; or any text, which is the field value of the row."`
	MaxKeys   int                 `key:"max_keys" doc:"Keys in one call at most, which is one round trip."`
	MaxValue  connectors.ByteSize `key:"max_value" doc:"Largest row that is taken; records whose row is larger go to on_error."`
}

// TLS says how connections are encrypted.
type TLS struct {
	Enabled            bool   `key:"enabled" doc:"Turns encryption on where no other key is needed: the system's authorities are trusted."`
	CA                 string `key:"ca" doc:"File with the certificates of the authorities to trust, instead of the system's."`
	Cert               string `key:"cert" doc:"File with the client's certificate."`
	Key                string `key:"key" doc:"File with the client's private key."`
	ServerName         string `key:"server_name" doc:"Name to verify in the server's certificate, instead of its address."`
	InsecureSkipVerify bool   `key:"insecure_skip_verify" doc:"Trusts any certificate. Only for trying out."`
}

func (t *TLS) config() *tlsconfig.Config {
	return &tlsconfig.Config{CA: t.CA, Cert: t.Cert, Key: t.Key, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
}

// The forms in which rows are kept.
const (
	typeJSON   = "json"
	typeHash   = "hash"
	typeString = "string"
)

const mostKeys = connectors.MaxBatch

func newLookupConfig() any { return &LookupConfig{Type: typeJSON, MaxKeys: 256, MaxValue: 1 << 20} }

// Validate reports every key that is out of its range.
func (c *LookupConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if len(c.Addresses) == 0 {
		fault("addresses", "there is none", "write addresses: [host:6379]")
	}
	for _, a := range c.Addresses {
		if host, port, err := net.SplitHostPort(a); err != nil || host == "" || port == "" || strings.ContainsAny(a, "/ ,") {
			fault("addresses", fmt.Sprintf("%q is no address", a), "write it as host:port, one address an element")
		}
	}
	switch {
	case c.Cluster && c.Master != "":
		fault("master", "a cluster has no sentinels", "remove it, or cluster")
	case len(c.Addresses) > 1 && !c.Cluster && c.Master == "":
		fault("addresses", "there are several", "write cluster: true, or master: NAME for sentinels")
	case c.Cluster && c.Database != 0:
		fault("database", "a cluster has 0 only", "remove it")
	}
	if c.Database < 0 {
		fault("database", "cannot be negative", "")
	}
	if c.Username != "" && c.Password == "" {
		fault("password", "a user needs one", "")
	}
	if c.MaxKeys < 1 || c.MaxKeys > mostKeys {
		fault("max_keys", fmt.Sprintf("must be from 1 to %d", mostKeys), "256 is the default")
	}
	if c.MaxValue < 1 || c.MaxValue > 1<<30 {
		fault("max_value", "must be from 1B to 1GiB", "1MiB is the default")
	}
	faults = append(faults, c.TLS.config().Check())
	return errors.Join(faults...)
}

// key finds the places of the columns, each of which must be used.
func (c *LookupConfig) key(columns []string) (placeholder.Text, error) {
	t, err := placeholder.Parse(c.Key, columns)
	if err != nil {
		return t, &connectors.FieldError{Key: "key", Msg: err.Error()}
	}
	for i, name := range columns {
		if !t.Uses(i) {
			return t, &connectors.FieldError{
				Key: "key", Msg: fmt.Sprintf("on has the column %s, and the key does not use it", name), Help: fmt.Sprintf("put {%s} into it", name),
			}
		}
	}
	return t, nil
}
