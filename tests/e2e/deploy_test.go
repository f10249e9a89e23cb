package e2e

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// loadVariant builds a folder of deploy/ as `kubectl apply -k` does.
func loadVariant(t *testing.T, name string) chart {
	t.Helper()
	return loadFolder(t, harness.RepoFile("deploy", name))
}

// loadFolder does so for any folder.
func loadFolder(t *testing.T, path string) chart {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parseManifests(t, path, string(text))
}

// besides are the folders of deploy/ in groups. Those of one group replace each other in place; different groups share nothing.
var besides = [][]string{
	{".", "standard", "standby", "autosharding", "daemonset", "daemonset-statsd"},
	{"node", "node-insecure"},
	{"node-walk"},
	{"node-processes"},
	{"shadow"},
}

// selecting is what an object of a namespace selects pods by.
type selecting struct {
	namespace, object string
	selector          k8slabels.Selector
}

// labelled is a pod of a workload.
type labelled struct {
	namespace, workload string
	labels              k8slabels.Set
	ports               []string
}

// selection returns all pods of the manifests, and all selectors of pods: those of Services, budgets, workloads and
// anti-affinity.
func (c chart) selection(t *testing.T) (pods []labelled, selectors []selecting) {
	t.Helper()
	for _, o := range c.objects {
		object := o.GetKind() + " " + o.GetName()
		add := func(selector *metav1.LabelSelector) {
			of, err := metav1.LabelSelectorAsSelector(selector)
			if err != nil {
				t.Fatalf("%s: %v", object, err)
			}
			selectors = append(selectors, selecting{o.GetNamespace(), object, of})
		}
		switch o.GetKind() {
		case "Service":
			add(&metav1.LabelSelector{MatchLabels: as[corev1.Service](t, o).Spec.Selector})
		case "PodDisruptionBudget":
			add(as[policyv1.PodDisruptionBudget](t, o).Spec.Selector)
		case "Deployment", "StatefulSet", "DaemonSet", "Job":
			// All kinds have the template and the selector at the same path.
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
				t.Fatalf("%s: %v", object, err)
			}
			if d.Spec.Selector != nil {
				add(d.Spec.Selector)
			}
			if affinity := d.Spec.Template.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
				for _, term := range affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
					add(term.PodAffinityTerm.LabelSelector)
				}
			}
			pod := labelled{namespace: o.GetNamespace(), workload: object, labels: d.Spec.Template.Labels}
			for _, port := range d.Spec.Template.Spec.Containers[0].Ports {
				pod.ports = append(pod.ports, port.Name)
			}
			pods = append(pods, pod)
		}
	}
	return pods, selectors
}

// TestDeployVariantsAreIndependent checks that deployments of different groups share no object, so that deleting one of
// them leaves the others alone, and that nothing of one selects pods of another.
func TestDeployVariantsAreIndependent(t *testing.T) {
	var known []string
	for _, group := range besides {
		known = append(known, group...)
	}
	folders, err := filepath.Glob(harness.RepoFile("deploy", "*", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range folders {
		name := filepath.Base(filepath.Dir(file))
		if component := strings.Contains(readFile(t, file), "kind: Component"); !component && name != "base" && !slices.Contains(known, name) {
			t.Errorf("deploy/%s is in no group", name)
		}
	}
	for i, group := range besides {
		for _, other := range slices.Concat(append(slices.Clone(besides[:i]), besides[i+1:]...)...) {
			there := loadVariant(t, other)
			shared := map[string]bool{}
			for _, o := range there.objects {
				shared[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = true
			}
			pods, _ := there.selection(t)
			for _, name := range group {
				here := loadVariant(t, name)
				for _, o := range here.objects {
					if id := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName(); shared[id] {
						t.Errorf("deploy/%s and deploy/%s have the same %s", name, other, id)
					}
				}
				_, selectors := here.selection(t)
				for _, s := range selectors {
					for _, pod := range pods {
						if s.namespace == pod.namespace && s.selector.Matches(pod.labels) {
							t.Errorf("deploy/%s: %s selects the pods of %s of deploy/%s", name, s.object, pod.workload, other)
						}
					}
				}
			}
		}
	}
}

// TestDeployPodMonitors checks that each port of each pod is scraped by one PodMonitor of deploy/prometheus.
func TestDeployPodMonitors(t *testing.T) {
	files := map[string]string{"node": "pod-monitor-node.yaml", "node-insecure": "pod-monitor-node.yaml", "node-walk": "pod-monitor-node.yaml", "node-processes": "pod-monitor-node.yaml"}
	for _, name := range slices.Concat(besides...) {
		file := cmp.Or(files[name], "pod-monitor.yaml")
		var monitor monitoringv1.PodMonitor
		if err := yaml.UnmarshalStrict([]byte(readFile(t, harness.RepoFile("deploy", "prometheus", file))), &monitor); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		pods, _ := loadVariant(t, name).selection(t)
		for _, pod := range pods {
			// The Job serves nothing.
			if len(pod.ports) == 0 {
				continue
			}
			// A PodMonitor without a namespaceSelector selects in its own namespace, which the command line may name.
			if in := cmp.Or(monitor.Namespace, pod.namespace); in != pod.namespace || !selector.Matches(pod.labels) {
				t.Errorf("deploy/%s: %s in %s does not select %s in %s", name, file, in, pod.workload, pod.namespace)
			}
			for _, e := range monitor.Spec.PodMetricsEndpoints {
				if !slices.Contains(pod.ports, *e.Port) || !e.HonorLabels {
					t.Errorf("deploy/%s: %s scrapes port %s of %v, honorLabels %v", name, file, *e.Port, pod.ports, e.HonorLabels)
				}
			}
			if len(monitor.Spec.PodMetricsEndpoints) != 2 {
				t.Errorf("%s scrapes %d ports", file, len(monitor.Spec.PodMetricsEndpoints))
			}
		}
	}
}

// TestDeployStatsdOnNodes checks that StatsD lines reach the process on the node of their sender, which alone knows its pod.
func TestDeployStatsdOnNodes(t *testing.T) {
	c := loadVariant(t, "daemonset-statsd")
	pods, selectors := c.selection(t)
	services := 0
	for _, o := range c.ofKind("Service") {
		service := as[corev1.Service](t, o)
		for _, port := range service.Spec.Ports {
			if port.Protocol != corev1.ProtocolUDP {
				continue
			}
			services++
			if policy := service.Spec.InternalTrafficPolicy; policy == nil || *policy != corev1.ServiceInternalTrafficPolicyLocal {
				t.Errorf("%s sends lines to other nodes", service.Name)
			}
			for _, pod := range pods {
				i := slices.IndexFunc(selectors, func(s selecting) bool { return s.object == "Service "+service.Name })
				selected, takesLines := selectors[i].selector.Matches(pod.labels), slices.Contains(pod.ports, port.TargetPort.StrVal)
				if onNodes := strings.HasPrefix(pod.workload, "DaemonSet "); selected != onNodes || takesLines != onNodes {
					t.Errorf("%s: selected by %s: %v, takes lines: %v", pod.workload, service.Name, selected, takesLines)
				}
			}
		}
	}
	if services != 1 {
		t.Errorf("%d Services take lines", services)
	}
}

// right is one permission.
type right struct{ group, resource, verb, namespace string }

// rights are the permissions in manifests of roles; the namespace of a ClusterRole is empty.
func rights(t *testing.T, objects []map[string]any) (all []right) {
	t.Helper()
	for _, object := range objects {
		var role rbacv1.Role
		if kind := object["kind"]; kind != "ClusterRole" && kind != "Role" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, right{group, resource, verb, role.Namespace})
					}
				}
			}
		}
	}
	return all
}

// needed is the permissions that `kstatd rbac` lists for the container's arguments.
func (c chart) needed(t *testing.T, podName, namespace string) []right {
	t.Helper()
	args, _ := c.expanded(podName, namespace)
	// StatsD flags need no permissions, and the command does not have them.
	args = slices.DeleteFunc(args[1:], func(arg string) bool { return strings.HasPrefix(arg, "--statsd.") })
	code, stdout, stderr := harness.Run(t, harness.Kstatd(t), "", append([]string{"rbac"}, args...)...)
	if code != 0 {
		t.Fatalf("rbac %v: exit code %d: %s", args, code, stderr)
	}
	var roles []map[string]any
	for document := range strings.SplitSeq(stdout, "---\n") {
		var role map[string]any
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		roles = append(roles, role)
	}
	return rights(t, roles)
}

// TestDeployVariants applies each folder of deploy/ to a real API server, as a dry run and for real, and starts each
// container: its permissions are exactly those of `kstatd rbac` for its arguments, its probes pass, and it exposes
// its metrics.
func TestDeployVariants(t *testing.T) {
	harness.NotInSelfCheck(t)
	pods := func(names ...string) func(string) error {
		return func(all string) error {
			for _, name := range []string{"here", "there", "nowhere"} {
				shown := strings.Contains(all, fmt.Sprintf("kube_pod_created{namespace=%q,pod=%q", "e2e", name))
				if shown != slices.Contains(names, name) {
					return fmt.Errorf("pod %s is shown: %v", name, shown)
				}
			}
			return nil
		}
	}
	everything := func(all string) error {
		if !strings.Contains(all, `kube_namespace_created{namespace="e2e"}`) {
			return fmt.Errorf("no namespace is shown")
		}
		return pods("here", "there", "nowhere")(all)
	}
	byNode := map[string]func(string) error{
		"kstatd-pods": pods("here"), "kstatd-unscheduled": pods("nowhere"),
		"kstatd-others": func(all string) error {
			if !strings.Contains(all, `kube_namespace_created{namespace="e2e"}`) {
				return fmt.Errorf("no namespace is shown")
			}
			return pods()(all)
		},
	}
	for _, variant := range []struct {
		name     string
		replicas int32
		shows    map[string]func(string) error
	}{
		{".", 1, map[string]func(string) error{"kstatd": everything}},
		{"standard", 1, map[string]func(string) error{"kstatd": everything}},
		// A single replica has everything.
		{"autosharding", 1, map[string]func(string) error{"kstatd": everything}},
		// The other replicas cannot be looked up, so this one exposes.
		{"standby", 1, map[string]func(string) error{"kstatd": everything}},
		{"daemonset", 1, byNode},
		{"daemonset-statsd", 1, byNode},
	} {
		t.Run(variant.name, func(t *testing.T) {
			c := loadVariant(t, variant.name)
			network := harness.NewNetwork(t)
			cluster := harness.StartClusterIn(t, network)
			cluster.Create("nodes", harness.Object(t, "{apiVersion: v1, kind: Node, metadata: {name: "+nodeName+"}}"))
			for name, node := range map[string]string{"here": nodeName, "there": "node-2", "nowhere": ""} {
				cluster.Create("pods", harness.Object(t, fmt.Sprintf(
					"{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: e2e}, spec: {nodeName: %q, containers: [{name: c, image: i}]}}", name, node)))
			}
			// The namespace is the first object; the others are validated before it exists.
			for i, o := range c.objects {
				if i == 0 && o.GetKind() != "Namespace" {
					t.Fatalf("the first object is a %s", o.GetKind())
				}
				if o.GetKind() == "StatefulSet" {
					o.Object["spec"].(map[string]any)["replicas"] = int64(variant.replicas)
				}
				dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
				if _, err := cluster.Resource(resourceOfKind[o.GetKind()], o).Create(context.Background(), o, dry); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				cluster.Create(resourceOfKind[o.GetKind()], o)
			}

			var granted, needed []right
			var manifests []map[string]any
			for _, o := range c.objects {
				manifests = append(manifests, o.Object)
			}
			granted = rights(t, manifests)
			workloads := c.workloads(t)
			if len(workloads) != len(variant.shows) {
				t.Fatalf("%d workloads, %d are known", len(workloads), len(variant.shows))
			}
			for _, w := range workloads {
				podName := w.workload + "-0"
				// A workload is accepted regardless of pod security; a pod is not.
				pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "try", Namespace: "kstatd"}, Spec: w.pod}
				if _, err := cluster.Typed.CoreV1().Pods("kstatd").Create(context.Background(), &pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
					t.Errorf("a pod of %s: %v", w.workload, err)
				}
				user := "system:serviceaccount:kstatd:" + w.pod.ServiceAccountName
				for _, r := range w.needed(t, podName, "kstatd") {
					needed = append(needed, r)
					review, err := cluster.Typed.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), &authorizationv1.SubjectAccessReview{
						Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: r.namespace, Group: r.group, Resource: r.resource, Verb: r.verb,
						}},
					}, metav1.CreateOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if !review.Status.Allowed {
						t.Errorf("%s may not %s %s.%s in %q", w.workload, r.verb, r.resource, r.group, r.namespace)
					}
				}
			}
			for _, r := range granted {
				if !slices.Contains(needed, r) {
					t.Errorf("nobody needs %v", r)
				}
			}

			// They use the same ports, so they run one after the other.
			for _, w := range workloads {
				podName := w.workload + "-0"
				cluster.Create("pods", harness.Object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: kstatd
  labels: {app.kubernetes.io/name: kstatd}
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: %s, uid: 11111111-2222-3333-4444-555555555555, controller: true}]
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]
`, podName, w.workload)))
				image := harness.NewImage(t)
				env := inCluster(t, image, cluster, "kstatd", w.pod.ServiceAccountName)
				process := w.start(t, image, network, "/kstatd", podName, "kstatd", env...)
				w.waitProbes(t, network, process)
				waitMetrics(t, network, "http://127.0.0.1:8080/metrics", func(e harness.Exposition) error {
					return variant.shows[w.workload](strings.Join(e.Samples, "\n"))
				})
				waitMetrics(t, network, "http://127.0.0.1:8081/metrics", func(e harness.Exposition) error {
					if line := notAllowed(e); line != "" {
						t.Fatalf("something may not be read: %s\n%s", line, process.Output())
					}
					return nil
				})
				if variant.name == "standard" {
					bothSides(t, network)
				}
				process.Stop()
			}
		})
	}
}

// notAllowed returns the series of an error caused by missing permissions. Other errors, such as a late response of a
// busy machine, are irrelevant here.
func notAllowed(e harness.Exposition) string {
	for _, line := range e.Samples {
		if strings.HasPrefix(line, "kstatd_kubernetes_errors_total{") && (strings.Contains(line, `reason="forbidden"`) || strings.Contains(line, `reason="unauthorized"`)) {
			return line
		}
	}
	return ""
}

// bothSides: StatsD lines and the cluster's state form one exposition, and each is available separately.
func bothSides(t *testing.T, network *harness.Network) {
	t.Helper()
	conn, err := network.Dial(context.Background(), "udp", "127.0.0.1:9125")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hits:3|c|#code:200\n")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]bool{"/metrics": {true, true}, "/metrics/kubernetes": {true, false}, "/metrics/statsd": {false, true}} {
		waitMetrics(t, network, "http://127.0.0.1:8080"+path, func(e harness.Exposition) error {
			pods := slices.ContainsFunc(e.Samples, func(l string) bool { return strings.HasPrefix(l, `kube_pod_created{namespace="e2e",pod="here"`) })
			hits := slices.Contains(e.Samples, `hits{code="200"} 3`)
			if got := [2]bool{pods, hits}; got != want {
				return fmt.Errorf("Kubernetes, StatsD: %v, it should be %v", got, want)
			}
			return nil
		})
	}
}

// settings are the settings in a section of a systemd unit; the last one of a name applies.
func settings(t *testing.T, section string, files ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, file := range files {
		current := ""
		for line := range strings.Lines(readFile(t, harness.RepoFile("deploy", "systemd", file))) {
			line = strings.TrimSpace(line)
			if name, value, isSetting := strings.Cut(line, "="); strings.HasPrefix(line, "[") {
				current = strings.Trim(line, "[]")
			} else if isSetting && !strings.HasPrefix(line, "#") && current == section {
				found[name] = value
			}
		}
	}
	return found
}

// TestSystemdUnit checks that systemd restarts kstatd indefinitely, that another file can raise the memory limit, and
// that Prometheus on another host can reach both ports.
func TestSystemdUnit(t *testing.T) {
	harness.NotInSelfCheck(t)
	// In [Service] systemd ignores it with a warning.
	if limit := settings(t, "Unit", "kstatd.service")["StartLimitIntervalSec"]; limit != "0" {
		t.Errorf("StartLimitIntervalSec is %q: after five quick failures nobody starts it again", limit)
	}
	service := settings(t, "Service", "kstatd.service")
	if service["Restart"] != "always" || service["MemoryMax"] == "" {
		t.Errorf("[Service] is %v", service)
	}
	if len(settings(t, "Service", "memory.conf")) != 1 || settings(t, "Service", "memory.conf")["MemoryMax"] == "" {
		t.Error("memory.conf sets something else than MemoryMax")
	}
	for _, arg := range unit(t).container.Args {
		if flag, address, _ := strings.Cut(arg, "="); strings.HasSuffix(flag, "listen") && !strings.HasPrefix(address, ":") {
			t.Errorf("%s: Prometheus on another host does not reach it", arg)
		}
	}
}
