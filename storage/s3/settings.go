package s3

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

// Config is how a bucket is reached. The zero value of a field leaves it to the
// environment (AWS_…), the shared files of the AWS tools, or a default.
type Config struct {
	Region          string
	Endpoint        string
	PathStyle       string // "true", "false"; empty: true where there is an endpoint
	Profile         string
	AccessKeyID     string
	SecretAccessKey Secret
	SessionToken    Secret
	RoleARN         string
	SSE             string // "", none, sse-s3, sse-kms
	KMSKeyID        string
	CAFile          string
	Checksums       string // "", when_required, when_supported
	PartSize        int64
	Concurrency     int
	ConnectTimeout  time.Duration
	RequestTimeout  time.Duration
	RetryTimeout    time.Duration
}

// Secret is a text that is never shown.
type Secret string

// String hides it.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(hidden)"
}

// GoString hides it.
func (s Secret) GoString() string { return s.String() }

// The least and the most that S3 takes as a part.
const (
	minPart = 5 << 20
	maxPart = 1 << 30
)

// NewConfig is a Config with the defaults.
func NewConfig() Config {
	return Config{
		PartSize: 8 << 20, Concurrency: 8,
		ConnectTimeout: 10 * time.Second, RequestTimeout: 30 * time.Second, RetryTimeout: time.Minute,
	}
}

// field is one setting.
type field struct {
	storage.Setting
	set func(c *Config, v any) error
}

func fields() []field {
	return []field{
		text("region", "region of the bucket; else AWS_REGION or the profile's, else us-east-1", "", func(c *Config) *string { return &c.Region }),
		{setting("endpoint", "address of a server other than Amazon's, such as https://minio.example:9000; else AWS_ENDPOINT_URL_S3", ""), setEndpoint},
		{setting("path_style", "true: the bucket stands in the path of a request, false: in the host's name; by itself true where there is an endpoint", ""), setPathStyle},
		text("profile", "profile of the shared files ~/.aws/config and credentials; else AWS_PROFILE", "", func(c *Config) *string { return &c.Profile }),
		text("access_key_id", "access key; else the environment, the profile, a web identity or the instance's role", "", func(c *Config) *string { return &c.AccessKeyID }),
		secret("secret_access_key", "its secret", func(c *Config) *Secret { return &c.SecretAccessKey }),
		secret("session_token", "its session token, for temporary keys", func(c *Config) *Secret { return &c.SessionToken }),
		text("role_arn", "role that is taken on with these credentials", "", func(c *Config) *string { return &c.RoleARN }),
		{setting("sse", "encryption by the server: none (what the bucket does by itself), sse-s3 or sse-kms", "none"), oneOf(func(c *Config) *string { return &c.SSE }, "none", "sse-s3", "sse-kms")},
		text("kms_key_id", "key of sse-kms; without it the bucket's own", "", func(c *Config) *string { return &c.KMSKeyID }),
		{setting("ca_file", "PEM file of a CA that the server's certificate is checked with, beside the system's; else AWS_CA_BUNDLE", ""), setCAFile},
		{setting("checksums", "when_required, or when_supported: the SDK's own over all bytes, which some servers refuse", "when_required"), oneOf(func(c *Config) *string { return &c.Checksums }, "when_required", "when_supported")},
		{setting("part_size", "size of the parts that larger files are written in, 5MiB to 1GiB; a file has at most 10000", "8MiB"), setPartSize},
		{setting("concurrency", "parts being sent at once by the process, 1 to 256; with part_size it bounds the memory", "8"), setConcurrency},
		duration("connect_timeout", "how long a connection may take", "10s", func(c *Config) *time.Duration { return &c.ConnectTimeout }),
		duration("request_timeout", "how long a request may go without a byte moving", "30s", func(c *Config) *time.Duration { return &c.RequestTimeout }),
		duration("retry_timeout", "how long a request is tried again before its error is reported", "1m", func(c *Config) *time.Duration { return &c.RetryTimeout }),
	}
}

const bucketsKey = "buckets"

func setting(key, doc, def string) storage.Setting {
	return storage.Setting{Key: key, Doc: doc, Default: def}
}

func known() []storage.Setting {
	var out []storage.Setting
	for _, f := range fields() {
		out = append(out, f.Setting)
	}
	return append(out, setting(bucketsKey, "settings of single buckets, by their names: {NAME: {KEY: VALUE}} with the keys above", ""))
}

func text(key, doc, def string, at func(*Config) *string) field {
	return field{setting(key, doc, def), func(c *Config, v any) error {
		s, err := asText(v)
		if err == nil && s == "" {
			err = errors.New("it is empty: leave the key away instead")
		}
		*at(c) = s
		return err
	}}
}

// secret never shows the value, not even a wrong one.
func secret(key, doc string, at func(*Config) *Secret) field {
	return field{setting(key, doc, ""), func(c *Config, v any) error {
		s, ok := v.(string)
		if !ok || s == "" {
			return errors.New("a text is wanted; put it into quotes if it looks like a number")
		}
		*at(c) = Secret(s)
		return nil
	}}
}

func oneOf(at func(*Config) *string, values ...string) func(*Config, any) error {
	return func(c *Config, v any) error {
		s, err := asText(v)
		if err != nil || !slices.Contains(values, s) {
			return fmt.Errorf("%v is not one of %s", v, strings.Join(values, ", "))
		}
		*at(c) = s
		return nil
	}
}

func duration(key, doc, def string, at func(*Config) *time.Duration) field {
	return field{setting(key, doc, def), func(c *Config, v any) error {
		s, err := asText(v)
		if err != nil {
			return err
		}
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 || d > time.Hour {
			return fmt.Errorf("%q is no duration above 0 and up to 1h: write it like 30s", s)
		}
		*at(c) = d
		return nil
	}}
}

// asText takes scalars as a settings file holds them, and texts from the environment.
func asText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	}
	return "", fmt.Errorf("one value is wanted, not %T", v)
}

func setEndpoint(c *Config, v any) error {
	s, err := asText(v)
	if err != nil {
		return err
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("write it like https://host:port, without a user, a query or the bucket")
	}
	c.Endpoint = s
	return nil
}

func setPathStyle(c *Config, v any) error {
	s, err := asText(v)
	if err != nil || s != "true" && s != "false" {
		return fmt.Errorf("%v is neither true nor false", v)
	}
	c.PathStyle = s
	return nil
}

func setCAFile(c *Config, v any) error {
	s, err := asText(v)
	if err != nil {
		return err
	}
	if _, err := readCA(s); err != nil {
		return err
	}
	c.CAFile = s
	return nil
}

func setPartSize(c *Config, v any) error {
	s, err := asText(v)
	if err != nil {
		return err
	}
	n, err := parseSize(s)
	if err != nil || n < minPart || n > maxPart {
		return fmt.Errorf("%q is no size from 5MiB to 1GiB: write it like 8MiB", s)
	}
	c.PartSize = n
	return nil
}

func parseSize(s string) (int64, error) {
	unit := int64(1)
	for _, u := range []struct {
		suffix string
		bytes  int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}} {
		if head, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = strings.TrimSpace(head), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, strconv.ErrRange
	}
	return n * unit, nil
}

func setConcurrency(c *Config, v any) error {
	s, err := asText(v)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 256 {
		return fmt.Errorf("%q is no number from 1 to 256", s)
	}
	c.Concurrency = n
	return nil
}

// Settings are the parsed settings of the scheme.
type Settings struct {
	all     Config
	buckets map[string]Config
}

// of is how a bucket is reached.
func (s *Settings) of(bucket string) Config {
	if c, ok := s.buckets[bucket]; ok {
		return c
	}
	return s.all
}

// parse reads settings, and reports all faults at once.
func parse(values map[string]any) (*Settings, error) {
	s := &Settings{all: NewConfig(), buckets: map[string]Config{}}
	var faults []error
	general := maps.Clone(values)
	delete(general, bucketsKey)
	faults = append(faults, fill(&s.all, "", general)...)
	if given, ok := values[bucketsKey]; ok {
		m, isMap := given.(map[string]any)
		if !isMap {
			faults = append(faults, fmt.Errorf("%s: names of buckets with their settings are wanted, not %v", bucketsKey, given))
		}
		for name, v := range perBucket("", m) {
			c := s.all
			faults = append(faults, fill(&c, bucketsKey+"."+name+".", v)...)
			if err := checkBucket(name); err != nil {
				faults = append(faults, fmt.Errorf("%s.%s: %w", bucketsKey, name, err))
			}
			s.buckets[name] = c
		}
	}
	slices.SortStableFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return s, errors.Join(faults...)
}

// perBucket finds the buckets in nested maps: a settings file takes the dots of a
// name for levels.
func perBucket(prefix string, m map[string]any) map[string]map[string]any {
	out := map[string]map[string]any{}
	for name, v := range m {
		inner, ok := v.(map[string]any)
		if !ok {
			out[prefix+name] = map[string]any{"": v}
			continue
		}
		deeper := len(inner) > 0
		for key, v := range inner {
			_, isMap := v.(map[string]any)
			deeper = deeper && isMap && !slices.ContainsFunc(fields(), func(f field) bool { return f.Key == key })
		}
		if deeper {
			maps.Copy(out, perBucket(prefix+name+".", inner))
		} else {
			out[prefix+name] = inner
		}
	}
	return out
}

// fill sets the fields that are given.
func fill(c *Config, at string, values map[string]any) (faults []error) {
	all := fields()
	var keys []string
	for _, f := range all {
		keys = append(keys, f.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		i := slices.Index(keys, key)
		switch {
		case key == "":
			faults = append(faults, fmt.Errorf("%s: keys with values are wanted, not one value", strings.TrimSuffix(at, ".")))
		case i < 0:
			faults = append(faults, fmt.Errorf("%s%s: there is no such key; there are %s", at, key, strings.Join(keys, ", ")))
		default:
			if err := all[i].set(c, values[key]); err != nil {
				faults = append(faults, fmt.Errorf("%s%s: %w", at, key, err))
			}
		}
	}
	if len(faults) == 0 {
		faults = c.check(at)
	}
	return faults
}

// check finds settings that do not go together.
func (c *Config) check(at string) (faults []error) {
	if (c.AccessKeyID == "") != (c.SecretAccessKey == "") {
		faults = append(faults, fmt.Errorf("%saccess_key_id and secret_access_key go together: give both or none", at))
	}
	if c.SessionToken != "" && c.AccessKeyID == "" {
		faults = append(faults, fmt.Errorf("%ssession_token needs access_key_id and secret_access_key", at))
	}
	if c.Profile != "" && c.AccessKeyID != "" {
		faults = append(faults, fmt.Errorf("%sprofile and access_key_id: give one of them", at))
	}
	if c.KMSKeyID != "" && c.SSE != "sse-kms" {
		faults = append(faults, fmt.Errorf("%skms_key_id needs sse: sse-kms", at))
	}
	return faults
}

// checkBucket reports why a name can be no bucket's.
func checkBucket(name string) error {
	bad := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	})
	if bad || len(name) < 3 || len(name) > 255 || strings.Contains(name, "..") {
		return fmt.Errorf("%q is no name of a bucket: it has 3 or more letters, digits, dots and hyphens", name)
	}
	return nil
}

var (
	settingsMu sync.Mutex
	settings   = &Settings{all: NewConfig()}
)

// apply takes the settings of the program.
func apply(values map[string]any) error {
	s, err := parse(values)
	if err != nil {
		return err
	}
	settingsMu.Lock()
	defer settingsMu.Unlock()
	settings = s
	return nil
}

func configOf(bucket string) Config {
	settingsMu.Lock()
	defer settingsMu.Unlock()
	return settings.of(bucket)
}

// readCA reads the certificates of a CA.
func readCA(file string) ([]byte, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the CA's certificates: %w", err)
	}
	return pem, nil
}
