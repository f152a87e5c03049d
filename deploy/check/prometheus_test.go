package check

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestPrometheusTakesTheAlerts(t *testing.T) {
	mustRun(t, "promtool", "check", "rules", "--lint-fatal", filepath.Join(deploy, "prometheus/alerts.yaml"))
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	mustRun(t, "promtool", "test", "rules", filepath.Join(deploy, "prometheus/alerts_test.yaml"))
}

func TestEveryAlertIsTested(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, deploy+"/prometheus/alerts.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string           `json:"alertname"`
				ExpAlerts []map[string]any `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, deploy+"/prometheus/alerts_test.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range tests.Tests {
		for _, a := range test.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				rests[a.Alertname] = true
			}
		}
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if !fires[r.Alert] || !rests[r.Alert] {
				t.Errorf("no test has %s fire, or none has it rest", r.Alert)
			}
		}
	}
}

// variables are those of dashboards, as Grafana fills them in.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$pipeline", ".*")

// queriesOf collects the values of the keys expr of a dashboard.
func queriesOf(v any) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if text, ok := value.(string); ok && key == "expr" {
				out = append(out, text)
			}
			out = append(out, queriesOf(value)...)
		}
	case []any:
		for _, value := range v {
			out = append(out, queriesOf(value)...)
		}
	}
	return out
}

func TestPrometheusTakesEveryQueryOfTheDashboards(t *testing.T) {
	boards, err := filepath.Glob(deploy + "/grafana/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("find the dashboards: %v", err)
	}
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	var groups []group
	for _, path := range boards {
		var board any
		if err := json.Unmarshal([]byte(read(t, path)), &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		g := group{Name: filepath.Base(path)}
		for _, q := range queriesOf(board) {
			g.Rules = append(g.Rules, rule{"etl:query", variables.Replace(q)})
		}
		if len(g.Rules) == 0 {
			t.Errorf("%s has no query", path)
		}
		groups = append(groups, g)
	}
	text, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	write(t, file, string(text))
	if out, err := tool(t, "promtool", "check", "rules", "--lint=none", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
