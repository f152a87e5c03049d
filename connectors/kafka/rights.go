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

// A right that is missing is looked for at the start, where the cluster tells of it:
// else the first record, or the first checkpoint, would be refused.

// resource is what rights are given on.
type resource struct {
	kind    string // as an error calls it
	name    string
	options string // those of kafka-acls.sh
}

func topicResource(name string) resource {
	return resource{"topic", name, "--topic " + name}
}

func groupResource(name string) resource {
	return resource{"group", name, "--group " + name}
}

// idsResource is the transactional ids of a pipeline.
func idsResource(prefix string) resource {
	return resource{"the transactional ids with the prefix", prefix, "--transactional-id " + prefix + " --resource-pattern-type prefixed"}
}

// lacking is the error for rights that are missing, which only an administrator of the
// cluster mends.
func (c *connection) lacking(err error, on resource, rights ...string) error {
	return connectors.Permanent(fmt.Errorf(
		"kafka %s: this user needs %s on %s %s: %w (kafka-acls.sh --bootstrap-server %s --add --allow-principal User:… %s --operation %s)",
		strings.Join(c.brokers, ", "), strings.Join(rights, " and "), on.kind, on.name, err, c.brokers[0], on.options, strings.Join(rights, " --operation ")))
}

// checkTopics reports a topic on which the user lacks the wanted right. One that does
// not exist is not reported.
func (c *connection) checkTopics(ctx context.Context, d *dialWatch, cl *kgo.Client, names []string, op kmsg.ACLOperation) error {
	if len(names) == 0 {
		return nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	var resp *kmsg.MetadataResponse
	err := c.ask(ctx, d, "ask for the rights to topics "+strings.Join(names, ", "), func(ctx context.Context) (err error) {
		resp, err = req.RequestWith(ctx, cl)
		return err
	})
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); errors.Is(err, kerr.TopicAuthorizationFailed) {
			return c.lacking(err, topicResource(*t.Topic), op.String(), kmsg.ACLOperationDescribe.String())
		}
		if refuses(t.AuthorizedOperations, op) {
			return c.lacking(kerr.TopicAuthorizationFailed, topicResource(*t.Topic), op.String())
		}
	}
	return nil
}

// refuses reports whether a broker's list of rights lacks one. A list without the right
// by which it was seen is none.
func refuses(rights int32, op kmsg.ACLOperation) bool {
	const all = math.MinInt32 // the broker does not tell
	return rights != all && rights&(1<<kmsg.ACLOperationDescribe) != 0 && rights&(1<<op) == 0
}

// groupPatience bounds the look for the right to a group: what else is wrong with its
// coordinator keeps no pipeline from its start.
const groupPatience = 3 * time.Second

// checkGroup reports a group whose offsets the user may not commit. A group that has no
// members yet is not listed with its rights, so the heartbeat of a member that does not
// exist is sent, which needs the same one, and which the coordinator refuses.
func (c *connection) checkGroup(ctx context.Context, cl *kgo.Client, group string) error {
	ctx, cancel := context.WithTimeout(ctx, groupPatience)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID = group, "none"
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.GroupAuthorizationFailed) {
		return c.lacking(kerr.GroupAuthorizationFailed, groupResource(group), kmsg.ACLOperationRead.String())
	}
	return nil
}

// named adds to a refusal of a coordinator what the pipeline needs.
func (t *txnSet) named(err error) error {
	read, write, describe := kmsg.ACLOperationRead.String(), kmsg.ACLOperationWrite.String(), kmsg.ACLOperationDescribe.String()
	switch {
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return t.conn.lacking(kerr.TransactionalIDAuthorizationFailed, idsResource(t.prefix+"."), write, describe)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return t.conn.lacking(kerr.GroupAuthorizationFailed, groupResource(t.group()), read, describe)
	}
	return err
}

// checkRights reports a topic, of those that are named or were found, that the source
// may not read, or a group that it may not commit to.
func (s *source) checkRights(ctx context.Context, found kadm.TopicDetails) error {
	s.mu.Lock()
	cl := s.client
	s.mu.Unlock()
	names := slices.AppendSeq(slices.Clone(s.cfg.Topics), maps.Keys(found))
	slices.Sort(names)
	names = slices.Compact(names)
	if err := s.conn.checkTopics(ctx, s.dials, cl, names, kmsg.ACLOperationRead); err != nil || s.cfg.Group == "" {
		return err
	}
	return s.conn.checkGroup(ctx, cl, s.cfg.Group)
}
