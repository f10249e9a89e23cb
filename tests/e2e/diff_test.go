package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"kstatd/e2e/harness"
)

// compared is the part of `kstatd diff --json` that the tests use.
type compared struct {
	Same         bool
	SeriesOfBoth int `json:"series_of_both"`
	A, B         struct{ Families, Series int }
	Families     []struct {
		Family      string
		Differences []struct {
			What      string
			Series    int
			A, B      string
			Explained *string
			Examples  []struct{ Series string }
		}
	}
}

// compare runs `kstatd diff` and returns its exit code and output.
func compare(t *testing.T, args ...string) (int, compared) {
	t.Helper()
	p := harness.Kstatd(t)
	p.Prefix = []string{"diff", "--json"}
	code, stdout, stderr := harness.Run(t, p, "", args...)
	if code == 2 {
		t.Fatalf("could not compare: %s", stderr)
	}
	var report compared
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v in %.300s", err, stdout)
	}
	return code, report
}

// explained fails the test for each difference without a reason, and returns the others with their kind and reason.
func (c compared) explained(t *testing.T) map[string]bool {
	t.Helper()
	reasons := map[string]bool{}
	for _, family := range c.Families {
		for _, d := range family.Differences {
			if d.Explained == nil {
				t.Errorf("%s: %s: %d series, A: %q, B: %q, %v", family.Family, d.What, d.Series, d.A, d.B, d.Examples)
				continue
			}
			reasons[d.What+": "+*d.Explained] = true
		}
	}
	return reasons
}

// TestDiff compares the original with kstatd on a real API server with objects of every kind: all differences are
// listed in docs/compatibility.md, and a denied family is the only other one.
func TestDiff(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	kinds := servedKinds(t, cluster)
	for _, k := range kinds {
		cluster.Create(k.resource, k.object())
	}
	args := append(everything(resourceNames(kinds)), "--kubeconfig="+cluster.Kubeconfig)
	pair := harness.StartPair(t, args...)
	pair.Converge("")
	for _, format := range [][]string{nil, {"--openmetrics"}} {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			code, report := compare(t, append(format, pair.Theirs.Base, pair.Ours.Base)...)
			reasons := slices.Sorted(maps.Keys(report.explained(t)))
			if code != 0 || !report.Same || report.SeriesOfBoth < 500 {
				t.Errorf("exit code %d, the same: %t, %d series on both sides", code, report.Same, report.SeriesOfBoth)
			}
			want := []string{
				"help: sentences are kstatd's own; stability and deprecation are the same",
			}
			if !slices.Equal(reasons, want) {
				t.Errorf("reasons %q", reasons)
			}
		})
	}

	t.Run("telemetry", func(t *testing.T) {
		code, report := compare(t, pair.Theirs.Telemetry, pair.Ours.Telemetry)
		report.explained(t)
		if code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("kstatd run", func(t *testing.T) {
		run := harness.KstatdRun(t)
		port := harness.FreePort(t)
		process := harness.Start(t, run, append(args, fmt.Sprintf("--listen=127.0.0.1:%d", port),
			"--telemetry-listen=127.0.0.1:0", "--statsd.listen-udp=", "--statsd.listen-tcp=")...)
		base := fmt.Sprintf("http://127.0.0.1:%d", port)
		harness.WaitStatus(t, process, base+"/metrics", 200)
		code, report := compare(t, pair.Theirs.Base, base+"/metrics/kubernetes")
		report.explained(t)
		if code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("one family denied", func(t *testing.T) {
		denied := append(slices.Clone(args), "--metric-denylist=^kube_pod_info$")
		less := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), denied...)
		harness.Eventually(t, "everything else is there", func() error {
			have, err := harness.Scrape(less.Base+"/metrics", harness.Text)
			if err != nil {
				return err
			}
			want, err := harness.Scrape(pair.Ours.Base+"/metrics", harness.Text)
			if err != nil {
				return err
			}
			return harness.Compare(have, want.Without("kube_pod_info"))
		})
		code, report := compare(t, pair.Theirs.Base, less.Base)
		var found []string
		for _, family := range report.Families {
			for _, d := range family.Differences {
				if d.Explained == nil {
					found = append(found, fmt.Sprintf("%s: %s: %d", family.Family, d.What, d.Series))
				}
			}
		}
		if code != 1 || !slices.Equal(found, []string{"kube_pod_info: only_in_a: 1"}) {
			t.Errorf("exit code %d, found %q", code, found)
		}
	})
}
