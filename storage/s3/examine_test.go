package s3_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3/s3test"
)

// remarks are what an examination of a bucket's folder etl says, by check, one a line
// where there are several.
func remarks(t *testing.T, b s3test.Behaviour, o storage.ExamineOptions) map[string]string {
	t.Helper()
	f := s3test.New(b).Open(t, "s3://examined/etl", small())
	out := map[string]string{}
	storage.Examine(t.Context(), f, o, func(r storage.Remark) {
		text := r.Detail
		switch {
		case r.Err != nil:
			text = "failed: " + r.Err.Error()
		case r.Advice != "":
			text = "warning: " + text
		}
		out[r.Check] = strings.TrimPrefix(out[r.Check]+"\n"+text, "\n")
	})
	return out
}

func TestLifecycleRulesThatRemoveWhatIsNeededAreTold(t *testing.T) {
	const abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>"
	rule := func(status, filter, action string) string {
		return "<Rule><ID>tidy</ID><Status>" + status + "</Status><Filter>" + filter + "</Filter>" + action + "</Rule>"
	}
	const everything, expire = "<Prefix></Prefix>", "<Expiration><Days>30</Days></Expiration>"
	for name, c := range map[string]struct {
		rules         string
		sink, storage string // how what is said of sinks' files and of checkpoints begins
	}{
		"none":                      {"", "0 of the bucket", "0 of the bucket"},
		"uploads after a day":       {rule("Enabled", everything, abort), "warning: rule tidy aborts uploads that are not completed after 1 days", "1 of the bucket"},
		"uploads after two weeks":   {rule("Enabled", everything, strings.Replace(abort, ">1<", ">14<", 1)), "1 of the bucket", "1 of the bucket"},
		"objects after a month":     {rule("Enabled", everything, expire), "rule tidy removes objects after 30 days", "warning: rule tidy removes objects after 30 days"},
		"objects of a folder below": {rule("Enabled", "<Prefix>etl/a/</Prefix>", expire), "rule tidy removes", "warning: rule tidy removes"},
		"of another folder":         {rule("Enabled", "<Prefix>logs/</Prefix>", expire+abort), "1 of the bucket", "1 of the bucket"},
		"switched off":              {rule("Disabled", everything, expire+abort), "1 of the bucket", "1 of the bucket"},
		"of tagged objects":         {rule("Enabled", "<Tag><Key>a</Key><Value>b</Value></Tag>", expire), "1 of the bucket", "1 of the bucket"},
		"to an archive":             {rule("Enabled", everything, "<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>"), "1 of the bucket", "warning: rule tidy moves objects to GLACIER"},
	} {
		for staging, want := range map[bool]string{true: c.sink, false: c.storage} {
			got := remarks(t, s3test.Behaviour{Lifecycle: c.rules}, storage.ExamineOptions{Staging: staging})["lifecycle rules"]
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s, of sinks %t: %q, want %q", name, staging, got, want)
			}
		}
	}
}

func TestLifecycleRulesThatCannotBeReadAreNoFault(t *testing.T) {
	for code, want := range map[string]string{"AccessDenied": "not known: these credentials lack s3:GetLifecycleConfiguration", "NotImplemented": "this server has none"} {
		if got := remarks(t, s3test.Behaviour{NoLifecycle: code}, storage.ExamineOptions{})["lifecycle rules"]; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}

func TestAClockThatIsOffIsTold(t *testing.T) {
	for ahead, want := range map[time.Duration][2]string{
		0: {"as the server's", ""}, 5 * time.Minute: {"warning: ", "behind the server's"}, -time.Hour: {"warning: ", "ahead of the server's"},
	} {
		got := remarks(t, s3test.Behaviour{Ahead: ahead}, storage.ExamineOptions{})["clock"]
		if !strings.HasPrefix(got, want[0]) || !strings.HasSuffix(got, want[1]) {
			t.Errorf("a server that is %s ahead: %q, want %q", ahead, got, want)
		}
	}
}

func TestAServerWithoutConditionsIsTold(t *testing.T) {
	got := remarks(t, s3test.Behaviour{PutCondition: s3test.Ignored}, storage.ExamineOptions{Write: true})
	if text := got["conditional writes"]; !strings.HasPrefix(text, "warning: the S3 server ignores a condition on PutObject") {
		t.Errorf("found %q", got)
	}
	whole := remarks(t, s3test.Behaviour{}, storage.ExamineOptions{Write: true, Staging: true})
	for check, text := range whole {
		if strings.HasPrefix(text, "warning") || strings.HasPrefix(text, "failed") {
			t.Errorf("%s: %q of a server that is well", check, text)
		}
	}
}
