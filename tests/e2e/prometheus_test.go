package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kstatd/e2e/harness"
)

// promtool checks that a scrape can be parsed. Its naming hints (exit code 3) concern the originals' names.
func promtool(t *testing.T, url string) {
	t.Helper()
	resp, err := harness.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != 200 || resp.Body == "" {
		t.Fatalf("%s: status %d, %d bytes", url, resp.Status, len(resp.Body))
	}
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(resp.Body)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) || strings.Contains(string(out), "error while linting") {
		t.Errorf("promtool check metrics of %s: %v\n%s", url, err, out)
	}
}

// accepting forwards requests with another Accept header and counts responses of a content type, so that a real
// Prometheus sees only one format.
type accepting struct {
	*httptest.Server
	right, wrong atomic.Int64
}

func newAccepting(t *testing.T, target, accept, contentType string) *accepting {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	a := &accepting{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			if accept != "" {
				r.Out.Header.Set("Accept", accept)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == 200 && strings.HasPrefix(resp.Header.Get("Content-Type"), contentType) {
				a.right.Add(1)
			} else {
				a.wrong.Add(1)
			}
			return nil
		},
	}
	a.Server = httptest.NewServer(proxy)
	t.Cleanup(a.Close)
	return a
}

func (a *accepting) host() string { return strings.TrimPrefix(a.URL, "http://") }

// prometheus is a running server of the Debian package.
type prometheus struct {
	t    *testing.T
	base string
}

// startPrometheus scrapes each job's address every two seconds.
func startPrometheus(t *testing.T, jobs map[string]string) *prometheus {
	t.Helper()
	config := ""
	for job, address := range jobs {
		config += fmt.Sprintf("- {job_name: %s, honor_labels: true, static_configs: [{targets: ['%s']}]}\n", job, address)
	}
	return startPrometheusWith(t, "2s", config)
}

// startPrometheusWith takes scrape_configs in YAML.
func startPrometheusWith(t *testing.T, interval, scrapeConfigs string) *prometheus {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("%v (Debian package prometheus)", err)
	}
	return startPrometheusProgram(t, path, interval, scrapeConfigs)
}

// startPrometheusProgram takes the program and its flags as well.
func startPrometheusProgram(t *testing.T, path, interval, scrapeConfigs string, flags ...string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: %[1]s, scrape_timeout: %[1]s}\nscrape_configs:\n%[2]s", interval, scrapeConfigs)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	port := harness.FreePort(t)
	p := &prometheus{t, fmt.Sprintf("http://127.0.0.1:%d", port)}
	process := harness.Start(t, harness.Program{Name: "prometheus", Path: path}, append(flags,
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port))...)
	harness.WaitStatus(t, process, p.base+"/-/ready", 200)
	return p
}

// get queries the HTTP API.
func (p *prometheus) get(path string, into any) error {
	resp, err := harness.Get(p.base + path)
	if err != nil {
		return err
	}
	if resp.Status != 200 {
		return fmt.Errorf("%s: status %d: %s", path, resp.Status, resp.Body)
	}
	return json.Unmarshal([]byte(resp.Body), into)
}

// waitQuery waits until an instant query returns one series with this value.
func (p *prometheus) waitQuery(query, want string) {
	p.t.Helper()
	harness.Eventually(p.t, query+" is "+want, func() error {
		var answer struct {
			Data struct {
				Result []struct{ Value []any }
			}
		}
		if err := p.get("/api/v1/query?query="+url.QueryEscape(query), &answer); err != nil {
			return err
		}
		if len(answer.Data.Result) != 1 || fmt.Sprint(answer.Data.Result[0].Value[1]) != want {
			return fmt.Errorf("the answer is %v, targets: %w", answer.Data.Result, p.targetErrors())
		}
		return nil
	})
}

// targetErrors are the scrape errors reported by Prometheus, nil for none.
func (p *prometheus) targetErrors() error {
	var answer struct {
		Data struct {
			ActiveTargets []struct{ ScrapePool, Health, LastError string }
		}
	}
	if err := p.get("/api/v1/targets", &answer); err != nil {
		return err
	}
	var problems []error
	for _, target := range answer.Data.ActiveTargets {
		if target.Health != "up" || target.LastError != "" {
			problems = append(problems, fmt.Errorf("%s is %s: %s", target.ScrapePool, target.Health, target.LastError))
		}
	}
	return errors.Join(problems...)
}

// TestPrometheusScrapesKubernetes has a real Prometheus scrape the Kubernetes
// series in both formats and answer queries about them.
func TestPrometheusScrapesKubernetes(t *testing.T) {
	cluster := harness.StartCluster(t)
	var kinds []string
	for _, k := range servedKinds(t, cluster) {
		kinds = append(kinds, k.resource)
		cluster.Create(k.resource, k.object())
	}
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), append(everything(strings.Join(kinds, ",")), "--kubeconfig="+cluster.Kubeconfig)...)
	harness.Eventually(t, "all kinds are listed", func() error {
		e, err := harness.Scrape(exporter.Base+"/metrics", harness.Text)
		for _, kind := range kinds {
			if !strings.Contains(strings.Join(e.Samples, "\n"), `"e2e-`+kind+`"`) {
				err = errors.Join(err, fmt.Errorf("nothing of %s", kind))
			}
		}
		return err
	})
	promtool(t, exporter.Base+"/metrics")
	promtool(t, exporter.Telemetry+"/metrics")

	text := newAccepting(t, exporter.Base, "text/plain;version=0.0.4", "text/plain; version=0.0.4")
	// Prometheus' own header prefers OpenMetrics.
	open := newAccepting(t, exporter.Base, "", "application/openmetrics-text; version=1.0.0")
	p := startPrometheus(t, map[string]string{"text": text.host(), "openmetrics": open.host()})
	for _, job := range []string{"text", "openmetrics"} {
		p.waitQuery(fmt.Sprintf(`up{job=%q}`, job), "1")
		p.waitQuery(fmt.Sprintf(`kube_deployment_spec_replicas{job=%q,deployment="e2e-deployments"}`, job), "3")
		p.waitQuery(fmt.Sprintf(`sum(kube_pod_container_status_restarts_total{job=%q})`, job), "2")
		p.waitQuery(fmt.Sprintf(`count(count by (__name__) ({job=%q,__name__=~"kube_.*"})) > bool 200`, job), "1")
	}
	// The next scrape shows a change.
	cluster.Patch("deployments", harness.Object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: e2e-deployments, namespace: e2e}}"),
		map[string]any{"spec": map[string]any{"replicas": 11}})
	p.waitQuery(`kube_deployment_spec_replicas{job="text",deployment="e2e-deployments"}`, "11")
	p.waitQuery(`kube_deployment_spec_replicas{job="openmetrics",deployment="e2e-deployments"}`, "11")
	harness.Eventually(t, "all targets are well", p.targetErrors)
	for _, format := range []*accepting{text, open} {
		if format.right.Load() == 0 || format.wrong.Load() != 0 {
			t.Errorf("%d answers in the format asked for, %d in another", format.right.Load(), format.wrong.Load())
		}
	}
}

// TestPrometheusScrapesStatsd has a real Prometheus scrape StatsD metrics.
func TestPrometheusScrapesStatsd(t *testing.T) {
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), `
mappings:
- {match: took.*, name: took_seconds, observer_type: histogram, histogram_options: {buckets: [0.25, 1]}, labels: {what: $1}}
`)
	server.SendUDP("hits:5|c|#code:200\nlevel:42.5|g\nsize:0.5:1.5|h\ntook.a:125:500|ms\nodd:1|c|#text:quo\"te\\ü")
	server.WaitSeries(`hits{code="200"} 5`, "size_count 2", `took_seconds_count{what="a"} 2`)
	promtool(t, server.Base+"/metrics")

	text := newAccepting(t, server.Base, "text/plain;version=0.0.4", "text/plain; version=0.0.4")
	jobs := map[string]string{"text": text.host(), "asked": strings.TrimPrefix(server.Base, "http://")}
	p := startPrometheus(t, jobs)
	for job := range jobs {
		p.waitQuery(fmt.Sprintf(`up{job=%q}`, job), "1")
		p.waitQuery(fmt.Sprintf(`sum({__name__=~"hits|hits_total",job=%q})`, job), "5")
		p.waitQuery(fmt.Sprintf(`level{job=%q}`, job), "42.5")
		p.waitQuery(fmt.Sprintf(`size{job=%q,quantile="0.5"}`, job), "0.5")
		p.waitQuery(fmt.Sprintf(`took_seconds_bucket{job=%q,le="0.25"}`, job), "1")
	}
	harness.Eventually(t, "all targets are well", p.targetErrors)
}

// TestPrometheusScrapesProtobuf has a recent Prometheus scrape both sides as protobuf, with start times and native
// histograms, and as text.
func TestPrometheusScrapesProtobuf(t *testing.T) {
	cluster := harness.StartCluster(t)
	for _, k := range servedKinds(t, cluster) {
		cluster.Create(k.resource, k.object())
	}
	server := harness.StartStatsd(t, harness.KstatdRun(t), `
mappings:
- {match: took.*, name: took_seconds, observer_type: histogram, histogram_options: {buckets: [0.25, 1], native_histogram_bucket_factor: 1.1}, labels: {what: $1}}
`, "--kubeconfig="+cluster.Kubeconfig)
	const protobuf = "application/vnd.google.protobuf"
	jobs := map[string]*accepting{
		"protobuf": newAccepting(t, server.Base, "", protobuf),
		"text":     newAccepting(t, server.Base, "text/plain;version=0.0.4", "text/plain; version=0.0.4"),
	}
	config := ""
	for job, proxy := range jobs {
		config += fmt.Sprintf("- {job_name: %s, honor_labels: true, scrape_native_histograms: true, always_scrape_classic_histograms: true, static_configs: [{targets: ['%s']}]}\n", job, proxy.host())
	}
	p := startPrometheusProgram(t, harness.Tool(t, "prometheus"), "1s", config, "--enable-feature=created-timestamp-zero-ingestion")
	for job := range jobs {
		p.waitQuery(fmt.Sprintf(`up{job=%q}`, job), "1")
		p.waitQuery(fmt.Sprintf(`kube_deployment_spec_replicas{job=%q,deployment="e2e-deployments"}`, job), "3")
	}
	// The first increment of a new series, which its first sample already contains, is an increase.
	server.SendUDP("hits:5|c|#code:200\nlevel:42.5|g\nsize:0.5:1.5|d\ntook.a:125:500|ms")
	p.waitQuery(`increase(hits{job="protobuf",code="200"}[1m]) >= bool 5`, "1")
	p.waitQuery(`increase(size_count{job="protobuf"}[1m]) >= bool 2`, "1")
	p.waitQuery(`histogram_count(increase(took_seconds{job="protobuf",what="a"}[1m])) >= bool 2`, "1")
	p.waitQuery(`increase(took_seconds_bucket{job="protobuf",le="0.25"}[1m]) >= bool 1`, "1")
	// Text has no start time: nothing increases after the first sample.
	p.waitQuery(`increase(hits{job="text",code="200"}[1m])`, "0")
	p.waitQuery(`histogram_count(took_seconds{job="protobuf"})`, "2")
	p.waitQuery(`level{job="protobuf"}`, "42.5")
	// Both have the same series and values, except for native histograms and those of Prometheus itself.
	of := func(what, job string) string {
		return fmt.Sprintf(`%s by (__name__) ({job=%q,__name__!~"up|scrape_.*|took_seconds"})`, what, job)
	}
	for _, what := range []string{"count", "sum"} {
		p.waitQuery(fmt.Sprintf(`count(%s == on (__name__) %s) == bool count(%s)`, of(what, "protobuf"), of(what, "text"), of("count", "text")), "1")
		p.waitQuery(fmt.Sprintf(`count(%s) == bool count(%s)`, of("count", "protobuf"), of("count", "text")), "1")
	}
	p.waitQuery(fmt.Sprintf(`count(%s) > bool 200`, of("count", "protobuf")), "1")
	harness.Eventually(t, "all targets are well", p.targetErrors)
	for job, format := range jobs {
		if format.right.Load() == 0 || format.wrong.Load() != 0 {
			t.Errorf("%s: %d answers in the format asked for, %d in another", job, format.right.Load(), format.wrong.Load())
		}
	}
	// The parsers of the server and of the Go library read the same samples as in text.
	read := map[string]int{}
	for _, accept := range []string{protobuf + ";proto=io.prometheus.client.MetricFamily;encoding=delimited", "text/plain"} {
		answer, err := harness.Get(server.Base+"/metrics", "Accept", accept)
		if err != nil {
			t.Fatal(err)
		}
		if read[accept], err = serverReads(answer.Body, answer.Header.Get("Content-Type")); err != nil {
			t.Errorf("the server: %v", err)
		}
		if err := libraryReads(answer.Body, answer.Header); err != nil {
			t.Errorf("the Go library: %v", err)
		}
	}
	for accept, samples := range read {
		if samples == 0 || samples != read["text/plain"] {
			t.Errorf("the server reads %d samples of %s, %d of text", samples, accept, read["text/plain"])
		}
	}
}
