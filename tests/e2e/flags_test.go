package e2e

import (
	"fmt"
	"testing"

	"kstatd/e2e/harness"
)

// TestFlagsWhileObjectsChange compares kstatd with the original for flags that select a part of the objects or
// series, while objects are created, change, leave the selection and are deleted.
func TestFlagsWhileObjectsChange(t *testing.T) {
	cluster := harness.StartCluster(t)
	var pairs []*harness.Pair
	for _, args := range [][]string{
		{"--namespaces=flags-0,flags-1"},
		{"--namespaces-denylist=flags-0,flags-2"},
		{"--namespaces=flags-0,flags-1", "--namespaces-denylist=flags-1"},
		{"--resources=pods", "--node=node-1"},
		{"--metric-allowlist=^kube_pod_(labels|owner|created)$,kube_configmap,^kube_secret_(info|type)$,kube_node_.*"},
		{"--metric-denylist=^kube_secret_type$,^kube_pod_(?!info|labels),kube_node_status"},
		{"--metric-labels-allowlist=pods=[app],secrets=[*],configmaps=[*]", "--metric-annotations-allowlist=secrets=[note*],pods=[*]", "--metric-opt-in-list=kube_pod_nodeselectors"},
		{"--shard=0", "--total-shards=3"},
		{"--shard=1", "--total-shards=3"},
		{"--shard=2", "--total-shards=3"},
	} {
		resources := "--resources=pods,configmaps,secrets,nodes,namespaces"
		pairs = append(pairs, harness.StartPair(t, append([]string{"--kubeconfig=" + cluster.Kubeconfig, resources}, args...)...))
	}
	object := func(kind, namespace, name, rest string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: %s, namespace: %s, labels: {app: %s, step: first}, annotations: {note-a: b, other: c}}%s}", kind, name, namespace, name, rest)
	}
	for node := range 3 {
		cluster.Create("nodes", harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: node-%d}}", node)))
	}
	// step applies an operation to every object of every namespace.
	step := func(what func(resource, kind, namespace, name, rest string, number int)) {
		for number := range 24 {
			namespace, name := fmt.Sprintf("flags-%d", number%4), fmt.Sprintf("thing-%d", number)
			what("pods", "Pod", namespace, name, ", spec: {nodeSelector: {disk: ssd}, containers: [{name: c, image: i}]}", number)
			what("configmaps", "ConfigMap", namespace, name, ", data: {key: value}", number)
			what("secrets", "Secret", namespace, name, fmt.Sprintf(", type: example.com/type-%d, data: {key: dmFsdWU=}", number%3), number)
		}
	}
	// Every pair exposes an effect of each step.
	changes := func(what string, change func(resource, kind, namespace, name, rest string, number int)) {
		t.Helper()
		var changed []func(harness.Exposition) error
		for _, pair := range pairs {
			changed = append(changed, pair.Changed(""))
		}
		step(change)
		for i, pair := range pairs {
			pair.ConvergeWhen("", changed[i])
		}
		t.Log(what)
	}
	changes("created", func(resource, kind, namespace, name, rest string, _ int) {
		cluster.Create(resource, harness.Object(t, object(kind, namespace, name, rest)))
	})
	changes("changed", func(resource, kind, namespace, name, _ string, number int) {
		o := harness.Object(t, object(kind, namespace, name, ""))
		switch {
		case number%5 == 0:
			cluster.Delete(resource, o)
		case number%5 == 1:
			cluster.Patch(resource, o, map[string]any{"metadata": map[string]any{"labels": map[string]any{"step": "second", "app": nil}, "annotations": map[string]any{"note-b": "d"}}})
		case resource == "pods":
			cluster.Bind(namespace, name, fmt.Sprintf("node-%d", number%3))
		}
	})
	changes("created again", func(resource, kind, namespace, name, rest string, number int) {
		o := harness.Object(t, object(kind, namespace, name, rest))
		if number%5 == 0 {
			cluster.Create(resource, o)
		} else if number%2 == 0 {
			cluster.Delete(resource, o)
		}
	})
}

// TestSecretDataIsNotRequested checks that the data of secrets and config maps is not sent to kstatd, although their
// types and labels are exposed as in the original.
func TestSecretDataIsNotRequested(t *testing.T) {
	cluster := harness.StartCluster(t)
	pair := harness.StartPair(t, "--kubeconfig="+cluster.Kubeconfig, "--resources=secrets,configmaps", "--metric-labels-allowlist=secrets=[*]")
	large := make([]byte, 300_000)
	for i := range large {
		large[i] = 'A'
	}
	for n := range 4 {
		for resource, kind := range map[string]string{"secrets": "Secret", "configmaps": "ConfigMap"} {
			o := harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: large-%d, namespace: large, labels: {n: n%d}}, data: {key: %s}}", kind, n, n, large))
			if n%2 == 0 && kind == "Secret" {
				o.Object["type"] = "example.com/odd \"type\""
			}
			cluster.Create(resource, o)
		}
	}
	pair.ConvergeAt(39, "")
	listed := harness.StartPair(t, "--kubeconfig="+cluster.Kubeconfig, "--resources=secrets,configmaps", "--metric-labels-allowlist=secrets=[*]")
	listed.ConvergeAt(39, "")
	for _, exporter := range []*harness.KubeExporter{pair.Ours, listed.Ours} {
		self, err := harness.Scrape(exporter.Telemetry+"/metrics", harness.Text)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"Secret", "ConfigMap"} {
			received, _ := self.Value(fmt.Sprintf("kstatd_kubernetes_received_bytes_total{resource=\"*v1.%s\"}", kind))
			var bytes float64
			if _, err := fmt.Sscan(received, &bytes); err != nil || bytes > 100_000 {
				t.Errorf("%s bytes of %s were received: %v", received, kind, err)
			}
		}
	}
}
