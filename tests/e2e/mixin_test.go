package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func mixin(parts ...string) string {
	return harness.RepoFile(append([]string{"deploy", "mixin"}, parts...)...)
}

// glob returns the files below deploy/mixin that match a pattern, at least one.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(mixin(pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v: %v", pattern, paths, err)
	}
	return paths
}

// command runs a command that must succeed.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// tree returns the files below a folder by their relative paths.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestMixinIsRendered renders the mixin: the shipped files are current.
func TestMixinIsRendered(t *testing.T) {
	harness.NotInSelfCheck(t)
	out := filepath.Join(t.TempDir(), "rendered")
	command(t, mixin("render.sh"), out)
	want, got := tree(t, out), tree(t, mixin("rendered"))
	for name, text := range want {
		if got[name] != text {
			t.Errorf("rendered%s is not what the source gives: run deploy/mixin/render.sh", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("rendered%s comes from nothing", name)
	}
	// The chart has a copy of the files that it installs.
	for name, text := range tree(t, harness.RepoFile("deploy", "helm", "kstatd", "rendered")) {
		if want[name] != text {
			t.Errorf("deploy/helm/kstatd/rendered%s is not what the source gives: run deploy/mixin/render.sh", name)
		}
		delete(want, name)
	}
	delete(want, "/prometheus-rule.yaml")
	delete(want, "/rules.yaml")
	for name := range want {
		t.Errorf("the chart has no rendered%s", name)
	}
	sources := append(append(glob(t, "*.libsonnet"), glob(t, "*.jsonnet")...), glob(t, "dashboards/*.libsonnet")...)
	command(t, harness.Tool(t, "jsonnetfmt"), append([]string{"--test"}, sources...)...)
}

// TestChartFromGit renders the chart from the files in git, like a clone: all alerts and dashboards are in it. There
// are no symbolic links, which archives, Windows and helm treat differently.
func TestChartFromGit(t *testing.T) {
	harness.NotInSelfCheck(t)
	for line := range strings.Lines(command(t, "git", "-C", harness.RepoFile(), "ls-files", "--stage")) {
		if strings.HasPrefix(line, "120000 ") {
			t.Errorf("a symbolic link: %s", line)
		}
	}
	dir := t.TempDir()
	index := strings.TrimSpace(command(t, "git", "-C", harness.RepoFile(), "write-tree"))
	archive := filepath.Join(dir, "tree.tar")
	command(t, "git", "-C", harness.RepoFile(), "archive", "--output="+archive, index, "deploy/helm", "deploy/mixin")
	command(t, "tar", "--extract", "--file="+archive, "--directory="+dir)
	for _, personality := range []string{"run", "kube-state-metrics", "statsd_exporter"} {
		text := command(t, harness.Tool(t, "helm"), "template", "r", filepath.Join(dir, "deploy", "helm", "kstatd"), "--kube-version="+helmVersion,
			"--set=personality="+personality, "--set=prometheus.rule.enabled=true", "--set=prometheus.dashboards.enabled=true")
		boards := map[string]string{}
		var rules []string
		for _, o := range parseRoles(t, text) {
			switch o.GetKind() {
			case "PrometheusRule":
				spec, err := yaml.Marshal(o.Object["spec"])
				if err != nil {
					t.Fatal(err)
				}
				rules = append(rules, alerts(t, spec)...)
				if urls := strings.Count(string(spec), "runbook_url: https://"); urls != len(rules) {
					t.Errorf("%s: %d of %d alerts have an absolute runbook_url", personality, urls, len(rules))
				}
			case "ConfigMap":
				data, _, err := unstructured.NestedStringMap(o.Object, "data")
				if err != nil {
					t.Fatal(err)
				}
				for name, text := range data {
					if strings.HasSuffix(name, ".json") {
						boards[name] = text
					}
				}
			}
		}
		want, err := os.ReadFile(filepath.Join(dir, "deploy", "mixin", "rendered", "alerts.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if all := alerts(t, want); len(all) == 0 || !slices.Equal(rules, all) {
			t.Errorf("%s: the chart has the alerts %v, the mixin %v", personality, rules, all)
		}
		originals := tree(t, filepath.Join(dir, "deploy", "mixin", "rendered", "dashboards"))
		if len(originals) == 0 || len(boards) != len(originals) {
			t.Errorf("%s: the chart has %d dashboards, the mixin %d", personality, len(boards), len(originals))
		}
		for name, text := range originals {
			if strings.TrimSpace(boards[strings.TrimPrefix(name, "/")]) != strings.TrimSpace(text) {
				t.Errorf("%s: dashboard %s is another one", personality, name)
			}
		}
	}
	// The repository URL is the same in the chart and in the mixin.
	var chart struct{ Home string }
	text, err := os.ReadFile(filepath.Join(dir, "deploy", "helm", "kstatd", "Chart.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &chart)
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "deploy", "mixin", "config.libsonnet"))
	if err != nil {
		t.Fatal(err)
	}
	if chart.Home == "" || !strings.Contains(string(config), "home: '"+chart.Home+"'") {
		t.Errorf("home of the chart is %q, and not the mixin's", chart.Home)
	}
}

// alerts are the names of the rules in a file with groups.
func alerts(t *testing.T, text []byte) []string {
	t.Helper()
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
		}
	}
	slices.Sort(names)
	return names
}

// TestAlertsFireAndClear runs the tests of the rules, and checks that each alert has a test and a page in the
// runbook.
func TestAlertsFireAndClear(t *testing.T) {
	harness.NotInSelfCheck(t)
	text, err := os.ReadFile(mixin("rendered", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	command(t, "promtool", "check", "rules", mixin("rendered", "alerts.yaml"))
	files := glob(t, "tests/*.yaml")
	command(t, "promtool", append([]string{"test", "rules"}, files...)...)

	fires, clears := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var tests struct {
			Tests []struct {
				Name            string
				PromqlExprTests []struct {
					EvalTime   string                    `json:"eval_time"`
					ExpSamples []struct{ Labels string } `json:"exp_samples"`
				} `json:"promql_expr_test"`
			}
		}
		if err := yaml.Unmarshal(text, &tests); err != nil {
			t.Fatal(err)
		}
		for _, test := range tests.Tests {
			name, _, _ := strings.Cut(test.Name, ",")
			fired := ""
			// Those of the same test without an expectation are before it fires and after.
			for _, expected := range test.PromqlExprTests {
				if len(expected.ExpSamples) == 1 && expected.ExpSamples[0].Labels == fmt.Sprintf("{alertname=%q}", name) {
					fired = name
				}
			}
			for _, expected := range test.PromqlExprTests {
				fires[fired] = true
				clears[fired] = clears[fired] || len(expected.ExpSamples) == 0
			}
		}
	}
	var pages []string
	paths, err := filepath.Glob(harness.RepoFile("docs", "runbook", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		pages = append(pages, strings.TrimSuffix(filepath.Base(path), ".md"))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, heading := range []string{"## What it means", "## How to see it", "## What to do"} {
			if !strings.Contains(string(text), "\n"+heading+"\n") {
				t.Errorf("%s has no %q", path, heading)
			}
		}
	}
	names := slices.Compact(alerts(t, text))
	if err := harness.Difference(pages, names); err != nil {
		t.Errorf("pages of docs/runbook and alerts: %v", err)
	}
	for _, name := range names {
		if !fires[name] || !clears[name] {
			t.Errorf("no test fires and clears %s", name)
		}
	}
}

// dashboard is the checked part of Grafana's format.
type dashboard struct {
	UID        string
	Title      string
	Templating struct{ List []struct{ Name string } }
	Panels     []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr string }
	}
}

// dashboards reads the files below deploy/mixin that match a pattern, by their paths.
func dashboards(t *testing.T, pattern string) map[string]dashboard {
	t.Helper()
	found := map[string]dashboard{}
	for _, path := range glob(t, pattern) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		found[path] = d
	}
	return found
}

// TestDashboardsAreValid checks for duplicate names, overlapping panels and unknown variables.
func TestDashboardsAreValid(t *testing.T) {
	harness.NotInSelfCheck(t)
	uids := map[string]bool{}
	variable := regexp.MustCompile(`\$\{?([a-z]\w*)`)
	all := dashboards(t, "rendered/dashboards/*.json")
	maps.Copy(all, dashboards(t, packDashboards))
	for name, d := range all {
		if uids[d.UID] || d.UID == "" || len(d.UID) > 40 || d.Title == "" {
			t.Errorf("%s: uid %q, title %q", name, d.UID, d.Title)
		}
		uids[d.UID] = true
		variables := map[string]bool{}
		for _, v := range d.Templating.List {
			variables[v.Name] = true
		}
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, panel := range d.Panels {
			if ids[panel.ID] || panel.ID == 0 {
				t.Errorf("%s: %q has id %d", name, panel.Title, panel.ID)
			}
			ids[panel.ID] = true
			if panel.GridPos.X+panel.GridPos.W > 24 || panel.GridPos.W == 0 || panel.GridPos.H == 0 {
				t.Errorf("%s: %q is at %v", name, panel.Title, panel.GridPos)
			}
			for x := range panel.GridPos.W {
				for y := range panel.GridPos.H {
					cell := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
					if other, taken := cells[cell]; taken {
						t.Fatalf("%s: %q lies on %q", name, panel.Title, other)
					}
					cells[cell] = panel.Title
				}
			}
			if (panel.Type == "row") != (len(panel.Targets) == 0) {
				t.Errorf("%s: %q of type %s has %d queries", name, panel.Title, panel.Type, len(panel.Targets))
			}
			refs := map[string]bool{}
			for _, target := range panel.Targets {
				if refs[target.RefID] {
					t.Errorf("%s: %q has two queries %s", name, panel.Title, target.RefID)
				}
				refs[target.RefID] = true
				for _, match := range variable.FindAllStringSubmatch(target.Expr, -1) {
					if !variables[match[1]] {
						t.Errorf("%s: %q names a variable %s", name, panel.Title, match[1])
					}
				}
			}
		}
	}
}

// TestDashboardsHaveData has a real Prometheus scrape the demo and runs every query of the dashboards.
func TestDashboardsHaveData(t *testing.T) {
	harness.NotInSelfCheck(t)
	main, telemetry, statsd := harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)
	address := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	demo := harness.Start(t, harness.KstatdWithDemo(t), "demo", "--pods=50", "--churn=50", "--statsd-rate=500",
		"--listen="+address(main), "--telemetry-listen="+address(telemetry), "--statsd-listen="+address(statsd))
	harness.WaitStatus(t, demo, "http://"+address(main)+"/readyz", 200)
	node := harness.FreePort(t)
	harness.Start(t, harness.Kstatd(t), "node", "--kubelet=", "--listen="+address(node), "--telemetry-listen="+address(harness.FreePort(t)))
	// Jobs that begin with kstatd: the ports of one process, and of another one for the node.
	p := startPrometheus(t, map[string]string{"kstatd": address(main), "kstatd-telemetry": address(telemetry), "kstatd-node": address(node)})
	values := strings.NewReplacer("$cluster", ".*", "$job", "kstatd.*", "$instance", ".+", "$original", "kstatd.*", "$kstatd", "kstatd.*", "$family", "kube_.+")

	seen := map[string]bool{}
	for name, d := range dashboards(t, "rendered/dashboards/*.json") {
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				query := values.Replace(target.Expr)
				if seen[query] {
					continue
				}
				seen[query] = true
				harness.Eventually(t, fmt.Sprintf("%s: %q: %s has data", name, panel.Title, query), func() error {
					found, err := p.series(query)
					if err != nil || found > 0 {
						return err
					}
					return errors.Join(errors.New("no series"), p.targetErrors())
				})
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("there are only %d queries", len(seen))
	}
}

// series returns the number of series of an instant query.
func (p *prometheus) series(query string) (int, error) {
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	err := p.get("/api/v1/query?query="+url.QueryEscape(query), &answer)
	return len(answer.Data.Result), err
}
