package e2e

import (
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestHelmAccessToOwners checks that what counts by workload may list the objects between pods and their workloads.
func TestHelmAccessToOwners(t *testing.T) {
	harness.NotInSelfCheck(t)
	for values, want := range map[string]bool{
		"kubernetesEvents: true":                                                   true,
		"metricOptInList: [kstatd_workload_pods]":                                  true,
		"extraArgs: [--metric-opt-in-list=^kstatd_.*]":                             true,
		"extraArgs: [--kubernetes-events]":                                         true,
		"metricOptInList: [kube_pod_init_container_status_last_terminated_reason]": false,
	} {
		c := renderChart(t, "personality: kube-state-metrics\ncollectors: [pods]\n"+values)
		rights := granted(t, c.objects)
		for _, right := range []string{"list replicasets.apps", "watch replicasets.apps", "list jobs.batch", "watch jobs.batch"} {
			if slices.Contains(rights, `namespace "": `+right) != want {
				t.Errorf("%s: %s should be granted: %v: %v", values, right, want, rights)
			}
		}
	}
}

// TestHelmMirroredImages checks that an image of the original is not taken for kstatd's because it comes from a mirror.
func TestHelmMirroredImages(t *testing.T) {
	harness.NotInSelfCheck(t)
	for values, want := range map[string]string{
		"personality: kube-state-metrics\nimage: {registry: harbor.corp, repository: k8s/kube-state-metrics, tag: v2.20.0}": "kstatd:",
		"personality: statsd_exporter\nimage: {repository: mirror.corp/prom-statsd-exporter, tag: v0.28.0}":                 "kstatd:",
		"personality: kube-state-metrics\nimage: {registry: harbor.corp, repository: tools/kstatd, tag: v1.2.0}":            "harbor.corp/tools/kstatd:v1.2.0",
	} {
		if image := renderChart(t, values).container.Image; !strings.HasPrefix(image, want) {
			t.Errorf("%s: the image is %s", values, image)
		}
	}
}

// TestHelmTelemetryHost checks that an IPv6 address is an argument that the program takes.
func TestHelmTelemetryHost(t *testing.T) {
	harness.NotInSelfCheck(t)
	for host, want := range map[string]string{`"::"`: "[::]", `"[::1]"`: "[::1]", "127.0.0.1": "127.0.0.1", `""`: ""} {
		args := renderChart(t, "selfMonitor: {telemetryHost: "+host+"}").container.Args
		if argument := "--telemetry-listen=" + want + ":8081"; !slices.Contains(args, argument) {
			t.Errorf("%s: no %s in %v", host, argument, args)
		}
	}
}

// TestHelmPullSecretsOfTheTest checks that the pod of `helm test` can pull what the release pulls.
func TestHelmPullSecretsOfTheTest(t *testing.T) {
	harness.NotInSelfCheck(t)
	c := renderChart(t, "personality: statsd_exporter\nimagePullSecrets: [{name: of-registry}]\nimage: {registry: private.example, pullPolicy: Always}")
	pod := as[corev1.Pod](t, c.ofKind("Pod")[0])
	secrets := pod.Spec.ImagePullSecrets
	if len(secrets) != 1 || secrets[0].Name != "of-registry" || pod.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("%+v", pod.Spec)
	}
}

// TestHelmHonorLabelsOfPorts checks that a port's own setting is not replaced by the default.
func TestHelmHonorLabelsOfPorts(t *testing.T) {
	harness.NotInSelfCheck(t)
	c := renderChart(t, `
personality: kube-state-metrics
selfMonitor: {enabled: true}
prometheus: {podMonitor: {enabled: true}, monitor: {http: {honorLabels: false}}}
`)
	monitor := as[monitoringv1.PodMonitor](t, c.ofKind("PodMonitor")[0])
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		if want := *endpoint.Port != "http"; endpoint.HonorLabels != want {
			t.Errorf("%s: honorLabels is %v", *endpoint.Port, endpoint.HonorLabels)
		}
	}
}
