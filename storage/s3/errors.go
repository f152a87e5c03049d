package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// kind says what an error asks for.
type kind int

const (
	transient kind = iota // trying again may help
	brief                 // trying again helps soon or never
	settled               // an answer that the caller understands, or a request that is wrong
	person                // somebody has to change something
)

// Error is a request that a server refused or did not answer. What only a person can
// mend (no such bucket, wrong keys, no permission, wrong region, an untrusted
// certificate) matches fs.ErrPermission; a missing object or upload fs.ErrNotExist.
type Error struct {
	Bucket, Key string
	Op          string // as the API calls it
	Status      int    // of HTTP; 0 where no answer came
	Code        string // of S3; may be empty
	RequestID   string
	Help        string // what to do

	kind    kind
	slow    bool // the server asks for fewer requests
	unknown bool // the request may have been carried out all the same
	tries   int
	cause   error
}

// Error says what was refused, how, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "s3: %s", e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " of %q", e.Key)
	}
	fmt.Fprintf(&b, " in bucket %s", e.Bucket)
	switch {
	case e.Status != 0:
		fmt.Fprintf(&b, ": HTTP %d %s", e.Status, e.Code)
	case e.Code != "":
		b.WriteString(": " + e.Code)
	}
	if text := reason(e.cause); text != "" {
		b.WriteString(": " + text)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (request %s)", e.RequestID)
	}
	if e.tries > 1 {
		fmt.Fprintf(&b, ", after %d tries", e.tries)
	}
	if e.Help != "" {
		b.WriteString("; " + e.Help)
	}
	return b.String()
}

// Advice is what to do, apart from the text that ends with it.
func (e *Error) Advice() (key, help string) { return "", e.Help }

// Unwrap gives what the client of the API reported.
func (e *Error) Unwrap() error { return e.cause }

// Is matches the errors of io/fs.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrPermission:
		return e.kind == person
	case fs.ErrNotExist:
		return e.missing()
	case syscall.ENOTDIR:
		return e.Code == "ObjectParentIsFile" || e.Code == "ExistingObjectIsDirectory"
	}
	return false
}

// missing reports that an object or an upload is not there.
func (e *Error) missing() bool {
	return e.Code == "NoSuchKey" || e.Code == "NoSuchUpload" || e.Status == http.StatusNotFound && e.Code == "NotFound"
}

// reason is the innermost text worth reading.
func reason(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorMessage()
	}
	if op, ok := errors.AsType[*smithy.OperationError](err); ok {
		err = op.Err
	}
	if send, ok := errors.AsType[interface {
		error
		ConnectionError() bool
	}](err); ok {
		if in := errors.Unwrap(send); in != nil {
			err = in
		}
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// Codes of S3 and of servers that speak its protocol, by what they ask for. A code in
// none of these is judged by its status.
var (
	retryCodes = []string{
		"InternalError", "ServiceUnavailable", "RequestTimeout", "OperationAborted", "ConditionalRequestConflict", "BadDigest",
		"IncompleteBody", "XAmzContentSHA256Mismatch", "TemporaryRedirect", "ServerNotInitialized", "SlowDownRead", "SlowDownWrite",
	}
	slowCodes = []string{"SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "RequestLimitExceeded", "BandwidthLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequests", "RequestThrottled"}
	// settledCodes are answers also where they come late, in the body of an answer that
	// began with success: the client of the API gives those the status 500.
	settledCodes = []string{"PreconditionFailed", "NoSuchUpload", "NoSuchKey", "InvalidPart", "InvalidPartOrder", "EntityTooSmall", "EntityTooLarge", "MalformedXML", "InvalidRequest"}
	briefCodes   = []string{"RequestTimeTooSkewed", "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
)

// help says what a person can do about a code.
var help = map[string]string{
	"NoSuchBucket":                       "make the bucket, or correct its name in the address",
	"InvalidBucketName":                  "correct the bucket's name in the address",
	"AccessDenied":                       "allow s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket, s3:ListBucketMultipartUploads, s3:ListMultipartUploadParts and s3:AbortMultipartUpload to these credentials, below this prefix",
	"Forbidden":                          "look at what these credentials may do: reading a missing object needs s3:ListBucket too",
	"AllAccessDisabled":                  "access to the bucket is switched off: ask its owner",
	"AccountProblem":                     "the account of these credentials has a problem: ask its owner",
	"InvalidAccessKeyId":                 "the server does not know the access key: correct AWS_ACCESS_KEY_ID or storage.s3.access_key_id, or look at the endpoint",
	"XAdminUserNotFound":                 "the server does not know the access key: correct AWS_ACCESS_KEY_ID or storage.s3.access_key_id",
	"SignatureDoesNotMatch":              "the secret key does not belong to the access key: correct AWS_SECRET_ACCESS_KEY or storage.s3.secret_access_key; a proxy that changes requests does this too",
	"InvalidToken":                       "the session token is not valid: get new credentials",
	"ExpiredToken":                       "the session token has expired: get new credentials",
	"ExpiredTokenException":              "the session token has expired: get new credentials",
	"RequestTimeTooSkewed":               "the clock of this machine is too far from the server's: set it, as NTP does",
	"PermanentRedirect":                  "the bucket is in another region or at another endpoint: set storage.s3.region or AWS_REGION",
	"MovedPermanently":                   "the bucket is in another region or at another endpoint: set storage.s3.region or AWS_REGION",
	"AuthorizationHeaderMalformed":       "the region is probably wrong: set storage.s3.region or AWS_REGION",
	"IllegalLocationConstraintException": "the region is probably wrong: set storage.s3.region or AWS_REGION",
	"MethodNotAllowed":                   "the endpoint does not speak S3 here: look at storage.s3.endpoint and storage.s3.path_style",
	"QuotaExceeded":                      "the bucket or its disk is full: make room or raise the quota",
	"ObjectParentIsFile":                 "this server keeps keys as paths, and a part of this one is a file: choose another prefix",
	"ExistingObjectIsDirectory":          "this server keeps keys as paths, and this one is a folder: choose another prefix",
	"EntityTooSmall":                     "raise storage.s3.part_size to what the server asks for",
	"InvalidRange":                       "the object is shorter than it was",
}

// forPerson are the codes that only a person can do something about.
var forPerson = []string{
	"NoSuchBucket", "InvalidBucketName", "AccessDenied", "Forbidden", "AllAccessDisabled", "AccountProblem", "InvalidAccessKeyId",
	"XAdminUserNotFound", "SignatureDoesNotMatch", "InvalidToken", "PermanentRedirect", "MovedPermanently", "AuthorizationHeaderMalformed",
	"IllegalLocationConstraintException", "MethodNotAllowed",
}

// classify makes an Error of what the client of the API reported. ctx is the caller's.
func classify(bucket, op, key string, err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := &Error{Bucket: bucket, Key: key, Op: op, cause: err}
	if resp, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		e.Status, e.RequestID = resp.HTTPStatusCode(), resp.ServiceRequestID()
	}
	api, readable := errors.AsType[smithy.APIError](err)
	if readable && e.Status != 0 {
		e.Code = api.ErrorCode()
	}
	if e.Code == "" || e.Code == "UnknownError" {
		e.Code = strings.ReplaceAll(http.StatusText(e.Status), " ", "")
	}
	if e.Status == 0 || e.Status < 300 {
		e.connection(err)
		return e
	}
	if !readable { // an answer that broke off, or one of something in between
		e.unknown, e.Code = true, ""
		return e
	}
	e.judge()
	if at := region(err); at != "" && e.kind == person {
		e.Help = fmt.Sprintf("the bucket is in region %s: set storage.s3.region or AWS_REGION to it", at)
	}
	return e
}

// judge decides by the server's answer.
func (e *Error) judge() {
	e.Help = help[e.Code]
	e.unknown = e.Status >= 500 && e.Status != http.StatusNotImplemented && !slices.Contains(settledCodes, e.Code)
	e.slow = e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable || slices.Contains(slowCodes, e.Code)
	switch {
	case slices.Contains(briefCodes, e.Code):
		e.kind = brief
	case slices.Contains(forPerson, e.Code) || strings.HasPrefix(e.Code, "KMS."):
		e.kind = person
		if strings.HasPrefix(e.Code, "KMS.") {
			e.Help = "look at the key of storage.s3.kms_key_id and at who may use it"
		}
	case e.Status == http.StatusNotImplemented:
		e.kind = settled
		e.Help = "this server does not know what was asked of it"
	case e.unknown, e.slow, slices.Contains(retryCodes, e.Code), e.Status == http.StatusRequestTimeout, e.Status == http.StatusTemporaryRedirect:
		e.kind = transient
	default:
		e.kind = settled
	}
}

// connection decides where no answer came, or none that can be read.
func (e *Error) connection(err error) {
	e.kind, e.unknown = transient, true
	var auth *x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &auth), isUnknownAuthority(err):
		e.kind, e.Help = person, "name the CA of the server in storage.s3.ca_file or AWS_CA_BUNDLE"
	case errors.As(err, &host), errors.As(err, &invalid):
		e.kind, e.Help = person, "the certificate does not fit the endpoint: look at storage.s3.endpoint and at the certificate"
	case errors.As(err, &record):
		e.kind, e.Help = person, "the endpoint does not speak TLS there: write http:// in storage.s3.endpoint"
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		e.kind, e.Help = person, "the endpoint does not speak TLS there: write http:// in storage.s3.endpoint"
	case strings.Contains(err.Error(), "refresh cached credentials"), strings.Contains(err.Error(), "get identity:"):
		e.kind, e.unknown = brief, false
		e.Help = "give credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, storage.s3.profile, a web identity or an instance role"
	case errors.Is(err, errSetup):
		e.kind, e.Help = person, "look at storage.s3.ca_file, storage.s3.profile and the variables AWS_…"
	}
	if e.kind == person {
		e.unknown = false
	}
}

func isUnknownAuthority(err error) bool {
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

// region is where a server says that a bucket is.
func region(err error) string {
	resp, ok := errors.AsType[*awshttp.ResponseError](err)
	if !ok || resp.Response == nil || resp.Response.Response == nil {
		return ""
	}
	return resp.Response.Header.Get("X-Amz-Bucket-Region")
}

// errSetup marks a client that cannot be made from its settings.
var errSetup = errors.New("the client cannot be set up")

// taken is a name that is in use.
func taken(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrExist} }

// status is the HTTP status of an error; 0 for none.
func status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// unmet reports whether a condition of a request was not met: a name is taken, or an
// object is another one by now.
func unmet(err error) bool {
	return status(err) == http.StatusPreconditionFailed || hasCode(err, "PreconditionFailed")
}

func hasCode(err error, codes ...string) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && slices.Contains(codes, e.Code)
}

// cancelled wraps the end of a caller's context.
func cancelled(ctx context.Context, op, key string) error {
	return fmt.Errorf("s3: %s of %q: %w", op, key, ctx.Err())
}

// errShort is a body that ended early.
var errShort = fmt.Errorf("the answer ended early: %w", io.ErrUnexpectedEOF)
