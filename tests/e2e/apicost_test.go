package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// The settling times of apiCost's phases.
const (
	costStartup = 30 * time.Second
	costRestart = 60 * time.Second
)

// apiCost is what clients have cost an API server so far, by its own metrics.
type apiCost struct {
	// requests are those of service accounts, long-running ones when they begin.
	requests float64
	// watches are those that are open.
	watches float64
	// bytes are those of responses and of watch events.
	bytes float64
	// cpu is that of the server, with its etcd, in seconds.
	cpu float64
}

func (c apiCost) minus(other apiCost) apiCost {
	return apiCost{c.requests - other.requests, c.watches - other.watches, c.bytes - other.bytes, c.cpu - other.cpu}
}

func (c apiCost) row() string {
	return fmt.Sprintf("%.0f requests, %.0f watches, %.1f kB, %.2f s CPU", c.requests, c.watches, c.bytes/1000, c.cpu)
}

// costCluster is an API server with one program's processes, or with none.
type costCluster struct {
	*harness.Cluster
	config  string
	started time.Time
}

// read reads the server's own metrics.
func (c *costCluster) read(t *testing.T) apiCost {
	t.Helper()
	body, err := c.Typed.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var cost apiCost
	for line := range strings.Lines(string(body)) {
		at := strings.LastIndexByte(line, ' ')
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		var sum *float64
		switch name {
		case "apiserver_flowcontrol_dispatched_requests_total":
			if strings.Contains(line, `flow_schema="service-accounts"`) {
				sum = &cost.requests
			}
		case "apiserver_longrunning_requests":
			if strings.Contains(line, `verb="WATCH"`) {
				sum = &cost.watches
			}
		case "apiserver_response_sizes_sum", "apiserver_watch_events_sizes_sum":
			sum = &cost.bytes
		case "process_cpu_seconds_total":
			sum = &cost.cpu
		}
		if sum == nil {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		*sum += value
	}
	return cost
}

// newCostCluster starts a cluster of 4 nodes with 10 pods each, and 50 custom resources.
func newCostCluster(t *testing.T) *costCluster {
	t.Helper()
	cluster := harness.StartCluster(t)
	cluster.Create(definitions, definition(t, "widgets", "Widget", "v1"))
	for node := range 4 {
		cluster.Create("nodes", harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: node%d}}", node)))
		for pod := range 10 {
			name := fmt.Sprintf("pod%d-%d", node, pod)
			cluster.Create("pods", harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: e2e}, spec: {containers: [{name: c, image: i}]}}", name)))
			cluster.Bind("e2e", name, fmt.Sprintf("node%d", node))
		}
	}
	for n := range 50 {
		cluster.Create("widgets", widget(t, fmt.Sprintf("w%d", n), 1))
	}
	token := cluster.ServiceAccountToken("cost", `[{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}]`)
	return &costCluster{Cluster: cluster, config: kubeconfig(t, cluster, cluster.URL(), "", fmt.Sprintf("token: %q", token))}
}

// TestAPICost prints what following a cluster costs a real API server, by the server's own metrics, for kstatd and the
// original. A third server without either tells what it costs itself. API_COST=10m runs it with so long a rest;
// `-test.run TestAPICost/CASE` runs one case.
func TestAPICost(t *testing.T) {
	rest, err := time.ParseDuration(os.Getenv("API_COST"))
	if err != nil {
		t.Skipf("API_COST is not set to a time such as 10m: %v", err)
	}
	custom := filepath.Join(t.TempDir(), "custom.yaml")
	replaceFile(t, custom, widgetInfo)
	each := func(flags ...string) (all [][]string) {
		for n := range 4 {
			var one []string
			for _, flag := range flags {
				one = append(one, strings.ReplaceAll(flag, "N", fmt.Sprint(n)))
			}
			all = append(all, one)
		}
		return all
	}
	cases := []struct {
		name      string
		processes [][]string
		restarts  bool
	}{
		{"one process", [][]string{nil}, true},
		{"4 shards", each("--shard=N", "--total-shards=4"), false},
		{"DaemonSet of 4 nodes", each("--node=nodeN", "--resources=pods"), false},
		{"custom resources only", [][]string{{"--custom-resource-state-only", "--custom-resource-state-config-file=" + custom}}, false},
	}
	programs := []harness.Program{harness.OurKubeStateMetrics(t), harness.KubeStateMetrics(t)}
	for _, one := range cases {
		t.Run(one.name, func(t *testing.T) {
			bare := newCostCluster(t)
			clusters := []*costCluster{newCostCluster(t), newCostCluster(t)}
			// phase measures what happens to each server beyond what the bare one has.
			phase := func(name string, begin func(), lasts time.Duration) []apiCost {
				all := append(clusters, bare)
				before := make([]apiCost, len(all))
				for n, cluster := range all {
					before[n] = cluster.read(t)
				}
				begin()
				time.Sleep(lasts)
				own := bare.read(t).minus(before[len(clusters)])
				var costs []apiCost
				for n, cluster := range clusters {
					after := cluster.read(t)
					cost := after.minus(before[n]).minus(own)
					cost.watches = after.watches - bare.read(t).watches
					costs = append(costs, cost)
					t.Logf("| %s, %s (%v) | %s | %s |", one.name, name, lasts, programs[n].Name, cost.row())
				}
				return costs
			}
			phase("startup", func() {
				for n, program := range programs {
					for _, args := range one.processes {
						e := harness.StartKubeExporter(t, program, append([]string{"--kubeconfig=" + clusters[n].config}, args...)...)
						harness.WaitStatus(t, e.Process, e.Telemetry+"/readyz", 200)
					}
				}
			}, costStartup)
			costs := phase("rest", func() {}, rest)
			// Watches last for 5 to 10 minutes, and a silent connection is probed every 36 s.
			processes := float64(len(one.processes))
			most := costs[0].watches*(rest.Minutes()/5+1) + processes*(rest.Seconds()/36+1)
			if costs[0].requests > most {
				t.Errorf("%.0f requests at rest, at most %.0f are allowed", costs[0].requests, most)
			}
			if !one.restarts {
				return
			}
			all := append(clusters, bare)
			for _, cluster := range all {
				cluster.With(t).Stop()
				cluster.started = time.Now()
				cluster.Start()
			}
			after := make([]apiCost, len(all))
			for n, cluster := range all {
				time.Sleep(time.Until(cluster.started.Add(costRestart)))
				after[n] = cluster.read(t)
			}
			for n := range clusters {
				t.Logf("| %s, server restarted (%v) | %s | %s |", one.name, costRestart, programs[n].Name, after[n].minus(after[len(clusters)]).row())
			}
		})
	}
}
