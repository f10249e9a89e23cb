package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// shardedSet makes a StatefulSet and its pods, which nobody runs here.
func shardedSet(t *testing.T, cluster *harness.Cluster, replicas, pods int) {
	t.Helper()
	set := cluster.Create("statefulsets", harness.Object(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: ksm, namespace: monitoring}
spec:
  replicas: %d
  serviceName: ksm
  selector: {matchLabels: {app: ksm}}
  template:
    metadata: {labels: {app: ksm}}
    spec: {containers: [{name: c, image: i}]}
`, replicas)))
	for i := range pods {
		cluster.Create("pods", harness.Object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: ksm-%d
  namespace: monitoring
  labels: {app: ksm}
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: ksm, uid: %q, controller: true}]
spec: {containers: [{name: c, image: i}]}
`, i, set.GetUID())))
	}
}

// podsShown are the pods of a namespace that an exporter shows.
func podsShown(base, namespace string) ([]string, error) {
	exposition, err := harness.Scrape(base+"/metrics", harness.Text)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, series := range exposition.Samples {
		if rest, found := strings.CutPrefix(series, fmt.Sprintf("kube_pod_info{namespace=%q,pod=\"", namespace)); found {
			name, _, _ := strings.Cut(rest, `"`)
			names = append(names, name)
		}
	}
	return names, nil
}

// TestAutosharding scales a StatefulSet while its shards are scraped: at every
// scrape every pod is somebody's, and in the end nobody's twice.
func TestAutosharding(t *testing.T) {
	const namespace, count, shards = "sharded", 200, 3
	cluster := harness.StartCluster(t)
	shardedSet(t, cluster, 1, shards)
	var all []string
	for i := range count {
		name := fmt.Sprintf("pod-%03d", i)
		all = append(all, name)
		cluster.Create("pods", harness.Object(t, fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {containers: [{name: c, image: i}]}}", name, namespace)))
	}
	// No more rights than the deployment gives.
	token := cluster.ServiceAccountToken("sharding", `[{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}, {apiGroups: [apps], resources: [statefulsets], verbs: [get, list, watch]}]`)
	kubeconfig := cluster.KubeconfigWith(cluster.URL(), token)
	var exporters []*harness.KubeExporter
	for i := range shards {
		exporters = append(exporters, harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t),
			"--kubeconfig="+kubeconfig, "--resources=pods", fmt.Sprintf("--pod=ksm-%d", i), "--pod-namespace=monitoring"))
	}
	// scrape is who shows what, and whether everything is shown.
	scrape := func() (shown [shards][]string, err error) {
		together := map[string]int{}
		for i, exporter := range exporters {
			if shown[i], err = podsShown(exporter.Base, namespace); err != nil {
				return
			}
			for _, name := range shown[i] {
				together[name]++
			}
		}
		if len(together) != count {
			err = fmt.Errorf("%d of %d pods are shown: %d, %d and %d", len(together), count, len(shown[0]), len(shown[1]), len(shown[2]))
		}
		return
	}
	settle := func(total int, strict bool) {
		t.Helper()
		harness.Eventually(t, fmt.Sprintf("%d shards", total), func() error {
			shown, err := scrape()
			if err != nil && strict {
				t.Fatal(err)
			}
			if err != nil {
				return err
			}
			for i := range shown {
				slices.Sort(shown[i])
				if want := cluster.ShardOfPods(namespace, i, total); !slices.Equal(shown[i], want) {
					return fmt.Errorf("shard %d shows %d pods, not %d", i, len(shown[i]), len(want))
				}
			}
			return nil
		})
	}
	settle(1, false)
	for _, total := range []int{3, 2} {
		set := harness.Object(t, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: ksm, namespace: monitoring}}")
		cluster.Patch("statefulsets", set, map[string]any{"spec": map[string]any{"replicas": total}})
		settle(total, true)
		for i, exporter := range exporters {
			self, err := harness.Scrape(exporter.Telemetry+"/metrics", harness.Text)
			if err != nil {
				t.Fatal(err)
			}
			for series, want := range map[string]string{
				"kube_state_metrics_total_shards":                                        fmt.Sprint(total),
				fmt.Sprintf("kube_state_metrics_shard_ordinal{shard_ordinal=\"%d\"}", i): fmt.Sprint(i),
			} {
				if got, _ := self.Value(series); got != want {
					t.Errorf("shard %d of %d: %s is %q, not %q", i, total, series, got, want)
				}
			}
		}
	}
}

// TestAutoshardingThatCannotBe checks that a pod without StatefulSet ends the
// start, and that one whose name has no number shows nothing, as in the original.
func TestAutoshardingThatCannotBe(t *testing.T) {
	cluster := harness.StartCluster(t)
	shardedSet(t, cluster, 2, 0)
	cluster.Create("pods", harness.Object(t, "{apiVersion: v1, kind: Pod, metadata: {name: alone, namespace: monitoring}, spec: {containers: [{name: c, image: i}]}}"))
	set := cluster.Create("statefulsets", harness.Object(t, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: odd, namespace: monitoring}, spec: {serviceName: odd, selector: {matchLabels: {app: odd}}, template: {metadata: {labels: {app: odd}}, spec: {containers: [{name: c, image: i}]}}}}"))
	cluster.Create("pods", harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: other-1, namespace: monitoring, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: odd, uid: %q, controller: true}]}, spec: {containers: [{name: c, image: i}]}}", set.GetUID())))
	for _, pod := range []string{"alone", "absent"} {
		code, _, stderr := harness.Run(t, harness.OurKubeStateMetrics(t), "", "--kubeconfig="+cluster.Kubeconfig, "--resources=pods",
			"--port=0", "--telemetry-port=0", "--pod="+pod, "--pod-namespace=monitoring")
		if code != 1 || !strings.Contains(stderr, pod) {
			t.Errorf("%s: exit code %d: %s", pod, code, stderr)
		}
	}
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig, "--resources=pods", "--pod=other-1", "--pod-namespace=monitoring")
	exporter.WaitOutput("other-1")
	harness.Eventually(t, "an empty body", func() error {
		resp, err := harness.Get(exporter.Base + "/metrics")
		if err == nil && resp.Body != "" {
			err = fmt.Errorf("%q", resp.Body)
		}
		return err
	})
}
