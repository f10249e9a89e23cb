package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// chart holds parsed manifests, such as those of a community chart.
type chart struct {
	objects   []*unstructured.Unstructured
	config    map[string]corev1.ConfigMap
	workload  string
	pod       corev1.PodSpec
	container corev1.Container
}

func loadChart(t *testing.T, name string) chart {
	t.Helper()
	text, err := os.ReadFile(harness.RepoFile("tests", "conformance", "charts", name))
	if err != nil {
		t.Fatal(err)
	}
	return parseManifests(t, name, string(text))
}

func parseManifests(t *testing.T, name, text string) chart {
	t.Helper()
	c := chart{config: map[string]corev1.ConfigMap{}}
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if object == nil {
			continue
		}
		u := &unstructured.Unstructured{Object: object}
		c.objects = append(c.objects, u)
		switch u.GetKind() {
		case "ConfigMap":
			var m corev1.ConfigMap
			if err := yaml.Unmarshal([]byte(document), &m); err != nil {
				t.Fatal(err)
			}
			c.config[m.Name] = m
		case "Deployment", "StatefulSet", "DaemonSet", "Job":
			c = c.of(t, u)
		}
	}
	if c.container.Name == "" {
		t.Fatalf("%s has no container", name)
	}
	return c
}

// of is the chart with the container of one of its workloads.
func (c chart) of(t *testing.T, workload *unstructured.Unstructured) chart {
	t.Helper()
	// All kinds have the template at the same path.
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(workload.Object, &d); err != nil {
		t.Fatal(err)
	}
	c.workload, c.pod = d.Name, d.Spec.Template.Spec
	c.container = c.pod.Containers[0]
	// The rest of the command precedes the arguments.
	if len(c.container.Command) > 1 {
		c.container.Args = append(slices.Clone(c.container.Command[1:]), c.container.Args...)
		c.container.Command = c.container.Command[:1]
	}
	serves := workload.GetKind() != "Job"
	if len(c.container.Args) == 0 || serves && (c.container.ReadinessProbe == nil || c.container.LivenessProbe == nil) {
		t.Fatalf("%s has no container with arguments and probes", d.Name)
	}
	return c
}

// workloads returns the chart once for each of its workloads.
func (c chart) workloads(t *testing.T) (all []chart) {
	t.Helper()
	for _, o := range c.objects {
		switch o.GetKind() {
		case "Deployment", "StatefulSet", "DaemonSet":
			all = append(all, c.of(t, o))
		}
	}
	return all
}

// mount creates the files of the pod's volumes in the image.
func (c chart) mount(t *testing.T, image *harness.Image) {
	t.Helper()
	for _, m := range c.container.VolumeMounts {
		for _, volume := range c.pod.Volumes {
			if volume.Name != m.Name || volume.ConfigMap == nil {
				continue
			}
			config, found := c.config[volume.ConfigMap.Name]
			if !found {
				t.Fatalf("volume %s: there is no ConfigMap %s", volume.Name, volume.ConfigMap.Name)
			}
			items := volume.ConfigMap.Items
			if len(items) == 0 {
				for key := range config.Data {
					items = append(items, corev1.KeyToPath{Key: key, Path: key})
				}
			}
			for _, item := range items {
				image.Mount(m.MountPath+"/"+item.Path, config.Data[item.Key])
			}
		}
	}
}

// nodeName is the node of all pods.
const nodeName = "node-1"

// start runs the container as a kubelet does: env from the pod's fields, expanded arguments.
func (c chart) start(t *testing.T, image *harness.Image, network *harness.Network, entrypoint, podName, namespace string, env ...string) *harness.Process {
	t.Helper()
	args, own := c.expanded(podName, namespace)
	return image.Run(network, entrypoint, append(env, own...), args...)
}

// expanded returns arguments and environment of the container in a pod.
func (c chart) expanded(podName, namespace string) (args, env []string) {
	args = slices.Clone(c.container.Args)
	for _, v := range c.container.Env {
		value := v.Value
		if v.ValueFrom != nil {
			value = map[string]string{"metadata.name": podName, "metadata.namespace": namespace, "spec.nodeName": nodeName, "status.hostIP": "127.0.0.1"}[v.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, v.Name+"="+value)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$("+v.Name+")", value)
		}
	}
	return args, env
}

// probe is the URL of a kubelet probe.
func (c chart) probe(t *testing.T, p *corev1.Probe) string {
	t.Helper()
	for _, port := range c.container.Ports {
		if port.Name == p.HTTPGet.Port.StrVal {
			return fmt.Sprintf("http://127.0.0.1:%d%s", port.ContainerPort, p.HTTPGet.Path)
		}
	}
	t.Fatalf("no port is named %s", p.HTTPGet.Port.StrVal)
	return ""
}

// waitProbes waits until both probes pass, by the kubelet's rule: a status from 200 to 399.
func (c chart) waitProbes(t *testing.T, network *harness.Network, process *harness.Process) {
	t.Helper()
	for _, p := range []*corev1.Probe{c.container.ReadinessProbe, c.container.LivenessProbe} {
		url := c.probe(t, p)
		harness.Eventually(t, "the probe of "+url+" passes", func() error {
			if !process.Running() {
				t.Fatalf("it has ended:\n%s", process.Output())
			}
			resp, err := network.Get(url)
			if err == nil && (resp.Status < 200 || resp.Status > 399) {
				err = fmt.Errorf("status %d", resp.Status)
			}
			return err
		})
	}
}

// waitMetrics waits until the exposition satisfies the check.
func waitMetrics(t *testing.T, network *harness.Network, url string, check func(harness.Exposition) error) {
	t.Helper()
	harness.Eventually(t, url+" has the series", func() error {
		resp, err := network.Get(url)
		if err != nil {
			return err
		}
		if resp.Status != 200 {
			return fmt.Errorf("status %d", resp.Status)
		}
		e, err := harness.Parse(resp.Body)
		if err != nil {
			return err
		}
		return check(e)
	})
}

// TestChartStatsdExporter starts the community chart's statsd_exporter with only
// the image changed.
func TestChartStatsdExporter(t *testing.T) {
	harness.NotInSelfCheck(t)
	c := loadChart(t, "statsd-exporter.yaml")
	network, image := harness.NewNetwork(t), harness.NewImage(t)
	c.mount(t, image)
	process := c.start(t, image, network, "/bin/statsd_exporter", "se-0", "monitoring")
	c.waitProbes(t, network, process)
	for _, transport := range []string{"udp", "tcp"} {
		conn, err := network.Dial(context.Background(), transport, "127.0.0.1:9125")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "a.over_%s:3|c\n", transport); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	waitMetrics(t, network, "http://127.0.0.1:9102/metrics", func(e harness.Exposition) error {
		user := e.Without("statsd_exporter_", "statsd_metric_mapper_", "kstatd_", "go_", "process_", "promhttp_")
		return harness.Difference(user.Samples, []string{`a{x="over_tcp"} 3`, `a{x="over_udp"} 3`})
	})
	waitMetrics(t, network, "http://127.0.0.1:9102/metrics", func(e harness.Exposition) error {
		if got, _ := e.Value("statsd_exporter_loaded_mappings"); got != "1" {
			return fmt.Errorf("%q mappings are loaded", got)
		}
		return nil
	})
}

// inCluster adds a service account to the image, as a kubelet does.
func inCluster(t *testing.T, image *harness.Image, cluster *harness.Cluster, namespace, serviceAccount string) []string {
	t.Helper()
	ca, err := os.ReadFile(cluster.Dir + "/ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	const at = "/var/run/secrets/kubernetes.io/serviceaccount/"
	image.Mount(at+"ca.crt", string(ca))
	image.Mount(at+"namespace", namespace)
	image.Mount(at+"token", cluster.Token(namespace, serviceAccount))
	return []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", cluster.Port)}
}

var resourceOfKind = map[string]string{
	"ServiceAccount": "serviceaccounts", "ConfigMap": "configmaps", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
	"Namespace": "namespaces", "Role": "roles", "RoleBinding": "rolebindings", "Service": "services", "Deployment": "deployments", "StatefulSet": "statefulsets",
	"DaemonSet": "daemonsets", "Job": "jobs", "PodDisruptionBudget": "poddisruptionbudgets", "NetworkPolicy": "networkpolicies",
	"Secret": "secrets", "Pod": "pods", "Ingress": "ingresses", "HorizontalPodAutoscaler": "horizontalpodautoscalers",
}

// apply creates all objects of the chart, including its access rules.
func (c chart) apply(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	for _, o := range c.objects {
		resource, found := resourceOfKind[o.GetKind()]
		if !found {
			t.Fatalf("the chart has a %s", o.GetKind())
		}
		cluster.Create(resource, o)
	}
}

// TestChartsKubeStateMetrics starts the community chart's kube-state-metrics with only the image changed, on a real
// API server, with the permissions of the chart's own rules.
func TestChartsKubeStateMetrics(t *testing.T) {
	harness.NotInSelfCheck(t)
	has := func(lines ...string) func(harness.Exposition) error {
		return func(e harness.Exposition) error {
			all := strings.Join(e.Samples, "\n")
			for _, line := range lines {
				if !strings.Contains(all, line) {
					return fmt.Errorf("%s is not there", line)
				}
			}
			return nil
		}
	}
	for _, test := range []struct {
		file  string
		check func(harness.Exposition) error
	}{
		{"kube-state-metrics-default.yaml", has(`kube_deployment_spec_replicas{namespace="monitoring",deployment="ksm-kube-state-metrics"} 1`, `kube_pod_info{namespace="a",pod="p"`, `kube_namespace_created{namespace="a"}`, `kube_lease_`)},
		{"kube-state-metrics-full.yaml", func(e harness.Exposition) error {
			for _, line := range e.Samples {
				// The arguments exclude other families and namespaces.
				if !strings.HasPrefix(line, `kube_pod_`) || !strings.Contains(line, `namespace="a"`) {
					return fmt.Errorf("%s should not be there", line)
				}
			}
			return has(`kube_pod_labels{namespace="a",pod="p"`, `label_app="web"`, `annotation_a_b_c="note"`)(e)
		}},
	} {
		t.Run(test.file, func(t *testing.T) {
			c := loadChart(t, test.file)
			network, image := harness.NewNetwork(t), harness.NewImage(t)
			cluster := harness.StartClusterIn(t, network)
			for _, namespace := range []string{"a", "elsewhere"} {
				cluster.Create("pods", harness.Object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: %s, labels: {app: web}, annotations: {a.b/c: note}}
spec: {containers: [{name: c, image: "c:1"}]}
`, namespace)))
			}
			c.apply(t, cluster)
			c.mount(t, image)
			env := inCluster(t, image, cluster, "monitoring", c.pod.ServiceAccountName)
			process := c.start(t, image, network, "/kube-state-metrics", "ksm-0", "monitoring", env...)
			c.waitProbes(t, network, process)
			waitMetrics(t, network, "http://127.0.0.1:8080/metrics", test.check)
			waitMetrics(t, network, "http://127.0.0.1:8081/metrics", has("kube_state_metrics_total_shards 1"))
		})
	}
}

// TestChartAutosharding starts all replicas of the chart's StatefulSet: together they have every object exactly once,
// and the shard is the pod's ordinal.
func TestChartAutosharding(t *testing.T) {
	harness.NotInSelfCheck(t)
	c := loadChart(t, "kube-state-metrics-autoshard.yaml")
	home := harness.NewNetwork(t)
	cluster := harness.StartClusterIn(t, home)
	c.apply(t, cluster)
	const replicas, pods = 3, 60
	for i := range pods {
		cluster.Create("pods", harness.Object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: p%d, namespace: a}
spec: {containers: [{name: c, image: "c:1"}]}
`, i)))
	}
	// All replicas use the same port, so they run one after the other.
	seen := map[string]int{}
	for i := range replicas {
		name := fmt.Sprintf("ksm-kube-state-metrics-%d", i)
		cluster.Create("pods", harness.Object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: monitoring
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: ksm-kube-state-metrics, uid: 11111111-2222-3333-4444-555555555555, controller: true}]
spec: {containers: [{name: c, image: "c:1"}]}
`, name)))
		image := harness.NewImage(t)
		env := inCluster(t, image, cluster, "monitoring", c.pod.ServiceAccountName)
		process := c.start(t, image, home, "/kube-state-metrics", name, "monitoring", env...)
		c.waitProbes(t, home, process)
		waitMetrics(t, home, "http://127.0.0.1:8081/metrics", func(e harness.Exposition) error {
			for series, want := range map[string]string{
				"kube_state_metrics_total_shards":                                      fmt.Sprint(replicas),
				fmt.Sprintf(`kube_state_metrics_shard_ordinal{shard_ordinal="%d"}`, i): fmt.Sprint(i),
			} {
				if got, _ := e.Value(series); got != want {
					return fmt.Errorf("%s is %q, it should be %s", series, got, want)
				}
			}
			return nil
		})
		want := cluster.ShardOfPods("a", i, replicas)
		waitMetrics(t, home, "http://127.0.0.1:8080/metrics", func(e harness.Exposition) error {
			var mine []string
			for _, line := range e.Samples {
				if rest, found := strings.CutPrefix(line, `kube_pod_created{namespace="a",pod="`); found {
					name, _, _ := strings.Cut(rest, `"`)
					mine = append(mine, name)
				}
			}
			if err := harness.Difference(mine, want); err != nil {
				return err
			}
			for _, name := range mine {
				seen[name]++
			}
			return nil
		})
		process.Stop()
	}
	if len(seen) != pods {
		t.Errorf("the replicas have %d of %d pods", len(seen), pods)
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s is in %d shards", name, times)
		}
	}
}
