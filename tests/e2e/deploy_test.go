package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestDeploy applies the manifests of deploy/ to a real API server and starts the
// container as they say: its own access suffices for all that it lists, and gives
// nothing more.
func TestDeploy(t *testing.T) {
	harness.NotInSelfCheck(t)
	read := func(name string) string {
		text, err := os.ReadFile(harness.RepoFile("deploy", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal([]byte(read("kustomization.yaml")), &kustomization); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range kustomization.Resources {
		all = append(all, read(name))
	}
	c := parseManifests(t, "deploy", strings.Join(all, "---\n"))

	network, image := harness.NewNetwork(t), harness.NewImage(t)
	cluster := harness.StartClusterIn(t, network)
	c.apply(t, cluster)
	cluster.Create("pods", harness.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: e2e}, spec: {containers: [{name: c, image: "c:1"}]}}`))
	env := inCluster(t, image, cluster, "kstatd", c.pod.ServiceAccountName)
	process := c.start(t, image, network, "/kstatd", "kstatd-0", "kstatd", env...)
	c.waitProbes(t, network, process)

	conn, err := network.Dial(context.Background(), "udp", "127.0.0.1:9125")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hits:3|c|#code:200\n")); err != nil {
		t.Fatal(err)
	}
	// Both pipelines in one exposition, and each by itself.
	for path, want := range map[string][2]bool{"/metrics": {true, true}, "/metrics/kubernetes": {true, false}, "/metrics/statsd": {false, true}} {
		waitMetrics(t, network, "http://127.0.0.1:8080"+path, func(e harness.Exposition) error {
			pods := slices.ContainsFunc(e.Samples, func(l string) bool { return strings.HasPrefix(l, `kube_pod_created{namespace="e2e",pod="p"`) })
			hits := slices.Contains(e.Samples, `hits{code="200"} 3`)
			if got := [2]bool{pods, hits}; got != want {
				return fmt.Errorf("Kubernetes, StatsD: %v, it should be %v", got, want)
			}
			return nil
		})
	}

	granted := 0
	for _, o := range c.objects {
		var role rbacv1.ClusterRole
		if o.GetKind() != "ClusterRole" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			granted += len(rule.Resources)
			if !slices.Equal(rule.Verbs, []string{"list", "watch"}) {
				t.Errorf("%v: %v", rule.Resources, rule.Verbs)
			}
		}
	}
	waitMetrics(t, network, "http://127.0.0.1:8081/metrics", func(e harness.Exposition) error {
		watched := 0
		for _, line := range e.Samples {
			if !strings.HasPrefix(line, "kube_state_metrics_watch_total{") {
				continue
			}
			if strings.Contains(line, `result="error"`) {
				t.Fatalf("a watch failed: %s\n%s", line, process.Output())
			}
			watched++
		}
		if watched != granted {
			return fmt.Errorf("%d kinds are watched, access is granted to %d", watched, granted)
		}
		return nil
	})
}
