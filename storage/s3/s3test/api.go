package s3test

import (
	"bytes"
	"crypto/md5" //nolint:gosec // what S3 calls an ETag
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// handle carries a request out.
func (s *Server) handle(c *call) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.behaviour.AccessKey; k != "" && !strings.Contains(c.header.Get("Authorization"), "Credential="+k+"/") {
		return fail(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	}
	b := s.buckets[c.bucket]
	if b == nil {
		return fail(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
	}
	if strings.HasPrefix(c.header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		var err error
		if c.body, err = unchunk(c.body); err != nil {
			return fail(http.StatusBadRequest, "IncompleteBody", err.Error())
		}
	}
	switch c.op {
	case "HeadBucket":
		return &answer{status: http.StatusOK}
	case "PutObject":
		return s.putObject(b, c)
	case "GetObject", "HeadObject":
		return getObject(b, c)
	case "DeleteObject":
		delete(b.objects, c.key)
		return &answer{status: http.StatusNoContent}
	case "DeleteObjects":
		return s.deleteObjects(b, c)
	case "ListObjectsV2":
		return s.listObjects(b, c)
	case "ListMultipartUploads":
		return s.listUploads(b, c)
	case "GetBucketLifecycleConfiguration":
		return s.lifecycle()
	case "CreateMultipartUpload":
		s.next++
		u := &upload{key: c.key, id: fmt.Sprintf("upload-%08d", s.next), meta: metadata(c.header), parts: map[int]object{}}
		b.uploads[u.id] = u
		return document(struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string
		}{UploadId: u.id})
	}
	return s.ofUpload(b, c)
}

// lifecycle tells the rules of a bucket.
func (s *Server) lifecycle() *answer {
	switch code := s.behaviour.NoLifecycle; {
	case code == "NotImplemented":
		return fail(http.StatusNotImplemented, code, "A header you provided implies functionality that is not implemented.")
	case code != "":
		return fail(http.StatusForbidden, code, "Access Denied")
	case s.behaviour.Lifecycle == "":
		return fail(http.StatusNotFound, "NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist")
	}
	return &answer{status: http.StatusOK, body: []byte("<LifecycleConfiguration>" + s.behaviour.Lifecycle + "</LifecycleConfiguration>")}
}

// unchunk takes the framing of aws-chunked off.
func unchunk(body []byte) ([]byte, error) {
	var out []byte
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		size, err := strconv.ParseInt(strings.SplitN(string(line), ";", 2)[0], 16, 64)
		if !ok || err != nil || size > int64(len(rest)) {
			return nil, io.ErrUnexpectedEOF
		}
		if size == 0 {
			return out, nil
		}
		out = append(out, rest[:size]...)
		body = bytes.TrimPrefix(rest[size:], []byte("\r\n"))
	}
}

func metadata(h http.Header) http.Header {
	out := http.Header{}
	for name, v := range h {
		if strings.HasPrefix(name, "X-Amz-Meta-") || strings.HasPrefix(name, "X-Amz-Server-Side-Encryption") {
			out[name] = v
		}
	}
	return out
}

// condition checks If-None-Match; nil lets the write go on.
func condition(b *bucket, c *call, what Condition) *answer {
	if c.header.Get("If-None-Match") != "*" || what == Ignored {
		return nil
	}
	if what == Refused {
		return fail(http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented")
	}
	if _, there := b.objects[c.key]; there {
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
	}
	return nil
}

func (s *Server) putObject(b *bucket, c *call) *answer {
	if a := condition(b, c, s.behaviour.PutCondition); a != nil {
		return a
	}
	if want := c.header.Get("Content-Md5"); want != "" && want != md5Of(c.body) {
		return fail(http.StatusBadRequest, "BadDigest", "The Content-MD5 you specified did not match what we received.")
	}
	o := newObject(c.body, metadata(c.header))
	b.objects[c.key] = o
	return &answer{status: http.StatusOK, header: http.Header{"Etag": {o.etag}}}
}

func md5Of(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // as above
	return base64.StdEncoding.EncodeToString(sum[:])
}

func getObject(b *bucket, c *call) *answer {
	o, ok := b.objects[c.key]
	if !ok {
		return fail(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
	}
	if m := c.header.Get("If-Match"); m != "" && m != o.etag {
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
	}
	h := http.Header{"Etag": {o.etag}, "Last-Modified": {o.modified.UTC().Format(http.TimeFormat)}}
	maps.Copy(h, o.meta.Clone()) // a client writes into what it gets
	if c.op == "HeadObject" {
		h.Set("Content-Length", strconv.Itoa(len(o.data)))
		return &answer{status: http.StatusOK, header: h}
	}
	span, ok := strings.CutPrefix(c.header.Get("Range"), "bytes=")
	if !ok {
		return &answer{status: http.StatusOK, header: h, body: o.data}
	}
	first, last, _ := strings.Cut(span, "-")
	from, err := strconv.Atoi(first)
	if err != nil || from >= len(o.data) {
		return fail(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable")
	}
	to := len(o.data) - 1
	if n, err := strconv.Atoi(last); err == nil {
		to = min(to, n)
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(o.data)))
	return &answer{status: http.StatusPartialContent, header: h, body: o.data[from : to+1]}
}

func (s *Server) deleteObjects(b *bucket, c *call) *answer {
	if s.behaviour.NoBatchDelete {
		return fail(http.StatusNotImplemented, "NotImplemented", "This server deletes one object at a time.")
	}
	if c.header.Get("Content-Md5") != md5Of(c.body) {
		return fail(http.StatusBadRequest, "InvalidRequest", "Missing required header for this request: Content-MD5")
	}
	var in struct{ Object []struct{ Key string } }
	if err := xml.Unmarshal(c.body, &in); err != nil || len(in.Object) > 1000 {
		return fail(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed")
	}
	type refusal struct{ Key, Code, Message string }
	var out struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Error   []refusal
	}
	for _, o := range in.Object {
		one := &call{op: "DeleteObjects.Key", key: o.Key}
		if r := s.hitNamed(one); r != nil {
			switch r.Effect {
			case Denied:
				out.Error = append(out.Error, refusal{o.Key, "AccessDenied", "Access Denied"})
			default:
				out.Error = append(out.Error, refusal{o.Key, "InternalError", "We encountered an internal error. Please try again."})
			}
			continue
		}
		delete(b.objects, o.Key)
	}
	return document(out)
}

// hitNamed is hit for rules that name the operation.
func (s *Server) hitNamed(c *call) *Rule {
	all := s.rules
	defer func() { s.rules = all }()
	s.rules = slices.DeleteFunc(slices.Clone(all), func(r *Rule) bool { return r.Op != c.op })
	return s.hit(c)
}

// page is how a list goes on.
func (s *Server) page() int {
	if s.behaviour.PageSize > 0 {
		return s.behaviour.PageSize
	}
	return 1000
}

// marker is behind what a page begins.
func (s *Server) marker(c *call, name string) string {
	if s.behaviour.SamePage {
		return ""
	}
	return c.query.Get(name)
}

// encoded is a key as a list shows it.
func encoded(c *call, key string) string {
	if c.query.Get("encoding-type") != "url" {
		return key
	}
	return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/")
}

type listed struct {
	Key, ETag, LastModified string
	Size                    int
}

type prefixes struct{ Prefix string }

func (s *Server) listObjects(b *bucket, c *call) *answer {
	prefix, delimiter, after := c.query.Get("prefix"), c.query.Get("delimiter"), s.marker(c, "continuation-token")
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string   `xml:",omitempty"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []listed
		CommonPrefixes        []prefixes
	}
	out.EncodingType = c.query.Get("encoding-type")
	last := ""
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		rest, ok := strings.CutPrefix(key, prefix)
		common := ""
		if first, _, found := strings.Cut(rest, delimiter); delimiter != "" && found {
			common = prefix + first + delimiter
		}
		if !ok || key <= after || common != "" && (common <= after && strings.HasPrefix(after, common) || common == last) {
			continue
		}
		if len(out.Contents)+len(out.CommonPrefixes) == s.page() {
			out.IsTruncated = true
			break
		}
		if common != "" {
			out.CommonPrefixes = append(out.CommonPrefixes, prefixes{encoded(c, common)})
			last, out.NextContinuationToken = common, common
			continue
		}
		o := b.objects[key]
		out.Contents = append(out.Contents, listed{encoded(c, key), o.etag, o.modified.UTC().Format(time.RFC3339), len(o.data)})
		out.NextContinuationToken = key
	}
	if !out.IsTruncated {
		out.NextContinuationToken = ""
	}
	return document(out)
}

type listedUpload struct {
	Key      string
	UploadId string
}

func (s *Server) listUploads(b *bucket, c *call) *answer {
	var out struct {
		XMLName            xml.Name `xml:"ListMultipartUploadsResult"`
		EncodingType       string   `xml:",omitempty"`
		IsTruncated        bool
		NextKeyMarker      string
		NextUploadIdMarker string
		Upload             []listedUpload
	}
	out.EncodingType = c.query.Get("encoding-type")
	prefix, keyMarker, idMarker := c.query.Get("prefix"), s.marker(c, "key-marker"), s.marker(c, "upload-id-marker")
	all := slices.SortedFunc(maps.Values(b.uploads), func(x, y *upload) int { return strings.Compare(x.key+"\x00"+x.id, y.key+"\x00"+y.id) })
	for _, u := range all {
		if !strings.HasPrefix(u.key, prefix) || s.behaviour.ExactUploads && u.key != prefix {
			continue
		}
		if keyMarker != "" && (u.key < keyMarker || u.key == keyMarker && u.id <= idMarker) {
			continue
		}
		if len(out.Upload) == s.page() {
			out.IsTruncated = true
			break
		}
		out.Upload = append(out.Upload, listedUpload{encoded(c, u.key), u.id})
		out.NextKeyMarker, out.NextUploadIdMarker = encoded(c, u.key), u.id
	}
	return document(out)
}

// ofUpload carries out what is asked of one upload.
func (s *Server) ofUpload(b *bucket, c *call) *answer {
	u := b.uploads[c.query.Get("uploadId")]
	if u == nil || u.key != c.key {
		if etag, ok := b.finished[c.query.Get("uploadId")]; ok && c.op == "CompleteMultipartUpload" && s.behaviour.CompleteAgain {
			return completed(etag)
		}
		if c.op == "CompleteMultipartUpload" && s.behaviour.ConditionFirst {
			if a := condition(b, c, s.behaviour.CompleteCondition); a != nil {
				return a
			}
		}
		return fail(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist.")
	}
	switch c.op {
	case "UploadPart":
		n, _ := strconv.Atoi(c.query.Get("partNumber"))
		o := newObject(c.body, nil)
		u.parts[n] = o
		return &answer{status: http.StatusOK, header: http.Header{"Etag": {o.etag}}}
	case "AbortMultipartUpload":
		delete(b.uploads, u.id)
		return &answer{status: http.StatusNoContent}
	case "ListParts":
		return s.listParts(u, c)
	case "CompleteMultipartUpload":
		a := s.complete(b, u, c)
		if s.behaviour.LateRefusals {
			a.status = http.StatusOK
		}
		return a
	}
	return fail(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}

type listedPart struct {
	PartNumber int
	ETag       string
	Size       int
}

func (s *Server) listParts(u *upload, c *call) *answer {
	var out struct {
		XMLName              xml.Name `xml:"ListPartsResult"`
		IsTruncated          bool
		NextPartNumberMarker int
		Part                 []listedPart
	}
	after, _ := strconv.Atoi(s.marker(c, "part-number-marker"))
	for _, n := range slices.Sorted(maps.Keys(u.parts)) {
		if n <= after {
			continue
		}
		if len(out.Part) == s.page() {
			out.IsTruncated = true
			break
		}
		out.Part = append(out.Part, listedPart{n, u.parts[n].etag, len(u.parts[n].data)})
		out.NextPartNumberMarker = n
	}
	return document(out)
}

func (s *Server) complete(b *bucket, u *upload, c *call) *answer {
	if a := condition(b, c, s.behaviour.CompleteCondition); a != nil {
		return a
	}
	var in struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(c.body, &in); err != nil || len(in.Part) == 0 {
		return fail(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed")
	}
	var data, sums []byte
	for i, p := range in.Part {
		part, ok := u.parts[p.PartNumber]
		if !ok || strings.Trim(p.ETag, `"`) != strings.Trim(part.etag, `"`) || i > 0 && p.PartNumber <= in.Part[i-1].PartNumber {
			return fail(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found.")
		}
		if i < len(in.Part)-1 && len(part.data) < 5<<20 {
			return fail(http.StatusBadRequest, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed object size.")
		}
		sum, _ := hex.DecodeString(strings.Trim(part.etag, `"`))
		data, sums = append(data, part.data...), append(sums, sum...)
	}
	o := newObject(data, u.meta)
	sum := md5.Sum(sums) //nolint:gosec // as above
	o.etag = fmt.Sprintf(`"%s-%d"`, hex.EncodeToString(sum[:]), len(in.Part))
	b.objects[u.key] = o
	delete(b.uploads, u.id)
	b.finished[u.id] = o.etag
	return completed(o.etag)
}

func completed(etag string) *answer {
	return document(struct {
		XMLName xml.Name `xml:"CompleteMultipartUploadResult"`
		ETag    string
	}{ETag: etag})
}
