package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/placeholder"
)

func init() {
	redis.SetLogger(silent{})
	connectors.RegisterLookup(connectors.LookupSpec{
		Name:        "redis",
		Example:     "redis: {addresses: [localhost:6379], key: \"user:{id}\"}\n",
		Doc:         "Finds rows in Redis, alone, as a cluster or behind Sentinel, many keys in one round trip.",
		NewConfig:   newLookupConfig,
		Concurrency: 4,
		New: func(config any, columns []string) (connectors.Lookup, error) {
			c, ok := config.(*LookupConfig)
			if !ok {
				return nil, fmt.Errorf("redis lookup: configuration is a %T", config)
			}
			return NewLookup(*c, columns)
		},
	})
}

// silent keeps the client from writing to standard error: what goes wrong comes back
// as an error of a call.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Lookup finds rows in Redis.
type Lookup struct {
	config LookupConfig
	key    placeholder.Text
	client redis.UniversalClient
}

var _ connectors.Lookup = (*Lookup)(nil)

// NewLookup makes a lookup of a configuration that Validate accepts.
func NewLookup(c LookupConfig, columns []string) (*Lookup, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	key, err := c.key(columns)
	if err != nil {
		return nil, err
	}
	return &Lookup{config: c, key: key}, nil
}

const dialTimeout = 5 * time.Second

// Open connects.
func (l *Lookup) Open(ctx context.Context, env connectors.LookupEnv) (err error) {
	if l.client, err = dial(&l.config, env.Concurrency, env.Timeout); err != nil {
		return err
	}
	return classify(l.client.Ping(ctx).Err())
}

// dial makes a client, which connects when it is first used.
func dial(c *LookupConfig, conns int, timeout time.Duration) (redis.UniversalClient, error) {
	opts := &redis.UniversalOptions{
		Addrs: c.Addresses, IsClusterMode: c.Cluster, MasterName: c.Master, Username: c.Username, Password: c.Password, DB: c.Database,
		ClientName: "sluice", DisableIdentity: true, DialTimeout: dialTimeout, ContextTimeoutEnabled: true,
		// The caller makes calls again, with pauses of its own.
		MaxRetries: -1, DialerRetries: 1,
		PoolSize: conns, ReadTimeout: timeout, WriteTimeout: timeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if c.TLS != (TLS{}) {
		tls, err := c.TLS.config().Build()
		if err != nil {
			return nil, err
		}
		opts.TLSConfig = tls
	}
	return redis.NewUniversalClient(opts), nil
}

// MaxKeys is as configured.
func (l *Lookup) MaxKeys() int { return l.config.MaxKeys }

// Close closes all connections.
func (l *Lookup) Close() error {
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

// Find asks for all keys in one round trip, of a cluster in one to each of its nodes.
func (l *Lookup) Find(ctx context.Context, keys []connectors.LookupKey, answers []connectors.Answer) error {
	pipe := l.client.Pipeline()
	asked := make([]redis.Cmder, len(keys))
	for i := range keys {
		key, err := l.key.Fill(keys[i].Values, placeholder.Plain)
		switch {
		case err != nil:
			answers[i].Err = err
		case l.config.Type == typeHash:
			asked[i] = pipe.HGetAll(ctx, key)
		default:
			asked[i] = pipe.Get(ctx, key)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	if _, err := pipe.Exec(ctx); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	for i, cmd := range asked {
		if cmd == nil {
			continue
		}
		err := cmd.Err()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil && redis.HasErrorPrefix(err, "WRONGTYPE"):
			answers[i].Err = errors.New("what is kept under the key is of another type: the key type says which one is wanted")
		case err != nil:
			return classify(err)
		default:
			answers[i] = l.row(cmd)
		}
	}
	return nil
}

// row makes a row of what is kept under a key.
func (l *Lookup) row(cmd redis.Cmder) (a connectors.Answer) {
	switch cmd := cmd.(type) {
	case *redis.MapStringStringCmd:
		if fields := cmd.Val(); len(fields) > 0 {
			a.Row = object(fields)
		}
	case *redis.StringCmd:
		text := cmd.Val()
		if l.config.Type == typeString {
			a.Row = object(map[string]string{"value": text})
			break
		}
		var arena connectors.Arena
		v, err := format.ParseValue([]byte(text), &arena)
		switch {
		case err != nil:
			a.Err = fmt.Errorf("what is kept under the key is no JSON: %w", err)
		case v.Kind() == connectors.Map:
			a.Row = v.Raw()
		case !v.IsNull():
			a.Err = fmt.Errorf("what is kept under the key is no object but of type %s", v.Kind())
		}
	}
	if len(a.Row) > int(l.config.MaxValue) {
		return connectors.Answer{Err: fmt.Errorf("the row is larger than %s (max_value)", l.config.MaxValue)}
	}
	return a
}

// object is a JSON object of texts, sorted by name.
func object(fields map[string]string) []byte {
	out := []byte{'{'}
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(format.AppendString(out, name), ':')
		out = format.AppendString(out, fields[name])
	}
	return append(out, '}')
}

// classify says of an error whether it can pass.
func classify(err error) error {
	if err == nil {
		return nil
	}
	said := fmt.Errorf("redis: %w", err)
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR DB index", "ERR Client sent AUTH", "ERR This instance has cluster support disabled"} {
		if strings.HasPrefix(err.Error(), prefix) {
			return connectors.Permanent(said)
		}
	}
	return said
}
