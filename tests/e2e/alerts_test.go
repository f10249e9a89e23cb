package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kstatd/e2e/harness"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// fastRules are the mixin's rules with minutes instead of hours and seconds instead of minutes, and with thresholds
// that a test can reach. Selectors, labels and expressions are the shipped ones.
func fastRules(t *testing.T) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "rules.jsonnet")
	text := fmt.Sprintf("std.manifestYamlDoc(((import %q) + { _config+:: { slowScrapeSeconds: 0.5, growthSeries: 100, staleSeconds: 45 } }).prometheusAlerts)", mixin("mixin.libsonnet"))
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rules := command(t, harness.Tool(t, "jsonnet"), "--string", source)
	rules = regexp.MustCompile(`offset 1h`).ReplaceAllString(rules, "offset 10s")
	rules = regexp.MustCompile(`\[(\d+)m\]`).ReplaceAllString(rules, "[${1}s]")
	rules = regexp.MustCompile(`offset (\d+)m`).ReplaceAllString(rules, "offset ${1}s")
	return regexp.MustCompile(`"for": "\d+[mh]"`).ReplaceAllString(rules, `"for": "1s"`)
}

// latency is a forward proxy with a delay, between Prometheus and its targets in a network.
type latency struct{ delay atomic.Int64 }

// newLatency starts the proxy on the port.
func newLatency(t *testing.T, network *harness.Network, port int) *latency {
	t.Helper()
	l := &latency{}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: r.In.Host}) },
		Transport: &http.Transport{DialContext: network.Dial},
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Duration(l.delay.Load())):
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})}
	var listener net.Listener
	var err error
	network.Inside(func() { listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) })
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return l
}

// deployed is one of the documented deployments of kstatd, as far as alerts are concerned.
type deployed struct {
	name         string
	kube, statsd bool
	// manifests are the applied manifests; the container of their workload runs.
	manifests func(t *testing.T) chart
	// jobs are the documented scrape_configs of this deployment.
	jobs func(t *testing.T, c chart, cluster *harness.Cluster) []map[string]any
	// over are arguments that make the budgets small.
	over []string
}

// staticJob scrapes a port as a target with these labels.
func staticJob(name string, port int32, path string, labels map[string]string) map[string]any {
	return map[string]any{
		"job_name": name, "metrics_path": path, "honor_labels": true,
		"static_configs": []any{map[string]any{"targets": []string{fmt.Sprintf("127.0.0.1:%d", port)}, "labels": labels}},
	}
}

const alertPod = "alerting-0"

// monitored are the jobs that the Prometheus operator generates from the chart's ServiceMonitor.
func monitored(t *testing.T, c chart, _ *harness.Cluster) (jobs []map[string]any) {
	t.Helper()
	monitor := as[monitoringv1.ServiceMonitor](t, c.ofKind("ServiceMonitor")[0])
	service := c.ofKind("Service")[0]
	for i, e := range monitor.Spec.Endpoints {
		at := slices.IndexFunc(c.container.Ports, func(p corev1.ContainerPort) bool { return p.Name == e.Port })
		path := "/metrics"
		if e.Path != "" {
			path = e.Path
		}
		// Without a jobLabel the job is the Service.
		job := service.GetName()
		if monitor.Spec.JobLabel != "" {
			job = service.GetLabels()[monitor.Spec.JobLabel]
		}
		labels := map[string]string{"job": job, "namespace": "monitoring", "service": service.GetName(), "pod": alertPod, "container": c.container.Name}
		if len(e.RelabelConfigs) > 0 {
			labels["metrics_path"] = path
		}
		jobs = append(jobs, staticJob(fmt.Sprint("serviceMonitor/", i), c.container.Ports[at].ContainerPort, path, labels))
	}
	return jobs
}

// annotated are the jobs of discovery through annotations of the Service, and of the scrape configuration in
// deploy/prometheus, which finds the pod through the API server.
func annotated(t *testing.T, c chart, cluster *harness.Cluster) []map[string]any {
	t.Helper()
	service := c.ofKind("Service")[0]
	if service.GetAnnotations()["prometheus.io/scrape"] != "true" || service.GetAnnotations()["prometheus.io/port"] != "8080" {
		t.Errorf("the annotations of the Service are %v", service.GetAnnotations())
	}
	labels := map[string]string{"namespace": "kstatd", "service": service.GetName(), "app_kubernetes_io_name": service.GetLabels()["app.kubernetes.io/name"]}
	jobs := []map[string]any{staticJob("kubernetes-service-endpoints", 8080, "/metrics", labels)}
	text, err := os.ReadFile(harness.RepoFile("deploy", "prometheus", "scrape-config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		ScrapeConfigs []map[string]any `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &shipped); err != nil {
		t.Fatal(err)
	}
	// Debian's Prometheus has no Kubernetes discovery: the discovered labels are static here, the rest is as shipped.
	pod, err := cluster.Typed.CoreV1().Pods("kstatd").Get(context.Background(), alertPod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range shipped.ScrapeConfigs {
		discovery := job["kubernetes_sd_configs"].([]any)[0].(map[string]any)
		selector, err := k8slabels.Parse(discovery["selectors"].([]any)[0].(map[string]any)["label"].(string))
		if err != nil || discovery["role"] != "pod" {
			t.Fatalf("%v: %v", discovery, err)
		}
		delete(job, "kubernetes_sd_configs")
		if !selector.Matches(k8slabels.Set(pod.Labels)) {
			continue
		}
		var found []any
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				meta := map[string]string{
					"__meta_kubernetes_namespace": pod.Namespace, "__meta_kubernetes_pod_name": pod.Name,
					"__meta_kubernetes_pod_container_name": container.Name, "__meta_kubernetes_pod_container_port_name": port.Name,
				}
				for name, value := range pod.Labels {
					meta["__meta_kubernetes_pod_label_"+strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(name)] = value
				}
				found = append(found, map[string]any{"targets": []string{fmt.Sprintf("%s:%d", pod.Status.PodIP, port.ContainerPort)}, "labels": meta})
			}
		}
		job["static_configs"] = found
		jobs = append(jobs, job)
	}
	return jobs
}

// onHost are the jobs of deploy/prometheus/static.yaml.
func onHost(t *testing.T, _ chart, _ *harness.Cluster) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(harness.RepoFile("deploy", "prometheus", "static.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		ScrapeConfigs []map[string]any `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "HOST:", "127.0.0.1:")), &shipped); err != nil {
		t.Fatal(err)
	}
	return shipped.ScrapeConfigs
}

// unit is the service of deploy/systemd: a container with the arguments of its environment file.
func unit(t *testing.T) chart {
	t.Helper()
	text, err := os.ReadFile(harness.RepoFile("deploy", "systemd", "kstatd.env"))
	if err != nil {
		t.Fatal(err)
	}
	args := regexp.MustCompile(`(?m)^KSTATD_ARGS=(.*)$`).FindStringSubmatch(string(text))
	if args == nil {
		t.Fatal("kstatd.env sets no KSTATD_ARGS")
	}
	c := chart{config: map[string]corev1.ConfigMap{}}
	c.container = corev1.Container{Name: "kstatd", Command: []string{"/kstatd"}, Args: strings.Fields(args[1])}
	return c
}

func rendered(values string) func(*testing.T) chart {
	return func(t *testing.T) chart { return renderChart(t, values) }
}

var deployments = []deployed{
	{
		name: "chart in place of kube-state-metrics", kube: true, jobs: monitored,
		manifests: rendered("personality: kube-state-metrics\nselfMonitor: {enabled: true}\nprometheus: {monitor: {enabled: true, http: {honorLabels: true}}}\n"),
		over:      []string{"--limit.mode=enforce", "--limit.series-per-kind=10"},
	},
	{
		name: "chart in place of statsd_exporter", statsd: true, jobs: monitored,
		manifests: rendered("personality: statsd_exporter\nselfMonitor: {enabled: true}\nserviceMonitor: {enabled: true}\n" + mapping),
		over:      []string{"--limit.mode=enforce", "--limit.series-per-metric=10"},
	},
	{
		name: "chart", kube: true, statsd: true, jobs: monitored,
		manifests: rendered("prometheus: {monitor: {enabled: true}}\n" + mapping),
		over:      []string{"--limit.series-per-metric=10"},
	},
	{
		name: "manifests with annotations", kube: true, statsd: true, jobs: annotated,
		manifests: func(t *testing.T) chart { return loadVariant(t, "standard") },
		over:      []string{"--limit.series-per-metric=10"},
	},
	{
		name: "systemd", kube: true, statsd: true, jobs: onHost, manifests: unit,
		over: []string{"--limit.series-per-metric=10"},
	},
}

// alertRun is a deployment with a Prometheus that scrapes it.
type alertRun struct {
	deployed
	t          *testing.T
	chart      chart
	network    *harness.Network
	image      *harness.Image
	cluster    *harness.Cluster
	namespace  string
	env        []string
	process    *harness.Process
	prometheus *harness.Process
}

// start runs the container, with further arguments.
func (r *alertRun) start(more ...string) {
	r.t.Helper()
	c := r.chart
	c.container.Args = slices.Concat(c.container.Args, more)
	r.process = c.start(r.t, r.image, r.network, "/kstatd", alertPod, r.namespace, r.env...)
}

// query runs a query and returns the number of series.
func (r *alertRun) query(query string) (int, error) {
	if !r.prometheus.Running() {
		r.t.Fatalf("prometheus has ended:\n%s", r.prometheus.Output())
	}
	resp, err := r.network.Get("http://127.0.0.1:9090/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Status string
		Data   struct{ Result []any }
	}
	if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", query, resp.Body)
	}
	return len(answer.Data.Result), nil
}

// fires waits until the alert fires.
func (r *alertRun) fires(fired map[string]bool, alert string) {
	r.t.Helper()
	began := time.Now()
	harness.Eventually(r.t, r.name+": "+alert+" fires", func() error {
		found, err := r.query(fmt.Sprintf(`ALERTS{alertname=%q,alertstate="firing"}`, alert))
		if err == nil && found == 0 {
			err = errors.New("it does not")
		}
		return err
	})
	fired[alert] = true
	r.t.Logf("%s fires after %.0f s", alert, time.Since(began).Seconds())
}

// lines sends StatsD lines.
func (r *alertRun) lines(lines ...string) {
	r.t.Helper()
	conn, err := r.network.Dial(context.Background(), "tcp", "127.0.0.1:9125")
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		r.t.Fatal(err)
	}
}

// keepSending sends lines every 100 ms until the function that it returns is called.
func (r *alertRun) keepSending(lines ...string) func() {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if conn, err := r.network.Dial(context.Background(), "udp", "127.0.0.1:9125"); err == nil {
					conn.Write([]byte(strings.Join(lines, "\n")))
					conn.Close()
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

// TestAlertsOnDeployments deploys kstatd in each documented way with a real Prometheus, and causes the fault of each
// alert. No alert fires without a fault.
func TestAlertsOnDeployments(t *testing.T) {
	t.Parallel() // it waits most of its time
	harness.NotInSelfCheck(t)
	rules := fastRules(t)
	for _, d := range deployments {
		t.Run(d.name, func(t *testing.T) {
			r := &alertRun{deployed: d, t: t, chart: d.manifests(t), network: harness.NewNetwork(t), image: harness.NewImage(t), namespace: "monitoring"}
			if d.name == "manifests with annotations" {
				r.namespace = "kstatd"
			}
			if d.name == "systemd" || d.name == "manifests with annotations" {
				r.image.Mount("/etc/mapping.yaml", "mappings: [{match: a.*, name: a, labels: {x: $1}}]\n")
				r.chart.container.Args = append(r.chart.container.Args, "--statsd.mapping-config=/etc/mapping.yaml")
			}
			const customFile = "/etc/custom.yaml"
			if d.kube {
				r.cluster = harness.StartClusterIn(t, r.network)
				r.chart.objects = slices.DeleteFunc(r.chart.objects, func(o *unstructured.Unstructured) bool {
					return operatorKinds[o.GetKind()] != nil && o.GetKind() != "ServiceMonitor"
				})
				withoutMonitors := r.chart
				withoutMonitors.objects = slices.DeleteFunc(slices.Clone(r.chart.objects), func(o *unstructured.Unstructured) bool { return operatorKinds[o.GetKind()] != nil })
				withoutMonitors.apply(t, r.cluster)
				if d.name == "systemd" {
					kubeconfig, err := os.ReadFile(r.cluster.Kubeconfig)
					if err != nil {
						t.Fatal(err)
					}
					r.image.Mount("/etc/kubeconfig", string(kubeconfig))
					r.chart.container.Args = append(r.chart.container.Args, "--kubeconfig=/etc/kubeconfig")
				} else {
					r.env = inCluster(t, r.image, r.cluster, r.namespace, r.chart.pod.ServiceAccountName)
					// The custom kind needs a separate permission.
					r.cluster.Create("clusterroles", harness.Object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: widgets}, rules: [{apiGroups: [example.io], resources: [widgets], verbs: [list, watch]}, {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}]}"))
					r.cluster.Create("clusterrolebindings", harness.Object(t, fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: widgets}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: widgets}, subjects: [{kind: ServiceAccount, name: %s, namespace: %s}]}", r.chart.pod.ServiceAccountName, r.namespace)))
				}
				r.cluster.Create(definitions, definition(t, "widgets", "Widget", "v1"))
				r.image.Mount(customFile, "kind: CustomResourceStateMetrics\nspec: {resources: [{groupVersionKind: {group: example.io, kind: Widget, version: v1}, metrics: [{name: replicas, help: h, each: {type: Gauge, gauge: {path: [spec, replicas]}}}, {name: renamed, help: h, each: {type: Gauge, gauge: {path: [spec, renamed]}}}]}]}\n")
				r.chart.container.Args = append(r.chart.container.Args, "--custom-resource-state-config-file="+customFile)
				// The status that a kubelet would report.
				name := r.chart.container.Name
				ports := []string{}
				for _, p := range r.chart.container.Ports {
					if p.Protocol != corev1.ProtocolUDP {
						ports = append(ports, fmt.Sprintf("{name: %s, containerPort: %d}", p.Name, p.ContainerPort))
					}
				}
				r.cluster.Create("pods", harness.Object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app.kubernetes.io/name: kstatd}}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers: [{name: %s, image: i, ports: [%s], resources: {limits: {memory: 512Mi}}, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]
status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}]}
`, alertPod, r.namespace, name, strings.Join(ports, ", "))))
			}
			for _, m := range r.chart.container.VolumeMounts {
				if m.Name == "statsd-mapping-config" {
					r.chart.mount(t, r.image)
				}
			}
			// The process reads its memory from /proc, which each container has.
			r.image.MountProc()
			r.start()

			slow := newLatency(t, r.network, 9091)
			jobs := d.jobs(t, r.chart, r.cluster)
			for _, job := range jobs {
				job["proxy_url"] = "http://127.0.0.1:9091"
			}
			dir := t.TempDir()
			rulesFile, configFile := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "prometheus.yaml")
			config, err := yaml.Marshal(map[string]any{
				"global":     map[string]any{"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
				"rule_files": []string{rulesFile}, "scrape_configs": jobs,
			})
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{rulesFile: rules, configFile: string(config)} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path, err := exec.LookPath("prometheus")
			if err != nil {
				t.Fatalf("%v (Debian package prometheus)", err)
			}
			r.prometheus = harness.StartWith(t, harness.Program{Name: "prometheus", Path: path}, harness.StartOptions{Network: r.network},
				"--config.file="+configFile, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:9090")

			targets := 2
			if !d.kube {
				targets = len(jobs)
			}
			harness.Eventually(t, "all targets are scraped", func() error {
				found, err := r.query(`up == 1`)
				if err == nil && found != targets {
					err = fmt.Errorf("%d of %d are up", found, targets)
				}
				return err
			})
			waitEvaluated(t, r.network)
			if found, err := r.query(`ALERTS{alertstate="firing"}`); err != nil || found > 0 {
				t.Fatalf("nothing is wrong, and %d alerts fire: %v", found, err)
			}

			fired := map[string]bool{}
			if d.statsd {
				stop := r.keepSending("a.known:1|c", "unknown:1|c", "broken|", "twice:abc|c")
				r.fires(fired, "KstatdUnmappedShare")
				r.fires(fired, "KstatdStatsdRejects")
				stop()
				r.lines("conflict:1|c", "conflict:1|g")
				r.fires(fired, "KstatdTypeConflict")
				var many []string
				for i := range 400 {
					many = append(many, fmt.Sprintf("grown.%d:1|c", i))
				}
				r.lines(many...)
				r.fires(fired, "KstatdSeriesGrowth")
				// A stopped process while others send.
				r.process.Freeze()
				flood, err := r.network.Dial(context.Background(), "udp", "127.0.0.1:9125")
				if err != nil {
					t.Fatal(err)
				}
				datagram := []byte(strings.Repeat("flood:1|c\n", 800))
				for range 20000 {
					flood.Write(datagram)
				}
				flood.Close()
				r.process.Signal(syscall.SIGCONT)
				r.fires(fired, "KstatdUdpDrops")
			}
			if d.kube {
				createResource(t, r.cluster, "widgets", harness.Object(t, "{apiVersion: example.io/v1, kind: Widget, metadata: {name: w, namespace: default}, spec: {replicas: many}}"))
				r.fires(fired, "KstatdCustomResourceValueErrors")
				r.fires(fired, "KstatdCustomResourceMetricEmpty")
				if !d.statsd {
					for i := range 120 {
						r.cluster.Create("configmaps", harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, namespace: default}}", i)))
					}
					r.fires(fired, "KstatdSeriesGrowth")
				}
				r.image.Mount(customFile, "kind: [")
			} else {
				r.image.Mount("/etc/prometheus-statsd-exporter/statsd-mapping.conf", "mappings: [")
				r.process.Signal(syscall.SIGHUP)
			}
			r.fires(fired, "KstatdConfigReloadFailed")
			slow.delay.Store(int64(800 * time.Millisecond))
			r.fires(fired, "KstatdScrapeSlow")
			slow.delay.Store(0)
			if d.kube && !d.statsd {
				// Under the name kube-state-metrics it waits for the API server before it opens its ports, as the original does.
				r.cluster.Process().Freeze()
				r.fires(fired, "KstatdListWatchErrors")
				r.fires(fired, "KstatdKindStale")
				r.cluster.Process().Signal(syscall.SIGCONT)
			}
			r.process.Stop()
			r.fires(fired, "KstatdDown")
			if d.kube {
				r.image.Mount(customFile, "kind: CustomResourceStateMetrics\nspec: {resources: []}\n")
				if d.statsd {
					// An API server that does not answer.
					r.cluster.Process().Freeze()
					r.start()
					r.fires(fired, "KstatdNotReady")
					r.fires(fired, "KstatdKindStale")
					r.fires(fired, "KstatdListWatchErrors")
					r.process.Stop()
					r.cluster.Process().Signal(syscall.SIGCONT)
				}
				// Permissions are revoked, one of two shards is missing, and budgets are small.
				if d.name == "systemd" {
					r.image.Mount("/etc/kubeconfig", readFile(t, r.cluster.KubeconfigWith(r.cluster.URL(), r.cluster.ServiceAccountToken("nobody", "[]"))))
				} else {
					podsOnly := harness.Object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "+r.roleName()+"}, rules: [{apiGroups: [''], resources: [pods, configmaps], verbs: [list, watch]}]}")
					if _, err := r.cluster.Resource("clusterroles", podsOnly).Update(context.Background(), podsOnly, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				// The pod needs nearly all of its memory limit.
				if d.name != "systemd" {
					pod := harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}}", alertPod, r.namespace))
					r.cluster.Patch("pods", pod, map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
						"name": r.chart.container.Name, "image": "i", "resources": map[string]any{"limits": map[string]any{"memory": "1Mi"}, "requests": map[string]any{"memory": "1Mi"}},
						"securityContext": map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}}},
					}}}}, "resize")
				}
				r.start(append([]string{"--shard=0", "--total-shards=2"}, d.over...)...)
				r.fires(fired, "KstatdKindForbidden")
				r.fires(fired, "KstatdShardMissing")
				if !d.statsd {
					r.fires(fired, "KstatdOverBudget")
				}
				if d.name != "systemd" {
					r.process.Stop()
					if d.statsd {
						r.start(d.over...)
					} else {
						// The budget would drop the pod.
						r.start()
					}
					r.fires(fired, "KstatdMemoryNearLimit")
				}
			} else {
				r.image.Mount("/etc/prometheus-statsd-exporter/statsd-mapping.conf", "mappings: []")
				r.start(d.over...)
			}
			if d.statsd {
				harness.Eventually(t, "lines are taken", func() error {
					conn, err := r.network.Dial(context.Background(), "tcp", "127.0.0.1:9125")
					if err == nil {
						conn.Close()
					}
					return err
				})
				var wide []string
				for i := range 100 {
					wide = append(wide, fmt.Sprintf("wide:1|c|#user:u%d", i))
				}
				r.lines(wide...)
				r.fires(fired, "KstatdOverBudget")
			}

			// Alerts that cannot fire here: pods on a host have no limit, StatsD has no API server, a real API server serves
			// no malformed object (the program's own tests cover these), no process here reports a node (promtool tests
			// those alerts), Prometheus takes every response here, and there is one replica (promtool tests a partition).
			without := []string{"KstatdMalformedObjects", "KstatdNodePressure", "KstatdNodeProcessUsage", "KstatdScrapesIncomplete", "KstatdStandbyPartition"}
			if d.name == "systemd" {
				without = append(without, "KstatdMemoryNearLimit")
			}
			if !d.kube {
				without = append(without, "KstatdMemoryNearLimit", "KstatdNotReady", "KstatdKindStale", "KstatdKindForbidden", "KstatdListWatchErrors", "KstatdShardMissing", "KstatdCustomResourceValueErrors", "KstatdCustomResourceMetricEmpty")
			}
			if !d.statsd {
				// Without an API server it is down instead.
				without = append(without, "KstatdNotReady", "KstatdUdpDrops", "KstatdStatsdRejects", "KstatdTypeConflict", "KstatdUnmappedShare")
			}
			text, err := os.ReadFile(mixin("rendered", "alerts.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, alert := range slices.Compact(alerts(t, text)) {
				if fired[alert] == slices.Contains(without, alert) {
					t.Errorf("%s: fired is %v", alert, fired[alert])
				}
			}
		})
	}
}

// roleName is the name of the ClusterRole of the manifests.
func (r *alertRun) roleName() string { return r.chart.ofKind("ClusterRole")[0].GetName() }

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
