package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// TestGoToolPprof has Go's own tool take each profile from the telemetry listener,
// and take no for an answer where there is none.
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
	// There is CPU time to be seen only while there is work.
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
	for _, profile := range []struct{ path, shows string }{
		{"profile?seconds=2", "Type: cpu"}, {"heap", "Type: inuse_space"}, {"allocs", "Type: inuse_space"}, {"heap?seconds=1", "Type: inuse_space"},
	} {
		out, err := tool("-top", exporter.Telemetry+"/debug/pprof/"+profile.path)
		if err != nil || !strings.Contains(out, profile.shows) {
			t.Errorf("%s: %v\n%s", profile.path, err, out)
		}
		if !strings.HasSuffix(profile.path, "=1") && !strings.Contains(out, "kstatd::") && !strings.Contains(out, "tokio") {
			t.Errorf("%s names no function:\n%s", profile.path, out)
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
