package hdfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

func TestSettings(t *testing.T) {
	conf, err := parse(map[string]any{
		"user": "etl", "hadoop_conf_dir": "/etc/hadoop/conf", "spool_dir": t.TempDir(), "replication": 2, "block_size": "64MiB",
		"connect_timeout": "1s", "namenode_timeout": "2s", "datanode_timeout": "3s", "retry": "4s", "write_retry": "5s",
		"nameservices": map[string]any{"prod": []any{"nn1:8020", "nn2:8020"}, "test": "a:1, b:2"},
		"kerberos":     map[string]any{"principal": "etl@A", "keytab": "/k", "krb5_conf": "/c", "service_principal": "nn/_HOST", "data_transfer_protection": "privacy"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if conf.user != "etl" || conf.replication != 2 || conf.blockSize != 64<<20 || conf.writeRetry != 5*time.Second ||
		!slices.Equal(conf.nameservices["test"], []string{"a:1", "b:2"}) || *conf.kerberos != (kerberos{"etl@A", "/k", "/c", "nn/_HOST", "privacy"}) {
		t.Fatalf("%+v", conf)
	}
}

// TestBadSettings: all faults are told at once, each with its key and what to write.
func TestBadSettings(t *testing.T) {
	bad := map[string]any{
		"user": "", "spool_dir": "/no/such", "replication": "many", "block_size": "1000", "retry": "soon", "write_retry": "-1s", "namenode_timeout": 5,
		"nameservices": map[string]any{"prod": []any{"nn1"}, "none": 7, "port": "a:99999"}, "usr": "x", "pa%sy": 1,
		"kerberos": map[string]any{"principal": "etl@A", "qop": "x", "data_transfer_protection": "some"},
	}
	_, err := parse(bad)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"user is empty: write a text", "spool_dir is /no/such", "replication is many: write a whole number", "block_size is 1000: write a size", "retry is soon: write a duration",
		"write_retry is -1s", "namenode_timeout is 5", `nameservices.prod has the address "nn1": write host:port`, "nameservices.none is 7", "nameservices.port has",
		"usr is no setting; there are user, hadoop_conf_dir", "pa%sy is no setting", "kerberos.qop is no setting; there are principal, keytab",
		"kerberos.data_transfer_protection is some: write authentication, privacy", "kerberos needs both principal and keytab",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not told: %q", want)
		}
	}
	for key := range bad {
		if _, err := parse(map[string]any{key: nil}); err == nil || strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: nothing is accepted, or called nil: %v", key, err)
		}
	}
}

// TestEverySettingIsRead: what is documented is what is understood.
func TestEverySettingIsRead(t *testing.T) {
	for _, s := range storage.SettingsOf()["hdfs"].Known {
		values := map[string]any{s.Key: struct{}{}}
		if parent, child, nested := strings.Cut(s.Key, "."); nested {
			values = map[string]any{parent: map[string]any{child: struct{}{}}}
		}
		if _, err := parse(values); err == nil || strings.Contains(err.Error(), "is no setting") {
			t.Errorf("%s: %v", s.Key, err)
		}
		if s.Default != "" {
			if _, err := parse(map[string]any{s.Key: s.Default}); err != nil {
				t.Error(err)
			}
		}
	}
}

const coreSite = `<configuration>
  <property><name>fs.defaultFS</name><value>hdfs://prod</value></property>
  <property><name>hadoop.security.authentication</name><value>SECURITY</value></property>
</configuration>`

const hdfsSite = `<configuration>
  <property><name>dfs.nameservices</name><value>prod,other,bare,lost</value></property>
  <property><name>dfs.ha.namenodes.prod</name><value>a, b</value></property>
  <property><name>dfs.namenode.rpc-address.prod.a</name><value>${first.host}:8020</value></property>
  <property><name>dfs.namenode.rpc-address.prod.b</name><value>nn2:8020</value></property>
  <property><name>dfs.namenode.rpc-address.other</name><value>nn3:8020</value></property>
  <property><name>dfs.ha.namenodes.broken</name><value>a</value></property>
  <property><name>first.host</name><value>nn1</value></property>
  <property><name>dfs.replication</name><value>2</value></property>
  <property><name>dfs.blocksize</name><value>64m</value></property>
  <property><name>dfs.namenode.kerberos.principal</name><value>nn/_HOST@A</value></property>
</configuration>`

func hadoopDir(t *testing.T, security string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"core-site.xml": strings.ReplaceAll(coreSite, "SECURITY", security), "hdfs-site.xml": hdfsSite} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAddresses(t *testing.T) {
	t.Setenv("HADOOP_CONF_DIR", hadoopDir(t, "simple"))
	conf := defaults()
	conf.nameservices = map[string][]string{"set": {"x:1", "y:2"}}
	for host, want := range map[string]string{
		"":           "nn1:8020,nn2:8020",
		"prod":       "nn1:8020,nn2:8020",
		"other":      "nn3:8020",
		"set":        "x:1,y:2",
		"nn9":        "nn9:8020",
		"nn9:9000":   "nn9:9000",
		"[::1]":      "[::1]:8020",
		"[::1]:9000": "[::1]:9000",
		"prod:8020":  "error: prod is a name service, whose namenodes have ports of their own: leave the port out",
		"broken":     "error: hdfs-site.xml lists the namenode a of broken, but has no dfs.namenode.rpc-address.broken.a",
		"lost":       "error: hdfs-site.xml names the name service lost, but not its namenodes (dfs.ha.namenodes.lost)",
	} {
		c := conf
		got, err := resolve(host, &c)
		text := strings.Join(got.addresses, ",")
		if err != nil {
			text = "error: " + err.Error()
		}
		if text != want {
			t.Errorf("%q is %s, want %s", host, text, want)
		}
		if err == nil && (got.replication != 2 || c.blockSize != 64<<20) {
			t.Errorf("%q: %d copies, blocks of %d", host, got.replication, c.blockSize)
		}
	}
}

func TestAddressesWithoutHadoopSettings(t *testing.T) {
	t.Setenv("HADOOP_CONF_DIR", "")
	t.Setenv("HADOOP_HOME", "")
	conf := defaults()
	if _, err := resolve("", &conf); err == nil || !strings.Contains(err.Error(), "set HADOOP_CONF_DIR") {
		t.Error(err)
	}
	conf.confDir = t.TempDir()
	if _, err := resolve("nn", &conf); err == nil || !strings.Contains(err.Error(), "storage.hdfs.hadoop_conf_dir") {
		t.Error(err)
	}
}

func TestKerberosIsAskedFor(t *testing.T) {
	conf := defaults()
	conf.confDir = hadoopDir(t, "kerberos")
	if _, err := resolve("prod", &conf); err == nil || !strings.Contains(err.Error(), "set storage.hdfs.kerberos.principal") {
		t.Error(err)
	}
	conf.kerberos = &kerberos{principal: "etl@A", keytab: "/k"}
	if got, err := resolve("prod", &conf); err != nil || got.service != "nn/_HOST" {
		t.Errorf("%+v, %v", got.service, err)
	}
	conf.kerberos.protection = "integrity" // as hdfs-site.xml may have it
	if _, err := resolve("prod", &conf); err == nil || !strings.Contains(err.Error(), "cannot read") {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	t.Setenv("HADOOP_CONF_DIR", "")
	t.Setenv("HADOOP_HOME", "")
	for address, want := range map[string]string{
		"hdfs://nn:8020/a//b/": "hdfs://nn:8020/a/b",
		"hdfs://nn":            "hdfs://nn/",
		"hdfs://nn/a:b":        "error",
		"hdfs:///a":            "error",
	} {
		u, err := storage.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		r := &registry{conf: defaults(), opened: map[string]*cluster{}}
		got := "error"
		if f, err := r.open(u); err == nil {
			got = f.URL()
		}
		if got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
}

// TestEverySettingIsShown: the settings file shows each key with its default and what it says.
func TestEverySettingIsShown(t *testing.T) {
	file, err := os.ReadFile("../../configs/etl.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(file), "#   hdfs:")
	docs, err := os.ReadFile("../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range known {
		line := s.Key[strings.LastIndex(s.Key, ".")+1:] + ":"
		if s.Default != "" {
			line += " " + s.Default
		}
		if !strings.Contains(shown, " "+line+"  # "+s.Doc+"\n") {
			t.Errorf("configs/etl.yaml lacks %s  # %s", line, s.Doc)
		}
		value := ""
		if s.Default != "" {
			value = "`" + s.Default + "`"
		}
		if row := "| `" + s.Key + "` | " + value + " | " + s.Doc + " |\n"; !strings.Contains(string(docs), row) {
			t.Errorf("docs/storage.md lacks the row %s", row)
		}
	}
}
