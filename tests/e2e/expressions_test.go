package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"kstatd/e2e/harness"
)

// vector runs an instant query at a time, and returns sorted lines without the labels that distinguish the two
// processes.
func (p *prometheus) vector(expr string, at time.Time) ([]string, error) {
	query := url.Values{"query": {expr}, "time": {fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000)}}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  []any
			}
		}
	}
	if err := p.get("/api/v1/query?"+query.Encode(), &answer); err != nil {
		return nil, err
	}
	var lines []string
	for _, series := range answer.Data.Result {
		delete(series.Metric, "job")
		delete(series.Metric, "instance")
		labels, err := json.Marshal(series.Metric)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%s %v", labels, series.Value[1]))
	}
	slices.Sort(lines)
	return lines, nil
}

// TestPublishedExpressions has a real Prometheus scrape both programs and evaluates published expressions for
// kube-state-metrics: both yield the same result.
func TestPublishedExpressions(t *testing.T) {
	var expressions []struct {
		Name, Expr string
		Empty      bool
	}
	text, err := os.ReadFile("testdata/expressions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &expressions); err != nil {
		t.Fatal(err)
	}
	document, err := os.ReadFile(harness.RepoFile("docs", "compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range expressions {
		name, _, _ := strings.Cut(each.Name, " without ")
		name, _, _ = strings.Cut(name, ", ")
		if !strings.Contains(string(document), "`"+name+"`") {
			t.Errorf("docs/compatibility.md does not name %s", name)
		}
	}
	cluster := harness.StartCluster(t)
	var kinds []string
	for _, k := range servedKinds(t, cluster) {
		kinds = append(kinds, k.resource)
		cluster.Create(k.resource, k.object())
	}
	pair := harness.StartPair(t, append(everything(strings.Join(kinds, ",")), "--kubeconfig="+cluster.Kubeconfig)...)
	pair.ConvergeAt(300, "")
	host := func(base string) string { return strings.TrimPrefix(base, "http://") }
	var config strings.Builder
	for job, side := range map[string]*harness.KubeExporter{"theirs": pair.Theirs, "ours": pair.Ours} {
		fmt.Fprintf(&config, "- {job_name: %s, honor_labels: true, static_configs: [{targets: ['%s', '%s']}]}\n", job, host(side.Base), host(side.Telemetry))
	}
	p := startPrometheusWith(t, "1s", config.String())
	for _, job := range []string{"theirs", "ours"} {
		p.waitQuery(fmt.Sprintf(`min(count_over_time(kube_node_info{job=%q}[5m])) >= bool 3`, job), "1")
		p.waitQuery(fmt.Sprintf(`count(kube_state_metrics_total_shards{job=%q})`, job), "1")
	}
	at := time.Now()
	for _, each := range expressions {
		of := func(job string) []string {
			lines, err := p.vector(strings.ReplaceAll(each.Expr, "JOB", job), at)
			if err != nil {
				t.Errorf("%s: %v", each.Name, err)
			}
			return lines
		}
		theirs, ours := of("theirs"), of("ours")
		if !slices.Equal(theirs, ours) {
			t.Errorf("%s: the original's series give\n%s\nkstatd's\n%s", each.Name, strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
		}
		if (len(theirs) == 0) != each.Empty {
			t.Errorf("%s gives %d series, empty: %v", each.Name, len(theirs), each.Empty)
		}
	}
}
