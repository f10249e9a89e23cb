package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// TestPrometheusVirtualShards has a real Prometheus scrape a large exposition whole and in the parts of
// deploy/prometheus/virtual-shards.yaml. Its body_size_limit, which only the whole exceeds, costs all metrics of the
// whole and none of the parts. Prometheus reads a response that is too large to its end, so no scrape is incomplete.
func TestPrometheusVirtualShards(t *testing.T) {
	harness.NotInSelfCheck(t)
	const objects = 60
	cluster := harness.StartCluster(t)
	text := strings.Repeat("A configuration. ", 6_000)
	for i := range objects {
		cluster.Create("configmaps", harness.Object(t, fmt.Sprintf(
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, namespace: e2e, annotations: {text: %q}}}", i, text)))
	}
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig,
		"--resources=configmaps", "--namespaces=e2e", "--metric-annotations-allowlist=configmaps=[text]")
	var whole harness.Response
	harness.Eventually(t, "all objects are listed", func() error {
		var err error
		if whole, err = harness.Get(exporter.Base + "/metrics"); err != nil {
			return err
		}
		if found := strings.Count(whole.Body, "\nkube_configmap_annotations{"); found < objects {
			return fmt.Errorf("%d objects", found)
		}
		return nil
	})

	manifest, err := os.ReadFile(harness.RepoFile("deploy", "prometheus", "virtual-shards.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var monitor monitoringv1.ServiceMonitor
	if err := yaml.UnmarshalStrict(manifest, &monitor); err != nil {
		t.Fatal(err)
	}
	all, err := harness.Parse(whole.Body)
	if err != nil {
		t.Fatal(err)
	}
	limit := len(whole.Body) * 3 / 4
	main, telemetry := strings.TrimPrefix(exporter.Base, "http://"), strings.TrimPrefix(exporter.Telemetry, "http://")
	configs := fmt.Sprintf("- {job_name: whole, body_size_limit: %dB, honor_labels: true, static_configs: [{targets: ['%s']}]}\n", limit, main)
	parts := 0
	for _, endpoint := range monitor.Spec.Endpoints {
		if endpoint.Port != "http" {
			configs += fmt.Sprintf("- {job_name: own, static_configs: [{targets: ['%s']}]}\n", telemetry)
			continue
		}
		params, err := yaml.Marshal(endpoint.Params)
		if err != nil {
			t.Fatal(err)
		}
		// The operator gives all endpoints of a Service the same job.
		configs += fmt.Sprintf("- job_name: part%d\n  body_size_limit: %dB\n  honor_labels: %v\n  static_configs: [{targets: ['%s']}]\n  params:\n    %s\n  relabel_configs:\n",
			parts, limit, endpoint.HonorLabels, main, strings.ReplaceAll(strings.TrimSpace(string(params)), "\n", "\n    "))
		for _, relabel := range endpoint.RelabelConfigs {
			configs += fmt.Sprintf("  - {source_labels: [%s], target_label: %s}\n", relabel.SourceLabels[0], relabel.TargetLabel)
		}
		configs += "  - {target_label: job, replacement: parts}\n"
		parts++
	}
	p := startPrometheusWith(t, "2s", configs)
	p.waitQuery(`count(up{job="parts"} == 1)`, fmt.Sprint(parts))
	p.waitQuery(`count(count by (shard) (kube_configmap_info{job="parts"}))`, fmt.Sprint(parts))
	p.waitQuery(`count(count by (configmap) (kube_configmap_annotations{job="parts",namespace="e2e"}) == 1)`,
		fmt.Sprint(strings.Count(whole.Body, "\nkube_configmap_annotations{")))
	p.waitQuery(`sum(scrape_samples_post_metric_relabeling{job="parts"})`, fmt.Sprint(len(all.Samples)))
	p.waitQuery(`up{job="whole"}`, "0")
	p.waitQuery(`up{job="own"} unless on () kstatd_http_scrapes_incomplete_total`, "1")
}
