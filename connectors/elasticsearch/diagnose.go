package elasticsearch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/sluice-etl/sluice/connectors"
)

// OpenAdvice says what to do about a cluster that cannot be reached. It implements
// connectors.OpenAdviser.
func (s *sink) OpenAdvice(err error) (key, help string) {
	var status *statusError
	var dial *net.OpError
	switch {
	case errors.As(err, &status) && status.status == http.StatusUnauthorized:
		return "", "correct username and password, api_key or token"
	case errors.As(err, &dial):
		return "addresses", "check the addresses, and that a node listens there for this machine"
	}
	return "", ""
}

// Diagnose tells of the health of the cluster. It implements connectors.Diagnoser.
func (s *sink) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	body, err := s.client.do(ctx, http.MethodGet, "/_cluster/health", nil)
	var status *statusError
	if errors.As(err, &status) && status.status == http.StatusForbidden {
		d.OK("health", "not known: this user lacks the right to monitor the cluster")
		return
	}
	var health struct {
		Name   string `json:"cluster_name"`
		Status string `json:"status"`
		Nodes  int    `json:"number_of_data_nodes"`
		Lost   int    `json:"unassigned_primary_shards"`
	}
	if err == nil {
		err = json.Unmarshal(body, &health)
	}
	if err != nil {
		d.Fail("health", "addresses", err, "")
		return
	}
	text := fmt.Sprintf("cluster %s is %s, with %d data nodes", health.Name, health.Status, health.Nodes)
	if health.Status == "red" {
		d.Warn("health", "addresses", text+": shards have no primary, and writes to them wait", "start the nodes that have them: GET _cluster/allocation/explain says why")
		return
	}
	d.OK("health", text)
}
