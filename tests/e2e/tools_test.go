package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kstatd/e2e/harness"

	"sigs.k8s.io/yaml"
)

// TestDemo exposes valid live metrics of both sides, and ends cleanly.
func TestDemo(t *testing.T) {
	harness.NotInSelfCheck(t)
	web, telemetry, statsd := harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)
	at := func(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
	demo := harness.Start(t, harness.KstatdWithDemo(t), "demo", "--pods=200", "--churn=50", "--statsd-rate=500",
		"--listen="+at(web), "--telemetry-listen="+at(telemetry), "--statsd-listen="+at(statsd))
	demo.WaitOutput("http://" + at(web))
	base := "http://" + at(web)
	harness.WaitStatus(t, demo, base+"/readyz", 200)
	count := func(e harness.Exposition, family string) (n int) {
		for _, line := range e.Samples {
			if strings.HasPrefix(line, family+"{") {
				n++
			}
		}
		return n
	}
	var first harness.Exposition
	harness.Eventually(t, "200 pods and StatsD series", func() error {
		e, err := harness.Scrape(base+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		statsd, err := harness.Scrape(base+"/metrics/statsd", harness.Text)
		if err != nil {
			return err
		}
		if pods := count(e, "kube_pod_info"); pods < 150 || len(statsd.Without("statsd_", "kstatd_").Samples) == 0 {
			return fmt.Errorf("%d pods, %d StatsD samples", pods, len(statsd.Samples))
		}
		first = e
		return nil
	})
	promtool(t, base+"/metrics")
	promtool(t, "http://"+at(telemetry)+"/metrics")
	harness.Eventually(t, "the cluster and the traffic change", func() error {
		e, err := harness.Scrape(base+"/metrics/kubernetes", harness.Text)
		if err == nil && slices.Equal(e.Samples, first.Without("statsd_", "kstatd_").Samples) {
			err = fmt.Errorf("nothing has changed")
		}
		return err
	})
	for _, path := range []string{"/", "/healthz", "/livez"} {
		harness.WaitStatus(t, demo, base+path, 200)
	}
	demo.Signal(syscall.SIGINT)
	if code := demo.Exit(); code != 0 {
		t.Errorf("exit code %d\n%s", code, demo.Output())
	}
}

// TestRenderEqualsScrape: the output of `render kube` for the objects of a cluster equals a scrape of that cluster.
func TestRenderEqualsScrape(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	var kinds, resources []string
	for _, k := range servedKinds(t, cluster) {
		created := cluster.Create(k.resource, k.object())
		text, err := yaml.Marshal(created.Object)
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, string(text))
		resources = append(resources, k.resource)
	}
	flags := everything(strings.Join(resources, ","))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), append(flags, "--kubeconfig="+cluster.Kubeconfig)...)
	code, stdout, stderr := harness.Run(t, harness.Kstatd(t), strings.Join(kinds, "---\n"), append([]string{"render", "kube", "-f", "-"}, flags...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	rendered, err := harness.Parse(stdout)
	if err != nil {
		t.Fatal(err)
	}
	ours := func(e harness.Exposition) []string {
		// The cluster has its own objects; those of the test are named after their kind.
		return slices.DeleteFunc(slices.Clone(e.Samples), func(line string) bool {
			return !slices.ContainsFunc(resources, func(r string) bool { return strings.Contains(line, `"e2e-`+r+`"`) })
		})
	}
	harness.Eventually(t, "the scrape equals the rendering", func() error {
		e, err := harness.Scrape(exporter.Base+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		return harness.Difference(ours(e), ours(rendered))
	})
	if n := len(ours(rendered)); n < 300 {
		t.Fatalf("only %d samples", n)
	}
}

// TestRenderStatsd compares `render statsd` with the exporter's exposition of the same lines.
func TestRenderStatsd(t *testing.T) {
	harness.NotInSelfCheck(t)
	const lines = "web.a.requests.200:3|c\nweb.a.latency:125:250|ms\nlevel:4|g\nlevel:+2|g\nhits:1|c|#code:200\nbad\n"
	mapping := statsdMappings[1].text
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), mapping)
	server.SendTCP(lines)
	server.WaitOwn("statsd_exporter_lines_total", 6)
	code, stdout, stderr := harness.Run(t, harness.Kstatd(t), lines, "render", "statsd", "--statsd.mapping-config="+server.MappingFile())
	if code != 0 && !strings.Contains(stderr, "line 6") {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	rendered, err := harness.Parse(stdout)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the scrape equals the rendering", func() error {
		e, err := server.User(harness.Text)
		if err != nil {
			return err
		}
		return harness.Difference(e.Samples, rendered.Without("statsd_", "kstatd_").Samples)
	})
}

// TestRunWithoutCluster: `kstatd run` without any Kubernetes configuration serves only StatsD and logs that.
func TestRunWithoutCluster(t *testing.T) {
	harness.NotInSelfCheck(t)
	network, image := harness.NewNetwork(t), harness.NewImage(t)
	process := image.Run(network, "/kstatd", nil)
	harness.Eventually(t, "it is ready", func() error {
		resp, err := network.Get("http://127.0.0.1:8080/readyz")
		if err == nil && resp.Status != 200 {
			err = fmt.Errorf("status %d", resp.Status)
		}
		return err
	})
	process.WaitOutput("kubeconfig")
	conn, err := network.Dial(t.Context(), "udp", "127.0.0.1:9125")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hits:3|c")); err != nil {
		t.Fatal(err)
	}
	waitMetrics(t, network, "http://127.0.0.1:8080/metrics", func(e harness.Exposition) error {
		if got, _ := e.Value("hits"); got != "3" {
			return fmt.Errorf("hits is %q", got)
		}
		return nil
	})
}

// TestCheckConfig prints every problem with line and column.
func TestCheckConfig(t *testing.T) {
	harness.NotInSelfCheck(t)
	path := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(path, []byte("mappings:\n- match: a.*.b\n  name: all\n- match: a.x.b\n  name: never\n- match: a.b*\n  name: bad\n- match: c\n  nmae: c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := harness.Run(t, harness.Kstatd(t), "", "check-config", "--statsd.mapping-config="+path)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, text := range []string{"line 6", "line 9", "nmae", "a.b*"} {
		if !strings.Contains(stdout+stderr, text) {
			t.Errorf("%q is not in\n%s%s", text, stdout, stderr)
		}
	}
	if err := os.WriteFile(path, []byte("mappings:\n- match: a.*.b\n  name: all\n- match: a.x.b\n  name: never\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ = harness.Run(t, harness.Kstatd(t), "", "check-config", "--statsd.mapping-config="+path)
	if code != 0 || !strings.Contains(stdout, "line 4") {
		t.Errorf("the rule that never matches should be a warning for line 4: exit code %d\n%s", code, stdout)
	}
}
