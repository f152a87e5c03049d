package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/colinmarc/hdfs/v2"
)

// remote is a refusal by a namenode.
type remote struct{ exception, message string }

func (r remote) Error() string     { return "call failed" }
func (r remote) Method() string    { return "create" }
func (r remote) Desc() string      { return "ERROR_APPLICATION" }
func (r remote) Exception() string { return r.exception }
func (r remote) Message() string   { return r.message }

var _ hdfs.Error = remote{}

func TestWhatRefusalsMean(t *testing.T) {
	for _, c := range []struct {
		exception string
		want      error
		lasts     bool
	}{
		{"java.io.FileNotFoundException", fs.ErrNotExist, true},
		{"org.apache.hadoop.fs.FileAlreadyExistsException", fs.ErrExist, true},
		{"org.apache.hadoop.security.AccessControlException", fs.ErrPermission, true},
		{"org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", errQuota, true},
		{"org.apache.hadoop.fs.ParentNotDirectoryException", errNoFolder, true},
		{"org.apache.hadoop.hdfs.server.namenode.SafeModeException", nil, false},
		{"org.apache.hadoop.ipc.RetriableException", nil, false},
		{"org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", nil, false},
		{"java.io.IOException", nil, false},
	} {
		err := translate(&fs.PathError{Op: "create", Path: "/x", Err: remote{c.exception, "why it is so\n\tat a.b.C"}})
		if !strings.Contains(err.Error(), "why it is so") || strings.Contains(err.Error(), "a.b.C") {
			t.Errorf("%s: the error says %q", c.exception, err)
		}
		if c.want != nil && !errors.Is(err, c.want) || lasting(err) != c.lasts || !answered(err) {
			t.Errorf("%s: %v, lasting %v", c.exception, err, lasting(err))
		}
	}
	if err := translate(net.ErrClosed); lasting(err) || answered(err) {
		t.Error("a broken connection is taken for an answer")
	}
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := &cluster{name: "prod"}
		begin, calls := time.Now(), 0
		err := cl.retry(t.Context(), time.Minute, func() error { calls++; return net.ErrClosed })
		if spent := time.Since(begin); !errors.Is(err, net.ErrClosed) || spent > time.Minute || spent < 50*time.Second || calls < 10 || calls > 40 {
			t.Errorf("after %s and %d calls: %v", spent, calls, err)
		}
		calls = 0
		if err := cl.retry(t.Context(), time.Minute, func() error { calls++; return final(fs.ErrExist) }); !errors.Is(err, fs.ErrExist) || calls != 1 {
			t.Errorf("a final error after %d calls: %v", calls, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin = time.Now()
		if err := cl.retry(ctx, time.Minute, func() error { return net.ErrClosed }); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, net.ErrClosed) || time.Since(begin) != 3*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

func TestAdviceOnKerberos(t *testing.T) {
	for said, want := range map[string]string{
		"KDC did not respond appropriately to the AS_REQ: KRB Error: (37) KRB_AP_ERR_SKEW Clock skew too great": "synchronise",
		"KRB Error: (6) KDC_ERR_C_PRINCIPAL_UNKNOWN Client not found in Kerberos database":                      "kerberos.principal",
		"KRB Error: (24) KDC_ERR_PREAUTH_FAILED Pre-authentication information was invalid":                     "export the keytab anew",
		"no available namenodes: SASL handshake: (7) KDC_ERR_S_PRINCIPAL_UNKNOWN":                               "service_principal",
	} {
		err := explain(errors.New(said))
		if !strings.Contains(err.Error(), want) || !lasting(err) {
			t.Errorf("%s: %v", said, err)
		}
	}
	if err := explain(errors.New("failed to communicate with KDC")); lasting(err) {
		t.Error("a KDC that is down is not tried again")
	}
}

// TestTheLibraryIsAsThisPackageNeedsIt: the requests that replace nothing can be sent.
func TestTheLibraryIsAsThisPackageNeedsIt(t *testing.T) {
	if _, err := namenodeOf(&hdfs.Client{}); err != nil {
		t.Error(err)
	}
	for name, fields := range map[string][]string{
		"Rename2": {"src", "dst", "overwriteDest"}, "Delete": {"src", "recursive"}, "Mkdirs": {"src", "masked", "createParent"},
		"GetFileInfo": {"src"}, "GetListing": {"src", "startAfter", "needLocation"},
		"AddBlock": {"src", "clientName", "fileId", "excludeNodes"}, "AbandonBlock": {"b", "src", "holder", "fileId"},
	} {
		req, err := message(name+"RequestProto", nil)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, field := range fields {
			if req.ProtoReflect().Descriptor().Fields().ByTextName(field) == nil {
				t.Errorf("%s has no %s", name, field)
			}
		}
		if _, err := message(name+"ResponseProto", nil); err != nil {
			t.Error(err)
		}
	}
}
