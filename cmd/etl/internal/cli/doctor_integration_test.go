//go:build integration

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
)

// doctored is a pipeline from Kafka to Kafka, PostgreSQL and S3.
const doctored = `
pipeline: doctored
sources:
  orders:
    kafka: {brokers: [BROKERS], topics: [doctor-in], group: doctor-lag}
    schema: {id: int, price: float}
sinks:
  copy:
    from: orders
    kafka: {brokers: [BROKERS], topic: doctor-out}
  table:
    from: orders
    postgres: {url: "${POSTGRES_URL}", table: doctor_orders, mode: upsert}
  lake:
    from: orders
    s3: {path: "s3://${S3_BUCKET}/doctor-lake"}
checkpoint: {storage: "s3://${S3_BUCKET}/doctor", interval: 10s}
`

// world makes the topics and tables of doctored and writes its file, whose name it returns.
func world(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"KAFKA_BROKERS", "POSTGRES_URL", "S3_BUCKET"} {
		if os.Getenv(name) == "" {
			t.Fatalf("set %s to test on real services", name)
		}
	}
	brokers := strings.Split(os.Getenv("KAFKA_BROKERS"), ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	made, err := kadm.NewClient(client).CreateTopics(t.Context(), 2, -1, nil, "doctor-in", "doctor-out")
	for _, topic := range made {
		if topic.Err != nil && !strings.Contains(topic.Err.Error(), "TOPIC_ALREADY_EXISTS") {
			t.Fatal(topic.Err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), os.Getenv("POSTGRES_URL"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), `DROP TABLE IF EXISTS doctor_orders, doctor_narrow; DROP SCHEMA IF EXISTS doctor_closed CASCADE;
CREATE TABLE doctor_orders (id bigint PRIMARY KEY, price float8); CREATE TABLE doctor_narrow (id bigint PRIMARY KEY);
DO $$ BEGIN CREATE ROLE doctor_reader LOGIN PASSWORD 'reader'; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
GRANT SELECT ON doctor_orders TO doctor_reader`)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "doctored.yaml")
	text := strings.ReplaceAll(doctored, "BROKERS", strings.Join(brokers, ", "))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ask runs the command and returns its exit code and what it found.
func ask(t *testing.T, args ...string) (int, checkup) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{version: "test", out: &out, err: &errs}
	code := a.run(t.Context(), append([]string{"doctor", "--json"}, args...))
	var c checkup
	if err := json.Unmarshal(out.Bytes(), &c); err != nil {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out.String(), errs.String())
	}
	return code, c
}

// notWell are the findings that are not ok.
func notWell(c checkup) (all []pipeline.Found) {
	for _, x := range c.Components {
		for _, f := range x.Findings {
			if f.Level != connectors.LevelOK && x.Role != "host" {
				all = append(all, f)
			}
		}
	}
	return all
}

func TestDoctorOnRealServices(t *testing.T) {
	file := world(t)
	for _, flags := range [][]string{{file}, {file, "--write"}} {
		if code, c := ask(t, flags...); code != exitFine || len(notWell(c)) > 0 {
			t.Errorf("a pipeline that has all it needs: exit code %d, found %+v", code, notWell(c))
		}
	}
	postgres := func(change ...string) string {
		return "sinks.table.postgres.url=" + strings.NewReplacer(change...).Replace(os.Getenv("POSTGRES_URL"))
	}
	for name, c := range map[string]struct {
		set         []string
		key, detail string
		advice      string
	}{
		"a topic that is missing":   {[]string{"sources.orders.kafka.topics=[doctor-im]"}, "sources.orders.kafka.topics", "doctor-im does not exist", "did you mean doctor-in?"},
		"a broker that is down":     {[]string{"sinks.copy.kafka.brokers=['127.0.0.1:1']"}, "sinks.copy.kafka.brokers", "connection refused", "check the addresses"},
		"a password that is wrong":  {[]string{postgres(":"+os.Getenv("PGPASSWORD")+"@", ":wrong-password@")}, "sinks.table.postgres.url", "password authentication failed", "correct the user or the password"},
		"a timeout above the limit": {[]string{"sinks.copy.kafka.transaction_timeout=100h"}, "sinks.copy.kafka.transaction_timeout", "is above the limit of kafka", "lower the one"},
		"a table without a column":  {[]string{"sinks.table.postgres.table=doctor_narrow"}, "sinks.table.postgres.table", "it has no column price", ""},
		"a table that is missing":   {[]string{"sinks.table.postgres.table=doctor_missing"}, "sinks.table.postgres.table", `there is no table "doctor_missing"`, "make it"},
		"a user who may only read":  {[]string{postgres(os.Getenv("PGUSER")+":"+os.Getenv("PGPASSWORD"), "doctor_reader:reader")}, "sinks.table.postgres.table", `this user lacks INSERT and UPDATE and DELETE on "doctor_orders"`, `GRANT INSERT, UPDATE, DELETE ON "doctor_orders" TO`},
		"a schema that is missing":  {[]string{"sinks.table.postgres.state_schema=doctor_closed"}, "sinks.table.postgres.state_schema", "there is no schema doctor_closed", "CREATE SCHEMA"},
		"a bucket that is missing":  {[]string{"checkpoint.storage=s3://doctor-missing/etl"}, "checkpoint.storage", "NoSuchBucket", "make the bucket"},
		"retention that is short":   {[]string{"checkpoint.savepoints={dir: 's3://" + os.Getenv("S3_BUCKET") + "/doctor-saved', every: 30d, keep: 3}"}, "sources.orders.kafka.topics", "records are kept for", "raise retention.ms"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{file}
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			code, found := ask(t, args...)
			all := notWell(found)
			if len(all) != 1 || all[0].Key != c.key || !strings.Contains(all[0].Detail, c.detail) || !strings.HasPrefix(all[0].Advice, c.advice) {
				t.Fatalf("found %+v", all)
			}
			if want := map[connectors.Level]int{connectors.LevelFailed: exitFailed, connectors.LevelWarning: exitFine}[all[0].Level]; code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			if strings.Contains(all[0].Detail+all[0].Advice, "wrong-password") {
				t.Errorf("a password is shown: %+v", all[0])
			}
		})
	}
}
