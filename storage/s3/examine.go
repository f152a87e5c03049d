package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/sluice-etl/sluice/storage"
)

var _ storage.Examiner = (*FS)(nil)

// Bounds of what is said to be well.
const (
	mostSkew  = time.Minute // S3 refuses requests whose time is 15 minutes off
	waitsDays = 7           // a staged file should be able to wait for as long
)

// Examine tells of the server's clock, of uploads that are not completed, and of lifecycle
// rules that remove what must stay.
func (f *FS) Examine(ctx context.Context, o storage.ExamineOptions, report func(storage.Remark)) {
	report(f.examineClock(ctx))
	if o.Staging {
		report(f.examineUploads(ctx))
	}
	rules, err := f.rules(ctx)
	if err != nil {
		report(unknownRules(err))
		return
	}
	found := false
	for i := range rules {
		for _, r := range f.judge(&rules[i], o.Staging) {
			found = true
			report(r)
		}
	}
	if !found {
		report(storage.Remark{Check: "lifecycle rules", Detail: fmt.Sprintf("%d of the bucket, none of which removes what is needed here", len(rules))})
	}
}

// examineClock compares the clock of the machine with the server's.
func (f *FS) examineClock(ctx context.Context) storage.Remark {
	r := storage.Remark{Check: "clock"}
	var theirs, ours time.Time
	var known bool
	r.Err = f.b.do(ctx, "ListObjectsV2", f.prefix, func(ctx context.Context) error {
		api, err := f.b.client.sdk(ctx)
		if err != nil {
			return err
		}
		out, err := api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &f.b.name, Prefix: &f.prefix, MaxKeys: aws.Int32(1)})
		if err == nil {
			theirs, known = awsmiddleware.GetServerTime(out.ResultMetadata)
			ours, _ = awsmiddleware.GetResponseAt(out.ResultMetadata)
		}
		return err
	})
	if r.Err != nil {
		return r
	}
	if !known || ours.IsZero() {
		r.Detail = "the server does not tell its time"
		return r
	}
	// The header has whole seconds.
	skew := ours.Sub(theirs).Round(time.Second)
	r.Detail = fmt.Sprintf("%s ahead of the server's", skew)
	if skew < 0 {
		r.Detail = fmt.Sprintf("%s behind the server's", -skew)
	}
	if skew.Abs() > mostSkew {
		r.Advice = "set the clock of this machine, as NTP does: the server refuses requests that are 15 minutes off"
	} else if skew.Abs() <= time.Second {
		r.Detail = "as the server's"
	}
	return r
}

// examineUploads tells how many uploads wait.
func (f *FS) examineUploads(ctx context.Context) storage.Remark {
	open, err := f.b.uploads(ctx, f.prefix)
	if err != nil {
		return storage.Remark{Check: "uploads", Err: err}
	}
	if len(open) == 0 {
		return storage.Remark{Check: "uploads", Detail: "none waits for its checkpoint"}
	}
	return storage.Remark{Check: "uploads", Detail: fmt.Sprintf("%d are not completed: files that wait for their checkpoint, or what was left behind, which the next start takes away", len(open))}
}

// rules are the lifecycle rules of the bucket.
func (f *FS) rules(ctx context.Context) (rules []types.LifecycleRule, err error) {
	err = f.b.do(ctx, "GetBucketLifecycleConfiguration", "", func(ctx context.Context) error {
		api, err := f.b.client.sdk(ctx)
		if err != nil {
			return err
		}
		out, err := api.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &f.b.name})
		if err == nil {
			rules = out.Rules
		}
		return err
	})
	if e, ok := errors.AsType[*Error](err); ok && (e.Code == "NoSuchLifecycleConfiguration" || e.Status == http.StatusNotFound && e.Code != "NoSuchBucket") {
		return nil, nil
	}
	return rules, err
}

// unknownRules is for a bucket whose rules cannot be read, which is no fault by itself.
func unknownRules(err error) storage.Remark {
	r := storage.Remark{Check: "lifecycle rules"}
	e, ok := errors.AsType[*Error](err)
	switch {
	case ok && e.Status == http.StatusForbidden:
		r.Detail = "not known: these credentials lack s3:GetLifecycleConfiguration; look yourself for rules that abort uploads or expire objects below this prefix"
	case ok && (e.Status == http.StatusNotImplemented || e.Status == http.StatusMethodNotAllowed || e.Status == http.StatusBadRequest):
		r.Detail = "this server has none"
	default:
		r.Err = err
	}
	return r
}

// judge tells what a rule does to what is kept here.
func (f *FS) judge(rule *types.LifecycleRule, staging bool) (out []storage.Remark) {
	if rule.Status != types.ExpirationStatusEnabled || !f.touches(rule) {
		return nil
	}
	name := aws.ToString(rule.ID)
	if name == "" {
		name = "without a name"
	}
	add := func(advice, format string, args ...any) {
		out = append(out, storage.Remark{Check: "lifecycle rules", Advice: advice, Detail: fmt.Sprintf("rule %s ", name) + fmt.Sprintf(format, args...)})
	}
	if abort := rule.AbortIncompleteMultipartUpload; abort != nil && staging {
		if days := aws.ToInt32(abort.DaysAfterInitiation); days < waitsDays {
			add(fmt.Sprintf("let it wait for %d days or more, or leave this prefix out of it", waitsDays),
				"aborts uploads that are not completed after %d days: a file that waits for its checkpoint is one, and its rows are lost if the pipeline is down for as long", days)
		}
	}
	if when := expiry(rule.Expiration); when != "" {
		if staging {
			add("", "removes objects %s: results go then", when)
		} else {
			add("leave this prefix out of it: the pipeline removes checkpoints that it does not need any more", "removes objects %s: state that checkpoints share is as old as it likes, and is lost with it", when)
		}
	}
	for _, t := range rule.Transitions {
		if !staging && (t.StorageClass == types.TransitionStorageClassGlacier || t.StorageClass == types.TransitionStorageClassDeepArchive) {
			add("leave this prefix out of it", "moves objects to %s, from where they cannot be read at once: a restore fails", t.StorageClass)
		}
	}
	return out
}

// touches reports whether a rule can be about objects below the prefix. Those that this
// program writes have no tags.
func (f *FS) touches(rule *types.LifecycleRule) bool {
	prefix := aws.ToString(rule.Prefix) //nolint:staticcheck // older rules have it
	if filter := rule.Filter; filter != nil {
		if filter.Tag != nil || filter.And != nil && len(filter.And.Tags) > 0 {
			return false
		}
		if filter.Prefix != nil {
			prefix = *filter.Prefix
		} else if filter.And != nil {
			prefix = aws.ToString(filter.And.Prefix)
		}
	}
	return strings.HasPrefix(f.prefix, prefix) || strings.HasPrefix(prefix, f.prefix)
}

// expiry says when objects are removed; empty for never.
func expiry(e *types.LifecycleExpiration) string {
	switch {
	case e == nil:
	case e.Days != nil:
		return fmt.Sprintf("after %d days", *e.Days)
	case e.Date != nil:
		return "from " + e.Date.UTC().Format(time.DateOnly) + " on"
	}
	return ""
}
