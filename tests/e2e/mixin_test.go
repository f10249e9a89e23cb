package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"sigs.k8s.io/yaml"
)

func mixin(parts ...string) string {
	return harness.RepoFile(append([]string{"deploy", "mixin"}, parts...)...)
}

// glob is what the pattern finds below deploy/mixin, at least one file.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(mixin(pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v: %v", pattern, paths, err)
	}
	return paths
}

// command runs one that has to succeed.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// tree are the files below a folder by their paths in it.
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

// TestMixinIsRendered renders the mixin anew: what is shipped is what the source gives.
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
	sources := append(append(glob(t, "*.libsonnet"), glob(t, "*.jsonnet")...), glob(t, "dashboards/*.libsonnet")...)
	command(t, harness.Tool(t, "jsonnetfmt"), append([]string{"--test"}, sources...)...)
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

// TestAlertsFireAndClear runs the tests of the rules, and looks that each alert is in them and in the runbook.
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
			// Those of the same test that expect nothing are before it fires and after.
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

// dashboard is as much of Grafana's format as is checked.
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

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	found := map[string]dashboard{}
	for _, path := range glob(t, "rendered/dashboards/*.json") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		found[filepath.Base(path)] = d
	}
	return found
}

// TestDashboardsAreSound looks at what Grafana would stumble over: names used twice, panels over one another, variables
// that do not exist.
func TestDashboardsAreSound(t *testing.T) {
	harness.NotInSelfCheck(t)
	uids := map[string]bool{}
	variable := regexp.MustCompile(`\$\{?([a-z]\w*)`)
	for name, d := range dashboards(t) {
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

// TestDashboardsHaveData has a real Prometheus scrape the demonstration and asks it for everything that the dashboards
// show.
func TestDashboardsHaveData(t *testing.T) {
	harness.NotInSelfCheck(t)
	main, telemetry, statsd := harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)
	address := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	demo := harness.Start(t, harness.KstatdWithDemo(t), "demo", "--pods=50", "--churn=50", "--statsd-rate=500",
		"--listen="+address(main), "--telemetry-listen="+address(telemetry), "--statsd-listen="+address(statsd))
	harness.WaitStatus(t, demo, "http://"+address(main)+"/readyz", 200)
	// Jobs that both begin with kstatd: the ports of one process.
	p := startPrometheus(t, map[string]string{"kstatd": address(main), "kstatd-telemetry": address(telemetry)})
	values := strings.NewReplacer("$cluster", ".*", "$job", "kstatd.*", "$instance", ".+", "$original", "kstatd.*", "$kstatd", "kstatd.*", "$family", "kube_.+")

	seen := map[string]bool{}
	for name, d := range dashboards(t) {
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

// series is how many series an instant query gives.
func (p *prometheus) series(query string) (int, error) {
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	err := p.get("/api/v1/query?query="+url.QueryEscape(query), &answer)
	return len(answer.Data.Result), err
}
