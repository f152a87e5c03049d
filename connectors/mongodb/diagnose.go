package mongodb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-etl/sluice/connectors"
)

// OpenAdvice says what to do about a server that cannot be reached or refuses the user.
// It implements connectors.OpenAdviser.
func (s *sink) OpenAdvice(err error) (key, help string) {
	switch {
	case denied(err):
		return "uri", "correct username, password and auth_source"
	case mongo.IsNetworkError(err), mongo.IsTimeout(err):
		return "uri", "check the hosts and replicaSet in it, and that a primary is there for this machine"
	}
	return "", ""
}

// Diagnose tells of the server, and whether the fields of key have a unique index. It
// implements connectors.Diagnoser.
func (s *sink) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.cfg.Timeout))
	defer cancel()
	var hello struct {
		Set string `bson:"setName"`
	}
	var build struct {
		Version string `bson:"version"`
	}
	err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if err == nil {
		err = s.db.RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&build)
	}
	switch {
	case err != nil:
		d.Fail("server", "uri", err, "")
		return
	case hello.Set == "":
		d.OK("server", "MongoDB "+build.Version+", without a replica set: there is one copy of each document")
	default:
		d.OK("server", fmt.Sprintf("MongoDB %s, replica set %s", build.Version, hello.Set))
	}
	if name, fixed := s.cfg.Collection.Fixed(); fixed && len(s.cfg.Key) > 0 {
		s.diagnoseKey(ctx, d, s.db.Collection(name))
	}
}

// diagnoseKey reports whether a unique index keeps two documents of a key apart.
func (s *sink) diagnoseKey(ctx context.Context, d *connectors.Diagnosis, c *mongo.Collection) {
	specs, err := c.Indexes().ListSpecifications(ctx)
	if err != nil {
		d.Warn("key", "key", "whether a unique index keeps documents of one key apart is not known: "+err.Error(), "")
		return
	}
	if slices.Equal(s.cfg.Key, []string{"_id"}) {
		d.OK("key", "_id, which is unique")
		return
	}
	for i := range specs {
		elements, err := specs[i].KeysDocument.Elements()
		if err != nil || specs[i].Unique == nil || !*specs[i].Unique {
			continue
		}
		var names []string
		for _, e := range elements {
			names = append(names, e.Key())
		}
		if slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(s.cfg.Key))) {
			d.OK("key", "unique index "+specs[i].Name)
			return
		}
	}
	keys := strings.Join(s.cfg.Key, ": 1, ") + ": 1"
	d.Warn("key", "key", "no unique index of "+c.Name()+" is on exactly these fields: writes of one key at the same time make two documents",
		fmt.Sprintf("db.%s.createIndex({%s}, {unique: true})", c.Name(), keys))
}
