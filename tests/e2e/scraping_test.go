package e2e

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// shippedJobs are the jobs of deploy/prometheus/scrape-config.yaml.
type shippedJobs struct {
	ScrapeConfigs []struct {
		KubernetesSDConfigs []struct {
			Role      string
			Selectors []struct{ Role, Label string }
		} `json:"kubernetes_sd_configs"`
		MetricsPath    string `json:"metrics_path"`
		RelabelConfigs []struct {
			SourceLabels []monitoringv1.LabelName `json:"source_labels"`
			Regex        string
			Action       string
			TargetLabel  string `json:"target_label"`
		} `json:"relabel_configs"`
	} `json:"scrape_configs"`
}

// scrapedWithoutOperator returns the ports of each workload that a Prometheus without the operator scrapes, an entry for each
// time: through annotations of Services and pods, as the jobs of its chart do, and with deploy/prometheus/scrape-config.yaml.
func (c chart) scrapedWithoutOperator(t *testing.T, phase string) map[string][]string {
	t.Helper()
	var jobs shippedJobs
	if err := yaml.Unmarshal([]byte(readFile(t, harness.RepoFile("deploy", "prometheus", "scrape-config.yaml"))), &jobs); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, o := range c.objects {
		if kind := o.GetKind(); kind != "Deployment" && kind != "StatefulSet" && kind != "DaemonSet" {
			continue
		}
		var workload appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &workload); err != nil {
			t.Fatal(err)
		}
		pod := workload.Spec.Template
		var ports []string
		// Discovery has a target for each port, which the annotation makes the same one.
		annotated := func(of string, annotations map[string]string) {
			if annotations["prometheus.io/scrape"] != "true" {
				return
			}
			for _, port := range pod.Spec.Containers[0].Ports {
				if strconv.Itoa(int(port.ContainerPort)) == annotations["prometheus.io/port"] {
					ports = append(ports, port.Name)
					return
				}
			}
			t.Errorf("%s: the port is %q", of, annotations["prometheus.io/port"])
		}
		annotated("pod of "+o.GetName(), pod.Annotations)
		for _, s := range c.ofKind("Service") {
			service := as[corev1.Service](t, s)
			if s.GetNamespace() == o.GetNamespace() && k8slabels.SelectorFromSet(service.Spec.Selector).Matches(k8slabels.Set(pod.Labels)) {
				annotated("Service "+service.Name, service.Annotations)
			}
		}
		for _, job := range jobs.ScrapeConfigs {
			selector, err := k8slabels.Parse(job.KubernetesSDConfigs[0].Selectors[0].Label)
			if err != nil || job.KubernetesSDConfigs[0].Role != "pod" {
				t.Fatalf("%+v: %v", job, err)
			}
			if !selector.Matches(k8slabels.Set(pod.Labels)) {
				continue
			}
			var configs []monitoringv1.RelabelConfig
			for _, r := range job.RelabelConfigs {
				configs = append(configs, monitoringv1.RelabelConfig{SourceLabels: r.SourceLabels, Regex: r.Regex, Action: r.Action, TargetLabel: r.TargetLabel})
			}
			for _, container := range pod.Spec.Containers {
				for _, port := range container.Ports {
					labels := map[string]string{
						"__meta_kubernetes_pod_container_name": container.Name, "__meta_kubernetes_pod_container_port_name": port.Name, "__meta_kubernetes_pod_phase": phase,
					}
					if relabelled(t, configs, labels) {
						ports = append(ports, strings.TrimPrefix(container.Name+" ", pod.Spec.Containers[0].Name+" ")+port.Name+job.MetricsPath)
					}
				}
			}
		}
		slices.Sort(ports)
		all[o.GetKind()+" "+o.GetName()] = ports
	}
	return all
}

// TestScrapedWithoutOperator checks that a Prometheus without the operator scrapes the main port and the own metrics of each pod
// once, in each deployment, and none of a pod that has ended.
func TestScrapedWithoutOperator(t *testing.T) {
	harness.NotInSelfCheck(t)
	deployments := map[string]chart{}
	for _, name := range slices.Concat(besides...) {
		deployments["deploy/"+name] = loadVariant(t, name)
	}
	const sidecar = "prometheusScrape: true\ncontainers: [{name: sidecar, image: i, ports: [{name: http, containerPort: 9}, {name: metrics, containerPort: 10}]}]\n"
	for _, layout := range []string{"", "standby: true\nreplicas: 2", "autosharding: {enabled: true}\nreplicas: 2", "daemonset: {enabled: true}"} {
		deployments["chart, "+layout] = renderChart(t, sidecar+layout)
	}
	exporter := strings.Replace(sidecar, "prometheusScrape: true\n", "personality: statsd_exporter\nservice: {annotations: {prometheus.io/scrape: \"true\", prometheus.io/port: \"9102\"}}\n", 1)
	exporter = strings.Split(exporter, "containers:")[0]
	for _, layout := range []string{"", "daemonset: {enabled: true}"} {
		deployments["chart, statsd_exporter, "+layout] = renderChart(t, exporter+layout)
	}
	for name, c := range deployments {
		for workload, ports := range c.scrapedWithoutOperator(t, "Running") {
			want := []string{"http", "telemetry"}
			if strings.Contains(name, "statsd_exporter") {
				want = []string{"http", "http/kstatd/metrics"}
			} else if strings.HasPrefix(name, "chart") {
				want = []string{"http", "metrics"}
			}
			if !slices.Equal(ports, want) {
				t.Errorf("%s: of a pod of %s are scraped %q, it should be %q", name, workload, ports, want)
			}
		}
		for workload, ports := range c.scrapedWithoutOperator(t, "Failed") {
			if own := slices.DeleteFunc(ports, func(port string) bool { return port == "http" }); len(own) > 0 {
				t.Errorf("%s: of an evicted pod of %s are scraped %q", name, workload, own)
			}
		}
	}
}

// TestDeployVirtualShards checks that the ServiceMonitor of deploy/prometheus finds each of its ports once.
func TestDeployVirtualShards(t *testing.T) {
	harness.NotInSelfCheck(t)
	var monitor monitoringv1.ServiceMonitor
	if err := yaml.UnmarshalStrict([]byte(readFile(t, harness.RepoFile("deploy", "prometheus", "virtual-shards.yaml"))), &monitor); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range besides[0] {
		ports := map[string]int{}
		for _, o := range loadVariant(t, name).ofKind("Service") {
			service := as[corev1.Service](t, o)
			if service.Namespace == monitor.Namespace && selector.Matches(k8slabels.Set(service.Labels)) {
				for _, port := range service.Spec.Ports {
					ports[port.Name]++
				}
			}
		}
		for _, endpoint := range monitor.Spec.Endpoints {
			if ports[endpoint.Port] != 1 {
				t.Errorf("deploy/%s: port %s is in %d Services", name, endpoint.Port, ports[endpoint.Port])
			}
		}
	}
}
