package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"sigs.k8s.io/yaml"
)

// inputSeries is a series of a test of promtool.
type inputSeries struct {
	Series string `json:"series"`
	Values string `json:"values"`
}

// expected is a query of a test of promtool with its result.
type expected struct {
	Expr       string           `json:"expr"`
	EvalTime   string           `json:"eval_time"`
	ExpSamples []expectedSample `json:"exp_samples"`
}

type expectedSample struct {
	Labels string  `json:"labels"`
	Value  float64 `json:"value"`
}

// evaluate has Prometheus evaluate queries on these series.
func evaluate(t *testing.T, series []inputSeries, queries []expected) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"tests": []map[string]any{{"interval": "1m", "input_series": series, "promql_expr_test": queries}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "promtool", "test", "rules", file)
}

// ownMetric is a metric in a query with its selector.
var ownMetric = regexp.MustCompile(`\b((?:kstatd|statsd_exporter)_\w+)\{([^}]*)\}`)

// matcher is a part of a selector.
var matcher = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)

// heldByBoth are the metrics of what all replicas of a standby have, also those that wait.
var heldByBoth = regexp.MustCompile(`^(kstatd_kubernetes_(objects|series|bytes|events_total|malformed_objects_total|oversized_objects_total)|kstatd_custom_resource_value_errors_total|` +
	`kstatd_statsd_(series|family_series|lines_total|samples_total|rejected_samples_total|expired_series_total|rule_hits_total)|` +
	`statsd_exporter_(events_unmapped_total|events_actions_total|events_conflict_total|sample_errors_total|tag_errors_total|metrics_total))$`)

// TestDashboardsCountPairsOnce evaluates the queries of what all replicas of a standby have: the sum over both is what the one has
// that exposes it.
func TestDashboardsCountPairsOnce(t *testing.T) {
	harness.NotInSelfCheck(t)
	const active, waiting = "a:8081", "b:8081"
	series := []inputSeries{{`kstatd_standby{job="kstatd",instance="` + active + `"}`, "0+0x400"}, {`kstatd_standby{job="kstatd",instance="` + waiting + `"}`, "1+0x400"}}
	known := map[string]bool{}
	var queries []expected
	for _, d := range dashboards(t, "rendered/dashboards/*.json") {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				metrics := ownMetric.FindAllStringSubmatch(target.Expr, -1)
				if strings.Contains(target.Expr, "by (instance") || !slices.ContainsFunc(metrics, func(m []string) bool { return heldByBoth.MatchString(m[1]) }) {
					continue
				}
				for _, metric := range metrics {
					labels := `job="kstatd"`
					for _, m := range matcher.FindAllStringSubmatch(metric[2], -1) {
						if name, operator, value := m[1], m[2], m[3]; strings.Contains(value, "$") {
							continue
						} else if strings.HasPrefix(operator, "!") {
							labels += fmt.Sprintf(`,%s="something"`, name)
						} else {
							value, _, _ = strings.Cut(value, "|")
							labels += fmt.Sprintf(`,%s=%q`, name, value)
						}
					}
					values := "1+60x400"
					// The counter of a rule that never matched stays.
					if strings.HasSuffix(target.Expr, "== 0 or vector(0)") {
						labels, values = labels+`,rule="never"`, "0+0x400"
					}
					for _, instance := range []string{active, waiting} {
						one := fmt.Sprintf("%s{%s,instance=%q}", metric[1], labels, instance)
						if metric[1] != "kstatd_standby" && !known[one] {
							known[one] = true
							series = append(series, inputSeries{one, values})
						}
					}
				}
				query := func(instance string) string {
					return strings.NewReplacer("$cluster", ".*", "$job", ".+", "$instance", instance).Replace(target.Expr)
				}
				queries = append(queries, expected{
					fmt.Sprintf("min((%s) == bool (%s))", query(".+"), query(active)), "400m", []expectedSample{{"{}", 1}},
				})
			}
		}
	}
	if len(queries) < 30 {
		t.Errorf("there are only %d queries", len(queries))
	}
	evaluate(t, series, queries)
}

// variable is a variable of a dashboard.
type variable struct {
	Name     string
	Type     string
	Multi    bool
	AllValue *string `json:"allValue"`
	Query    any
}

// TestDashboardVariables checks that the jobs and instances to choose from are the targets of kstatd on each documented way to
// scrape it, that *All* means these and not every target of Prometheus, and that queries take several values.
func TestDashboardVariables(t *testing.T) {
	harness.NotInSelfCheck(t)
	up := func(labels string) inputSeries { return inputSeries{"up{" + labels + "}", "1x10"} }
	series := []inputSeries{
		up(`job="kstatd",instance="a:8080"`), up(`job="monitoring/kstatd",instance="b:8081"`), up(`job="kube-state-metrics",instance="c:8080"`),
		up(`job="prometheus-statsd-exporter",instance="d:9102"`),
		up(`job="kubernetes-service-endpoints",instance="e:8080",app_kubernetes_io_name="kstatd"`),
		up(`job="kubernetes-service-endpoints",instance="f:9100",app_kubernetes_io_name="node-exporter"`), up(`job="node",instance="g:9100"`),
	}
	wanted := map[string][]string{
		"job":      {"kstatd", "kube-state-metrics", "kubernetes-service-endpoints", "monitoring/kstatd", "prometheus-statsd-exporter"},
		"instance": {"a:8080", "b:8081", "c:8080", "d:9102", "e:8080"},
	}
	single := regexp.MustCompile(`!?="\$`)
	for name, text := range tree(t, mixin("rendered", "dashboards")) {
		var d struct{ Templating struct{ List []variable } }
		if err := yaml.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Templating.List {
			want, found := wanted[v.Name]
			if !found {
				continue
			}
			query, _ := v.Query.(map[string]any)["query"].(string)
			expr, isResult := strings.CutPrefix(query, "query_result(")
			if !isResult {
				t.Errorf("%s: %s is %s", name, v.Name, query)
				continue
			}
			var samples []expectedSample
			for _, value := range want {
				count := 1.0
				samples = append(samples, expectedSample{fmt.Sprintf("{%s=%q}", v.Name, value), count})
			}
			expr = strings.NewReplacer("$cluster", ".*", "$job", ".+").Replace(strings.TrimSuffix(expr, ")"))
			evaluate(t, series, []expected{{expr, "5m", samples}})
			if v.AllValue != nil {
				t.Errorf("%s: with All, %s is %q, which other targets have, too", name, v.Name, *v.AllValue)
			}
		}
	}
	for _, pattern := range []string{"rendered/dashboards/*.json", packDashboards} {
		for name, d := range dashboards(t, pattern) {
			for _, panel := range d.Panels {
				for _, target := range panel.Targets {
					if single.MatchString(target.Expr) {
						t.Errorf("%s: %q takes one value of a variable: %s", name, panel.Title, target.Expr)
					}
				}
			}
		}
	}
}

// TestDashboardsOnOlderServers evaluates the panels about the state of kinds while the API server lacks one, as before Kubernetes
// 1.36: it is requested every two minutes, and is no failure. Panels still show a kind that may not be listed.
func TestDashboardsOnOlderServers(t *testing.T) {
	harness.NotInSelfCheck(t)
	of := func(metric, resource, values string) inputSeries {
		return inputSeries{fmt.Sprintf(`%s{job="kstatd",instance="a:8081",namespace="",%s}`, metric, resource), values}
	}
	const listed, absent, refused = `resource="pods"`, `resource="mutatingadmissionpolicies"`, `resource="secrets"`
	// Times are those since 1970. The absent kind was heard of at each even minute.
	var heard strings.Builder
	for minute := range 62 {
		fmt.Fprint(&heard, minute/2*120, " ")
	}
	series := []inputSeries{
		of("kstatd_kubernetes_last_heard_timestamp_seconds", listed, "0+60x61"), of("kstatd_kubernetes_last_heard_timestamp_seconds", refused, "0+60x61"),
		of("kstatd_kubernetes_last_heard_timestamp_seconds", absent, heard.String()),
		of("kstatd_kubernetes_synced", listed, "1+0x61"), of("kstatd_kubernetes_synced", refused, "0+0x61"), of("kstatd_kubernetes_synced", absent, "0+0x61"),
		of("kstatd_kubernetes_last_list_success_timestamp_seconds", listed, "60+0x61"), of("kstatd_kubernetes_last_list_success_timestamp_seconds", refused, "0+0x61"),
		of("kstatd_kubernetes_last_list_success_timestamp_seconds", absent, "0+0x61"),
		of("kstatd_kubernetes_errors_total", refused+`,reason="forbidden"`, "0+1x61"), of("kstatd_kubernetes_errors_total", absent+`,reason="not_found"`, "0+1x61"),
	}
	pods, secrets := `{resource="pods"}`, `{resource="secrets"}`
	want := map[string][]expectedSample{
		"Oldest data":                           {{"{}", 0}},
		"Errors of lists and watches in 10 min": {{"{}", 10}},
		"Last heard, by kind":                   {{pods, 0}, {secrets, 0}},
		"Last complete, by kind":                {{pods, 61*60 - 60}},
		"Kinds that are not complete":           {{secrets, 0}, {"{}", 0}},
	}
	for name, d := range dashboards(t, "rendered/dashboards/*.json") {
		for _, panel := range d.Panels {
			samples, found := want[panel.Title]
			if !found {
				continue
			}
			delete(want, panel.Title)
			query := strings.NewReplacer("$cluster", ".*", "$job", ".+", "$instance", ".+").Replace(panel.Targets[0].Expr)
			t.Run(filepath.Base(name)+" "+panel.Title, func(t *testing.T) {
				evaluate(t, series, []expected{{query, "61m", samples}})
			})
		}
	}
	if len(want) > 0 {
		t.Errorf("there are no panels %v", want)
	}
}
