package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/colinmarc/hdfs/v2"
)

// finalError is one that trying again does not help against.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// final marks an error as one that is not worth another try.
func final(err error) error { return finalError{err} }

// errNoFolder is a file in the place of a folder.
var errNoFolder = errors.New("a file stands where a folder is needed")

// exceptions are what the namenode's refusals mean; what is not here is tried again.
var exceptions = map[string]error{
	"java.io.FileNotFoundException":                                                       fs.ErrNotExist,
	"org.apache.hadoop.fs.FileAlreadyExistsException":                                     fs.ErrExist,
	"org.apache.hadoop.security.AccessControlException":                                   fs.ErrPermission,
	"org.apache.hadoop.security.authorize.AuthorizationException":                         fs.ErrPermission,
	"org.apache.hadoop.fs.ParentNotDirectoryException":                                    errNoFolder,
	"org.apache.hadoop.hdfs.protocol.NSQuotaExceededException":                            errQuota,
	"org.apache.hadoop.hdfs.protocol.DSQuotaExceededException":                            errQuota,
	"org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException":                 errQuota,
	"org.apache.hadoop.hdfs.protocol.QuotaExceededException":                              errQuota,
	"org.apache.hadoop.HadoopIllegalArgumentException":                                    fs.ErrInvalid,
	"org.apache.hadoop.fs.InvalidPathException":                                           fs.ErrInvalid,
	"org.apache.hadoop.fs.FSLimitException$PathComponentTooLongException":                 fs.ErrInvalid,
	"org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException":      fs.ErrInvalid,
	"org.apache.hadoop.hdfs.protocol.FSLimitException$MaxDirectoryItemsExceededException": errFull,
	"org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException":                      fs.ErrPermission,
	"org.apache.hadoop.ipc.RpcNoSuchMethodException":                                      errors.ErrUnsupported,
}

var (
	errQuota = errors.New("the quota of the folder is used up: ask for a larger one (hdfs dfsadmin -setSpaceQuota, -setQuota), or retain fewer checkpoints")
	errFull  = errors.New("the folder holds as many files as the cluster allows (dfs.namenode.fs-limits.max-directory-items)")
)

// translate makes an answer of the namenode an error that says what it said, that
// matches what the contract demands, and that is final where trying again is in vain.
func translate(err error) error {
	var remote hdfs.Error
	if !errors.As(err, &remote) {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrPermission), errors.Is(err, os.ErrInvalid):
			return final(err)
		}
		return err
	}
	said, _, _ := strings.Cut(remote.Message(), "\n")
	meaning, known := exceptions[remote.Exception()]
	if !known {
		return fmt.Errorf("the namenode refuses %s: %s (%w)", remote.Method(), said, err)
	}
	return final(fmt.Errorf("%s: %w", strings.TrimSpace(said), meaning))
}

// answered reports whether an error came from a connection that is in order: the
// namenode understood and said no.
func answered(err error) bool {
	var remote hdfs.Error
	return err == nil || errors.As(err, &finalError{}) || errors.As(err, &remote) || errors.Is(err, syscall.ENOTEMPTY)
}

// lasting reports whether an error stays, however often the call is repeated.
func lasting(err error) bool {
	return errors.As(err, &finalError{}) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// absent makes a file in the place of a folder an absence: what would be below it is not there.
func absent(err error) error {
	if errors.Is(err, errNoFolder) {
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	return err
}
