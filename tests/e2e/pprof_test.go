package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// TestGoToolPprof reads each profile with `go tool pprof`, and expects an error for unsupported ones. The heap has so
// many series that a profile, which samples about one in 2 MiB, cannot miss them.
func TestGoToolPprof(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig)
	tool := func(args ...string) (string, error) {
		cmd := exec.Command("go", append([]string{"tool", "pprof"}, args...)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	// A CPU profile needs work.
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = harness.Get(exporter.Base + "/metrics")
			}
		}
	}()
	defer func() { close(stop); <-done }()
	statsd := harness.StartStatsd(t, harness.OurStatsdExporter(t), "")
	var lines strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&lines, "requests_of_some_service_%d:1|c\n", i)
	}
	statsd.SendTCP(lines.String())
	statsd.WaitOwn("statsd_exporter_lines_total", 200_000)
	for _, profile := range []struct{ base, path, shows, names string }{
		{exporter.Telemetry, "profile?seconds=2", "Type: cpu", "kstatd::"},
		{exporter.Telemetry, "heap", "Type: inuse_space", ""},
		{statsd.Base, "heap", "Type: inuse_space", "kstatd::"},
		{statsd.Base, "allocs", "Type: inuse_space", "kstatd::"},
		{statsd.Base, "heap?seconds=1", "Type: inuse_space", ""},
		{statsd.Base, "heap?keep=first", "Type: inuse_space", "kstatd::"},
		// As with -diff_base: shares are of the base.
		{statsd.Base, "heap?base=first", "Type: inuse_space", ""},
	} {
		out, err := tool("-top", profile.base+"/debug/pprof/"+profile.path)
		if err != nil || !strings.Contains(out, profile.shows) || !strings.Contains(out, profile.names) {
			t.Errorf("%s/%s: %v\n%s", profile.base, profile.path, err, out)
		}
	}
	for _, fetched := range []string{"heap", "profile?seconds=1"} {
		out, err := tool("-raw", statsd.Base+"/debug/pprof/"+fetched)
		if err != nil || !strings.Contains(out, "PeriodType: ") || !strings.Contains(out, "Mappings") {
			t.Errorf("-raw %s: %v\n%.2000s", fetched, err, out)
		}
	}
	for _, absent := range []string{"mutex", "block"} {
		out, err := tool("-top", exporter.Telemetry+"/debug/pprof/"+absent)
		if err == nil || !strings.Contains(out, "404") {
			t.Errorf("%s: %v\n%s", absent, err, out)
		}
	}
	resp, err := harness.Get(exporter.Telemetry + "/debug/pprof/cmdline")
	if err != nil || !strings.Contains(resp.Body, fmt.Sprintf("\x00--kubeconfig=%s", cluster.Kubeconfig)) {
		t.Errorf("cmdline: %v %q", err, resp.Body)
	}
}
