//go:build integration

package hdfs

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestASecuredHDFSKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS { return breakable(t, nil) })
}

// principal makes a principal with a keytab.
func principal(t *testing.T, f *FS, name, options string) *kerberos {
	t.Helper()
	k := *f.cluster.conf.kerberos
	k.principal, k.keytab = name+"@SLUICE.TEST", t.TempDir()+"/keytab"
	run(t, "kadmin", "addprinc -randkey "+options+" "+name)
	run(t, "kadmin", "ktadd -k "+k.keytab+" "+name)
	return &k
}

// TestTicketsAreRenewed: connections are made also after the ticket of the first one has ended.
func TestTicketsAreRenewed(t *testing.T) {
	f := breakable(t, nil)
	f.cluster.conf.kerberos = principal(t, f, "brief-"+token(), `-maxlife "3 sec" -maxrenewlife "0 sec"`)
	f.cluster.logins.conf = f.cluster.conf.kerberos
	// Others may not write where the tests' user may.
	for begin := time.Now(); time.Since(begin) < 8*time.Second; {
		if _, err := f.Files(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		f.cluster.forget()
	}
}

func TestWhatKerberosRefuses(t *testing.T) {
	f := breakable(t, nil)
	name := "refused-" + token()
	k := principal(t, f, name, "")
	try := func(k kerberos) error {
		cl := newCluster("secured", f.cluster.conf, f.cluster.target)
		cl.conf.kerberos, cl.logins.conf = &k, &k
		if k.service != "" {
			cl.target.service = k.service
		}
		defer cl.shut()
		_, err := (&FS{cluster: cl, root: "/"}).Files(t.Context(), "")
		return err
	}
	if err := try(*k); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(k *kerberos)
		want   string
	}{
		"another principal":   {func(k *kerberos) { k.principal = "etl@SLUICE.TEST" }, "has no key of etl@SLUICE.TEST, only of " + name},
		"no keytab":           {func(k *kerberos) { k.keytab += ".gone" }, "storage.hdfs.kerberos.keytab"},
		"no krb5.conf":        {func(k *kerberos) { k.krb5Conf += ".gone" }, "storage.hdfs.kerberos.krb5_conf"},
		"an unknown namenode": {func(k *kerberos) { k.service = "nn/elsewhere" }, "storage.hdfs.kerberos.service_principal"},
	} {
		changed := *k
		c.change(&changed)
		if err := try(changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	run(t, "kadmin", "modprinc -allow_tix "+name)
	if err := try(*k); err == nil || !strings.Contains(err.Error(), "unlocked") {
		t.Errorf("a locked principal: %v", err)
	}
	run(t, "kadmin", "modprinc +allow_tix "+name)
	run(t, "kadmin", "cpw -randkey "+name)
	if err := try(*k); err == nil || !strings.Contains(err.Error(), "anew") {
		t.Errorf("keys that were changed: %v", err)
	}
	run(t, "kadmin", "delprinc -force "+name)
	if err := try(*k); err == nil || !strings.Contains(err.Error(), "storage.hdfs.kerberos.principal") {
		t.Errorf("a principal that was removed: %v", err)
	}
}

// TestAClusterThatWantsKerberos: without it the error says so.
func TestAClusterThatWantsKerberos(t *testing.T) {
	f := breakable(t, map[string]any{"retry": "1s"})
	f.cluster.conf.kerberos, f.cluster.conf.user = nil, "etl"
	if _, err := f.Files(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "Kerberos") {
		t.Fatal(err)
	}
}
