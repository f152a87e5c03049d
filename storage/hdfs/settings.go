package hdfs

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

// known are the keys below storage.hdfs of the settings file.
var known = []storage.Setting{
	{Key: "user", Doc: "who to be without Kerberos; else HADOOP_USER_NAME, else who the program runs as"},
	{Key: "hadoop_conf_dir", Doc: "folder with core-site.xml and hdfs-site.xml; else HADOOP_CONF_DIR, else etc/hadoop in HADOOP_HOME"},
	{Key: "nameservices", Doc: "addresses of the namenodes of name services, such as {prod: [nn1:8020, nn2:8020]}; they win over hdfs-site.xml"},
	{Key: "kerberos.principal", Doc: "who to be with Kerberos, such as etl@EXAMPLE.COM"},
	{Key: "kerberos.keytab", Doc: "file with the keys of the principal"},
	{Key: "kerberos.krb5_conf", Doc: "settings file of Kerberos; else KRB5_CONFIG, else /etc/krb5.conf"},
	{Key: "kerberos.service_principal", Doc: "principal of the namenodes, such as nn/_HOST; else dfs.namenode.kerberos.principal"},
	{Key: "kerberos.data_transfer_protection", Doc: "authentication or privacy, as the datanodes have it; else dfs.data.transfer.protection"},
	{Key: "spool_dir", Doc: "folder for files until HDFS has them; else that of the system for temporary files"},
	{Key: "replication", Doc: "copies of each file; else dfs.replication, else what the cluster says"},
	{Key: "block_size", Doc: "size of a block, such as 128MiB; else dfs.blocksize, else what the cluster says"},
	{Key: "connect_timeout", Doc: "how long a connection may take", Default: "10s"},
	{Key: "namenode_timeout", Doc: "how long a namenode may take to answer", Default: "1m"},
	{Key: "datanode_timeout", Doc: "how long a datanode may stand still", Default: "1m"},
	{Key: "retry", Doc: "how long a call is repeated while no namenode is active, reachable and out of safe mode", Default: "1m"},
	{Key: "write_retry", Doc: "how long a file is written anew while datanodes fail", Default: "12m"},
}

// config is what the settings say.
type config struct {
	user            string
	confDir         string
	nameservices    map[string][]string
	kerberos        *kerberos
	spoolDir        string
	replication     int
	blockSize       int64
	connectTimeout  time.Duration
	namenodeTimeout time.Duration
	datanodeTimeout time.Duration
	retry           time.Duration
	writeRetry      time.Duration
}

func defaults() config {
	return config{
		connectTimeout: 10 * time.Second, namenodeTimeout: time.Minute, datanodeTimeout: time.Minute,
		retry: time.Minute, writeRetry: 12 * time.Minute,
	}
}

// who names the user for errors.
func (c *config) who() string {
	if c.kerberos != nil {
		return c.kerberos.principal
	}
	return c.user
}

// registry holds the clusters of the process by the host and port of their addresses.
type registry struct {
	mu     sync.Mutex
	conf   config
	opened map[string]*cluster
}

var clusters = &registry{conf: defaults(), opened: map[string]*cluster{}}

// apply takes the settings of the scheme.
func apply(values map[string]any) error {
	conf, err := parse(values)
	if err != nil {
		return err
	}
	clusters.mu.Lock()
	defer clusters.mu.Unlock()
	clusters.conf = conf
	clusters.opened = map[string]*cluster{}
	return nil
}

// get is the cluster of an address.
func (r *registry) get(host string) (*cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cl, ok := r.opened[host]; ok {
		return cl, nil
	}
	conf, err := r.conf.complete()
	if err != nil {
		return nil, err
	}
	t, err := resolve(host, &conf)
	if err != nil {
		return nil, err
	}
	name := host
	if name == "" {
		name = strings.Join(t.addresses, ",")
	}
	cl := newCluster(name, conf, t)
	r.opened[host] = cl
	return cl, nil
}

// complete fills in what the environment says.
func (c config) complete() (config, error) {
	if c.user == "" {
		c.user = os.Getenv("HADOOP_USER_NAME")
	}
	if c.user == "" && c.kerberos == nil {
		u, err := user.Current()
		if err != nil {
			return c, fmt.Errorf("who the program runs as cannot be found out: set storage.hdfs.user: %w", err)
		}
		c.user = u.Username
	}
	return c, nil
}

// parse reads values as a settings file or the environment gives them, and reports
// all that is wrong with them.
func parse(values map[string]any) (config, error) {
	conf := defaults()
	p := &parser{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		switch key {
		case "user":
			conf.user = p.text(key, value)
		case "hadoop_conf_dir":
			conf.confDir = p.text(key, value)
		case "spool_dir":
			conf.spoolDir = p.folder(key, value)
		case "nameservices":
			conf.nameservices = p.nameservices(key, value)
		case "kerberos":
			conf.kerberos = p.kerberos(key, value)
		case "replication":
			conf.replication = int(p.number(key, value, 1, 512))
		case "block_size":
			conf.blockSize = p.size(key, value)
		case "connect_timeout":
			conf.connectTimeout = p.span(key, value)
		case "namenode_timeout":
			conf.namenodeTimeout = p.span(key, value)
		case "datanode_timeout":
			conf.datanodeTimeout = p.span(key, value)
		case "retry":
			conf.retry = p.span(key, value)
		case "write_retry":
			conf.writeRetry = p.span(key, value)
		default:
			p.unknown(key, "")
		}
	}
	return conf, errors.Join(p.faults...)
}

type parser struct{ faults []error }

func (p *parser) fault(key, format string, args ...any) {
	for i, arg := range args {
		if arg == nil || arg == "" {
			args[i] = "empty"
		}
	}
	p.faults = append(p.faults, fmt.Errorf("%s %w", key, fmt.Errorf(format, args...)))
}

// unknown reports a key that is none, with those that are.
func (p *parser) unknown(key, prefix string) {
	var have []string
	for _, s := range known {
		name, ok := strings.CutPrefix(s.Key, prefix)
		if name, _, _ = strings.Cut(name, "."); ok && !slices.Contains(have, name) {
			have = append(have, name)
		}
	}
	p.fault(prefix+key, "is no setting; there are %s", strings.Join(have, ", "))
}

func (p *parser) text(key string, value any) string {
	s, ok := value.(string)
	if s = strings.TrimSpace(s); !ok || s == "" {
		p.fault(key, "is %v: write a text", value)
	}
	return s
}

func (p *parser) folder(key string, value any) string {
	dir := p.text(key, value)
	if info, err := os.Stat(dir); dir != "" && (err != nil || !info.IsDir()) {
		p.fault(key, "is %s, which is no folder that can be used: make it, or name another (%v)", dir, err)
	}
	return dir
}

func (p *parser) number(key string, value any, low, high int64) int64 {
	n, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
	if err != nil || n < low || n > high {
		p.fault(key, "is %v: write a whole number from %d to %d", value, low, high)
	}
	return n
}

func (p *parser) span(key string, value any) time.Duration {
	d, err := time.ParseDuration(fmt.Sprint(value))
	if err != nil || d < time.Millisecond || d > 24*time.Hour {
		p.fault(key, "is %v: write a duration from 1ms to 24h, such as 30s", value)
	}
	return d
}

var units = []struct {
	suffix string
	factor int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

// size reads the size of a block: HDFS wants whole checksummed chunks of 512 bytes.
func (p *parser) size(key string, value any) int64 {
	text := fmt.Sprint(value)
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n <= 0 || n > (1<<40)/u.factor || n*u.factor%512 != 0 || n*u.factor < minBlock {
			break
		}
		return n * u.factor
	}
	p.fault(key, "is %v: write a size from 1MiB on that is a multiple of 512 bytes, such as 128MiB", value)
	return 0
}

func (p *parser) nameservices(key string, value any) map[string][]string {
	given, ok := value.(map[string]any)
	if !ok || len(given) == 0 {
		p.fault(key, "is %v: write names with the addresses of their namenodes, such as {prod: [nn1:8020, nn2:8020]}", value)
		return nil
	}
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		var list []string
		switch v := given[name].(type) {
		case string:
			list = strings.Split(v, ",")
		case []any:
			for _, one := range v {
				list = append(list, fmt.Sprint(one))
			}
		}
		for i, address := range list {
			list[i] = strings.TrimSpace(address)
			if host, port, err := net.SplitHostPort(list[i]); err != nil || host == "" || !validPort(port) {
				p.fault(key+"."+name, "has the address %q: write host:port, such as nn1:8020", list[i])
			}
		}
		if len(list) == 0 {
			p.fault(key+"."+name, "is %v: write a list of addresses, such as [nn1:8020, nn2:8020]", given[name])
		}
		out[name] = list
	}
	return out
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func (p *parser) kerberos(key string, value any) *kerberos {
	given, ok := value.(map[string]any)
	if !ok {
		p.fault(key, "is %v: write principal and keytab below it", value)
		return nil
	}
	k := &kerberos{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		full, v := key+"."+name, given[name]
		switch name {
		case "principal":
			k.principal = p.text(full, v)
		case "keytab":
			k.keytab = p.text(full, v)
		case "krb5_conf":
			k.krb5Conf = p.text(full, v)
		case "service_principal":
			k.service = p.text(full, v)
		case "data_transfer_protection":
			if k.protection = p.text(full, v); k.protection != "" && !slices.Contains(protections, k.protection) {
				p.fault(full, "is %v: write %s", v, strings.Join(protections, ", "))
			}
		default:
			p.unknown(name, key+".")
		}
	}
	if k.principal == "" || k.keytab == "" {
		p.fault(key, "needs both principal and keytab")
	}
	return k
}
