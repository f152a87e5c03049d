package hdfs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"
)

// defaultPort is the namenode's where an address has none.
const defaultPort = "8020"

// target is where a cluster is and how to speak to it.
type target struct {
	addresses   []string // namenodes
	hadoop      hadoopconf.HadoopConf
	replication int  // of hdfs-site.xml, 0 for none
	byName      bool // datanodes are known by their names
	service     string
}

// options are the library's options, as Hadoop's settings give them.
func (t *target) options() hdfs.ClientOptions {
	o := hdfs.ClientOptionsFromConf(t.hadoop)
	o.KerberosClient = nil
	o.KerberosServicePrincipleName = t.service
	return o
}

// resolve finds out what a host of an address means: a name service of the settings
// or of hdfs-site.xml, or a namenode; an empty one is the file system that
// core-site.xml names.
func resolve(host string, conf *config) (target, error) {
	hadoop, err := loadHadoop(conf.confDir)
	if err != nil {
		return target{}, err
	}
	if host == "" {
		if host, err = defaultHost(hadoop); err != nil {
			return target{}, err
		}
	}
	t := target{hadoop: hadoop, byName: get(hadoop, "dfs.client.use.datanode.hostname") == "true"}
	if t.addresses, err = namenodes(host, hadoop, conf); err != nil {
		return target{}, err
	}
	if n := get(hadoop, "dfs.replication"); n != "" {
		if t.replication, err = strconv.Atoi(n); err != nil || t.replication < 1 {
			return target{}, fmt.Errorf("dfs.replication of the Hadoop settings is %q, which is no number of copies", n)
		}
	}
	if n := get(hadoop, "dfs.blocksize"); n != "" && conf.blockSize == 0 {
		if conf.blockSize, err = hadoopSize(n); err != nil {
			return target{}, fmt.Errorf("dfs.blocksize of the Hadoop settings is %q, which is no size", n)
		}
	}
	return t, secure(&t, conf)
}

// secure settles who to be and how data is protected.
func secure(t *target, conf *config) error {
	needed := strings.EqualFold(get(t.hadoop, "hadoop.security.authentication"), "kerberos")
	k := conf.kerberos
	if k == nil {
		if needed {
			return errors.New("the Hadoop settings ask for Kerberos (hadoop.security.authentication): set storage.hdfs.kerberos.principal and storage.hdfs.kerberos.keytab")
		}
		return nil
	}
	t.service = k.service
	if t.service == "" {
		t.service = get(t.hadoop, "dfs.namenode.kerberos.principal")
	}
	// The realm of a service is found by krb5.conf.
	if t.service, _, _ = strings.Cut(t.service, "@"); t.service == "" {
		return errors.New("the principal of the namenodes is not known: set storage.hdfs.kerberos.service_principal, such as nn/_HOST, or dfs.namenode.kerberos.principal in hdfs-site.xml")
	}
	if k.protection != "" {
		t.hadoop["dfs.data.transfer.protection"] = k.protection
	}
	if have := t.options().DataTransferProtection; have != "" && !slices.Contains(protections, have) {
		return fmt.Errorf("dfs.data.transfer.protection is %s: %s", have, protectionAdvice)
	}
	return nil
}

// namenodes are the addresses of a host.
func namenodes(host string, hadoop hadoopconf.HadoopConf, conf *config) ([]string, error) {
	name, _, portErr := net.SplitHostPort(host)
	if portErr != nil {
		name = host
	}
	list, err := service(name, hadoop, conf)
	switch {
	case err != nil:
		return nil, err
	case list != nil && portErr == nil:
		return nil, fmt.Errorf("%s is a name service, whose namenodes have ports of their own: leave the port out", name)
	case list != nil:
		return list, nil
	case portErr == nil:
		return []string{host}, nil
	}
	return []string{net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)}, nil
}

// service is the namenodes of a name service, nil where the name is none.
func service(name string, hadoop hadoopconf.HadoopConf, conf *config) ([]string, error) {
	if list := conf.nameservices[name]; list != nil {
		return list, nil
	}
	if ids := split(get(hadoop, "dfs.ha.namenodes."+name)); len(ids) > 0 {
		var out []string
		for _, id := range ids {
			key := "dfs.namenode.rpc-address." + name + "." + id
			address := get(hadoop, key)
			if address == "" {
				return nil, fmt.Errorf("hdfs-site.xml lists the namenode %s of %s, but has no %s", id, name, key)
			}
			out = append(out, address)
		}
		return out, nil
	}
	if address := get(hadoop, "dfs.namenode.rpc-address."+name); address != "" {
		return []string{address}, nil
	}
	for _, one := range split(get(hadoop, "dfs.nameservices")) {
		if one == name {
			if address := get(hadoop, "dfs.namenode.rpc-address"); address != "" {
				return []string{address}, nil
			}
			return nil, fmt.Errorf("hdfs-site.xml names the name service %s, but not its namenodes (dfs.ha.namenodes.%s)", name, name)
		}
	}
	return nil, nil
}

func defaultHost(hadoop hadoopconf.HadoopConf) (string, error) {
	for _, key := range []string{"fs.defaultFS", "fs.default.name"} {
		if host, ok := strings.CutPrefix(get(hadoop, key), "hdfs://"); ok {
			return strings.TrimRight(host, "/"), nil
		}
	}
	return "", errors.New("it names no namenode or name service, and there is no core-site.xml whose fs.defaultFS does: write hdfs://HOST:8020/PATH, or set HADOOP_CONF_DIR")
}

// loadHadoop reads Hadoop's settings files. Without a folder that was named there need
// not be any.
func loadHadoop(dir string) (hadoopconf.HadoopConf, error) {
	tried := []string{dir}
	if dir == "" {
		tried = nil
		if env := os.Getenv("HADOOP_CONF_DIR"); env != "" {
			tried = append(tried, env)
		}
		if home := os.Getenv("HADOOP_HOME"); home != "" {
			tried = append(tried, filepath.Join(home, "etc", "hadoop"))
		}
	}
	for _, at := range tried {
		conf, err := hadoopconf.Load(at)
		if err != nil {
			return nil, fmt.Errorf("read the Hadoop settings: %w", err)
		}
		if conf != nil {
			return conf, nil
		}
	}
	if dir != "" {
		return nil, fmt.Errorf("there is no core-site.xml or hdfs-site.xml in %s (storage.hdfs.hadoop_conf_dir)", dir)
	}
	return hadoopconf.HadoopConf{}, nil
}

// get is a value of Hadoop's settings, with other values put in for ${name} as Hadoop does.
func get(hadoop hadoopconf.HadoopConf, key string) string {
	value := hadoop[key]
	for range 20 {
		before, rest, ok := strings.Cut(value, "${")
		name, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			break
		}
		with, known := hadoop[name]
		if env, isEnv := strings.CutPrefix(name, "env."); !known && isEnv {
			with = os.Getenv(env)
		}
		value = before + with + after
	}
	return strings.TrimSpace(value)
}

func split(list string) (out []string) {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" {
			out = append(out, one)
		}
	}
	return out
}

// hadoopSize reads a size as Hadoop writes them: 134217728 or 128m.
func hadoopSize(text string) (int64, error) {
	shift := map[byte]int{'k': 10, 'm': 20, 'g': 30, 't': 40}[strings.ToLower(text[len(text)-1:])[0]]
	if shift > 0 {
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && (n <= 0 || n > 1<<50>>shift) {
		err = strconv.ErrRange
	}
	return n << shift, err
}
