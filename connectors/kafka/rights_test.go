package kafka

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-etl/sluice/connectors"
)

// guarded is a cluster on which users may do what they were given the right to.
type guarded struct {
	admin   *kgo.Client // may do anything
	brokers []string
	tls     TLSConfig
	user    SASLConfig
}

// right is one to a resource of a pipeline, on what its name begins with.
type right struct {
	resource kmsg.ACLResourceType
	op       kmsg.ACLOperation
}

// The rights that a sink needs; on a real broker they hold DESCRIBE.
var (
	writeTopic = right{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationWrite}
	readTopic  = right{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationRead}
	seeTopic   = right{kmsg.ACLResourceTypeTopic, kmsg.ACLOperationDescribe}
	readGroup  = right{kmsg.ACLResourceTypeGroup, kmsg.ACLOperationRead}
	seeGroup   = right{kmsg.ACLResourceTypeGroup, kmsg.ACLOperationDescribe}
	writeIDs   = right{kmsg.ACLResourceTypeTransactionalId, kmsg.ACLOperationWrite}
	seeIDs     = right{kmsg.ACLResourceTypeTransactionalId, kmsg.ACLOperationDescribe}
)

// begin is a new name with a topic of it, and the rights to what begins with it.
func (g *guarded) begin(t *testing.T, rights []right) string {
	t.Helper()
	ctx, adm := testContext(t), kadm.NewClient(g.admin)
	name := "r" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, name); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrCreateACLsRequest()
	for _, r := range rights {
		c := kmsg.NewCreateACLsRequestCreation()
		c.Principal, c.Host, c.PermissionType = "User:"+g.user.Username, "*", kmsg.ACLPermissionTypeAllow
		c.ResourceType, c.ResourceName, c.ResourcePatternType, c.Operation = r.resource, name, kmsg.ACLResourcePatternTypePrefixed, r.op
		req.Creations = append(req.Creations, c)
	}
	resp, err := req.RequestWith(ctx, g.admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
	// A broker follows what the cluster has decided.
	for known := 0; known < len(rights); {
		described, err := adm.DescribeACLs(ctx, kadm.NewACLs().Topics(name).Groups(name).TransactionalIDs(name).
			ResourcePatternType(kadm.ACLPatternPrefixed).Operations().Allow().AllowHosts())
		if err != nil {
			t.Fatal(err)
		}
		known = 0
		for _, d := range described {
			known += len(d.Described)
		}
	}
	return name
}

// sink takes a sink to where it would take its first record.
func (g *guarded) sink(t *testing.T, name string) error {
	t.Helper()
	ctx := testContext(t)
	cfg := newSinkConfig().(*SinkConfig)
	cfg.Brokers, cfg.Topic, cfg.TLS, cfg.SASL = g.brokers, fixedTopic(name), g.tls, g.user
	s := newSink(cfg)
	defer s.Close()
	if err := s.Open(ctx, connectors.SinkEnv{Pipeline: name, Name: "out", Subtasks: 1, Slots: 2, Budget: 1 << 20}); err != nil {
		return err
	}
	c := s.(connectors.TwoPhaseSink).Committer()
	if _, _, err := c.Witness(ctx); err != nil {
		return err
	}
	if err := c.Revoke(ctx, nil); err != nil {
		return err
	}
	return s.Start(ctx, connectors.Restored{})
}

// source takes a source to where it would read its first record.
func (g *guarded) source(t *testing.T, name string) error {
	t.Helper()
	s := newTestSource(t, g.brokers, func(c *SourceConfig) { c.TLS, c.SASL, c.Group = g.tls, g.user, name }, name)
	_, err := s.Splits(testContext(t), nil)
	return err
}

// rightsCase is a start with some rights.
type rightsCase struct {
	name   string
	rights []right
	run    func(*guarded, *testing.T, string) error
	texts  []string // of the error, beside the name of what it is about; nil where there is none
}

var rightsCases = []rightsCase{
	{"sink with all", []right{writeTopic, readTopic, seeTopic, readGroup, seeGroup, writeIDs, seeIDs}, (*guarded).sink, nil},
	{
		"sink without the topic", []right{readGroup, seeGroup, writeIDs, seeIDs}, (*guarded).sink,
		[]string{"WRITE and DESCRIBE on topic", "--topic ", "--operation WRITE --operation DESCRIBE"},
	},
	{
		"sink that may not write", []right{readTopic, seeTopic, readGroup, seeGroup, writeIDs, seeIDs}, (*guarded).sink,
		[]string{"needs WRITE on topic", "--topic ", "--operation WRITE"},
	},
	{
		"sink that may not read", []right{writeTopic, seeTopic, readGroup, seeGroup, writeIDs, seeIDs}, (*guarded).sink,
		[]string{"needs READ on topic", "--topic ", "--operation READ"},
	},
	{
		"sink without the group", []right{writeTopic, readTopic, seeTopic, writeIDs, seeIDs}, (*guarded).sink,
		[]string{"READ on group", ".witness", "--group ", "--operation READ"},
	},
	{
		"sink without the transactional ids", []right{writeTopic, readTopic, seeTopic, readGroup, seeGroup}, (*guarded).sink,
		[]string{"WRITE and DESCRIBE on the transactional ids", "--transactional-id ", "--resource-pattern-type prefixed"},
	},
	{
		"sink that only sees the transactional ids", []right{writeTopic, readTopic, seeTopic, readGroup, seeGroup, seeIDs}, (*guarded).sink,
		[]string{"WRITE and DESCRIBE on the transactional ids", "--transactional-id "},
	},
	{"source with all", []right{readTopic, seeTopic, readGroup, seeGroup}, (*guarded).source, nil},
	{
		"source without the topic", []right{readGroup, seeGroup}, (*guarded).source,
		[]string{"READ and DESCRIBE on topic", "--topic ", "--operation READ --operation DESCRIBE"},
	},
	{
		"source that only sees the topic", []right{seeTopic, readGroup, seeGroup}, (*guarded).source,
		[]string{"needs READ on topic", "--topic ", "--operation READ"},
	},
	{"source without the group", []right{readTopic, seeTopic}, (*guarded).source, []string{"READ on group", "--group ", "--operation READ"}},
}

// unusedGroupCases are of groups that do not exist yet, which the embedded broker tells
// of before it looks at rights.
var unusedGroupCases = []rightsCase{
	{
		"sink that only sees the group", []right{writeTopic, readTopic, seeTopic, seeGroup, writeIDs, seeIDs}, (*guarded).sink,
		[]string{"READ on group", ".witness", "--group ", "--operation READ"},
	},
	{"source that only sees the group", []right{readTopic, seeTopic, seeGroup}, (*guarded).source, []string{"READ on group", "--group ", "--operation READ"}},
}

// eachRightIsMissing wants a start without one right to fail at once, and to say what
// is missing and how it is given.
func eachRightIsMissing(t *testing.T, g *guarded, cases []rightsCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			name := g.begin(t, c.rights)
			err := c.run(g, t, name)
			if c.texts == nil {
				if err != nil {
					t.Errorf("with all rights: %v", err)
				}
				return
			}
			if !connectors.IsPermanent(err) {
				t.Errorf("%v, want a permanent error", err)
			}
			wantText(t, err, slices.Concat(c.texts, []string{name, "kafka-acls.sh", "--allow-principal"})...)
		})
	}
}

func TestRights(t *testing.T) {
	_, brokers := fake(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "rootpw"), kfake.User("PLAIN", "ann", "annpw"))
	eachRightIsMissing(t, &guarded{
		admin:   client(t, brokers, kgo.SASL(plain.Auth{User: "root", Pass: "rootpw"}.AsMechanism())),
		brokers: brokers,
		user:    SASLConfig{Mechanism: "PLAIN", Username: "ann", Password: "annpw"},
	}, rightsCases)
}
