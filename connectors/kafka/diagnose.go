package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// diagnosis looks at a cluster for a source or a sink.
type diagnosis struct {
	*connectors.Diagnosis
	conn   *connection
	dials  *dialWatch
	client *kgo.Client
	adm    *kadm.Client
}

func newDiagnosis(d *connectors.Diagnosis, conn *connection, dials *dialWatch, client *kgo.Client) *diagnosis {
	return &diagnosis{d, conn, dials, client, kadm.NewClient(client)}
}

// ask is that of the connection.
func (d *diagnosis) ask(ctx context.Context, what string, f func(ctx context.Context) error) error {
	return d.conn.ask(ctx, d.dials, what, f)
}

// brokers tells the version of all brokers, and which do not answer.
func (d *diagnosis) brokers(ctx context.Context) {
	var all kadm.BrokersApiVersions
	err := d.ask(ctx, "ask the brokers for their versions", func(ctx context.Context) (err error) {
		all, err = d.adm.ApiVersions(ctx)
		return err
	})
	if err != nil {
		d.Fail("brokers", "", err, "")
		return
	}
	versions := map[string]bool{}
	var silent []string
	for _, b := range all.Sorted() {
		if b.Err != nil {
			silent = append(silent, fmt.Sprintf("%d (%v)", b.NodeID, b.Err))
			continue
		}
		versions[strings.TrimPrefix(b.VersionGuess(), "v")] = true
	}
	text := fmt.Sprintf("%d of %d reached, Kafka %s", len(all)-len(silent), len(all), strings.Join(slices.Sorted(maps.Keys(versions)), " and "))
	if len(silent) > 0 {
		d.Warn("brokers", "brokers", text+"; not broker "+strings.Join(silent, ", "), "start it, or make the address that it advertises reachable from this machine")
		return
	}
	d.OK("brokers", text)
}

// facts are what a cluster tells of a topic.
type facts struct {
	name        string
	parts       int
	leaderless  int
	replicas    int // of the partition that has fewest
	rights      int32
	config      kadm.ResourceConfig
	configError error
}

// topics asks for topics with what this user may do to them, and their settings.
func (d *diagnosis) topics(ctx context.Context, names []string) ([]facts, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	var resp *kmsg.MetadataResponse
	var configs kadm.ResourceConfigs
	err := d.ask(ctx, "describe topics", func(ctx context.Context) (err error) {
		if resp, err = req.RequestWith(ctx, d.client); err != nil {
			return err
		}
		configs, err = d.adm.DescribeTopicConfigs(ctx, names...)
		if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
			err = nil // which each topic tells
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []facts
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		f := facts{name: *t.Topic, parts: len(t.Partitions), replicas: math.MaxInt, rights: t.AuthorizedOperations}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.Leader < 0 || p.ErrorCode != 0 && errors.Is(kerr.ErrorForCode(p.ErrorCode), kerr.LeaderNotAvailable) {
				f.leaderless++
			}
			f.replicas = min(f.replicas, len(p.Replicas))
		}
		if f.config, f.configError = configs.On(f.name, nil); f.configError == nil {
			f.configError = f.config.Err
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b facts) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// rightNames are the operations that are asked for, as Kafka's tools call them.
var rightNames = map[kmsg.ACLOperation]string{
	kmsg.ACLOperationRead: "READ", kmsg.ACLOperationWrite: "WRITE", kmsg.ACLOperationDescribe: "DESCRIBE", kmsg.ACLOperationDescribeConfigs: "DESCRIBE_CONFIGS",
}

// missing names the rights that a bit field lacks; none where the broker does not tell.
func missing(rights int32, wanted ...kmsg.ACLOperation) string {
	if rights == math.MinInt32 {
		return ""
	}
	var out []string
	for _, op := range wanted {
		if rights&(1<<op) == 0 {
			out = append(out, rightNames[op])
		}
	}
	return strings.Join(out, " and ")
}

// usable reports what keeps a topic from being used, and whether nothing does.
func (d *diagnosis) usable(f *facts, key string, wanted ...kmsg.ACLOperation) bool {
	check := "topic " + f.name
	if lacks := missing(f.rights, wanted...); lacks != "" {
		d.Fail(check, key, fmt.Errorf("this user has no right to %s it", lacks), fmt.Sprintf("kafka-acls.sh --add --topic %s --operation %s --allow-principal User:…", f.name, strings.ReplaceAll(lacks, " and ", " --operation ")))
		return false
	}
	if f.leaderless > 0 {
		d.Fail(check, key, fmt.Errorf("%d of %d partitions have no leader", f.leaderless, f.parts), "start the brokers that have their replicas")
		return false
	}
	return true
}

// group reports whether positions can be committed to a group.
func (d *diagnosis) group(ctx context.Context, check, key, name string) {
	var groups kadm.DescribedGroups
	err := d.ask(ctx, "describe group "+name, func(ctx context.Context) (err error) {
		groups, err = d.adm.DescribeGroups(ctx, name)
		if err == nil && errors.Is(groups[name].Err, kerr.GroupAuthorizationFailed) {
			err = groups[name].Err
		}
		return err
	})
	if err != nil {
		d.Fail(check, key, err, "")
		return
	}
	g := groups[name]
	switch {
	case g.Err == nil && len(g.AuthorizedOperations) > 0 && !slices.Contains(g.AuthorizedOperations, kmsg.ACLOperationRead):
		d.Fail(check, key, fmt.Errorf("this user has no right to READ group %s, which committing to it needs", name), fmt.Sprintf("kafka-acls.sh --add --group %s --operation READ --operation DESCRIBE --allow-principal User:…", name))
	case g.Err == nil && len(g.Members) > 0:
		d.Warn(check, key, fmt.Sprintf("group %s has %d members that consume with it: the broker refuses commits of others", name, len(g.Members)), "give this pipeline a group of its own")
	default:
		d.OK(check, "group "+name+" can be committed to")
	}
}

// OpenAdvice tells which key names a topic that cannot be read. It implements
// connectors.OpenAdviser.
func (s *source) OpenAdvice(err error) (key, help string) {
	if aboutTopic(err) {
		return "topics", ""
	}
	return "", ""
}

// aboutTopic reports whether an error is that a topic is not there, or not for this user.
func aboutTopic(err error) bool {
	return errors.Is(err, errNoTopic) || errors.Is(err, kerr.TopicAuthorizationFailed)
}

// Diagnose tells of the brokers, the topics that are read, how long they keep records,
// and the group. It implements connectors.Diagnoser.
func (s *source) Diagnose(ctx context.Context, with *connectors.Diagnosis) {
	adm, err := s.admin()
	if err != nil {
		with.Fail("brokers", "", err, "")
		return
	}
	s.mu.Lock()
	d := newDiagnosis(with, &s.conn, s.dials, s.client)
	s.mu.Unlock()
	d.brokers(ctx)
	listed, err := s.list(ctx, adm, nil)
	if err != nil {
		d.Fail("topics", "topics", err, "")
		return
	}
	all, err := d.topics(ctx, slices.Sorted(maps.Keys(listed)))
	if err != nil {
		d.Fail("topics", "topics", err, "")
		return
	}
	d.readable(all)
	if s.cfg.Group != "" {
		d.group(ctx, "group", "group", s.cfg.Group)
	}
}

// readable reports on the topics that a source reads: all in one line where all is well.
func (d *diagnosis) readable(all []facts) {
	var parts, fine int
	shortest, of := time.Duration(math.MaxInt64), ""
	for i := range all {
		f := &all[i]
		if !d.usable(f, "topics", kmsg.ACLOperationRead, kmsg.ACLOperationDescribe) {
			continue
		}
		parts += f.parts
		kept, known := f.kept()
		fine++
		if known && kept > 0 && kept < d.Reach {
			d.Warn("topic "+f.name, "topics", fmt.Sprintf("records are kept for %s (retention.ms), and a restore can go back %s: what was deleted by then is missing, and on_missing_offset decides", span(kept), span(d.Reach)),
				"raise retention.ms of the topic, or keep fewer and younger savepoints")
			continue
		}
		if known && kept > 0 && kept < shortest {
			shortest, of = kept, f.name
		}
	}
	if fine == 0 {
		return
	}
	text := fmt.Sprintf("%d with %d partitions in all can be read", fine, parts)
	if of != "" {
		text += fmt.Sprintf("; a pipeline that is down for longer than %s loses records of %s", span(shortest), of)
	}
	d.OK("topics", text)
}

// kept is how long a topic keeps records, 0 for good; known is false where this user
// may not ask.
func (f *facts) kept() (d time.Duration, known bool) {
	if f.configError != nil {
		return 0, false
	}
	if !strings.Contains(configText(f.config, "cleanup.policy"), "delete") {
		return 0, true
	}
	return configMillis(f.config, "retention.ms"), true
}

// span is a duration as a configuration has it, in days where there are several.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
