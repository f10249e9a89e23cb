package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// helmVersion is the Kubernetes version that manifests are rendered for; helm's default is old.
const helmVersion = "1.36.0"

// helm runs helm on the chart with these YAML values.
func helm(t *testing.T, values string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.Tool(t, "helm"), append(args, harness.RepoFile("deploy", "helm", "kstatd"), "--kube-version="+helmVersion, "--values="+file)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// renderChart is the chart with these values, as the release `r` in the namespace `monitoring`.
func renderChart(t *testing.T, values string) chart {
	t.Helper()
	text, err := helm(t, values, "template", "r", "--namespace=monitoring")
	if err != nil {
		t.Fatal(err)
	}
	return parseManifests(t, "chart", text)
}

// ofKind are the chart's objects of one kind.
func (c chart) ofKind(kind string) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, o := range c.objects {
		if o.GetKind() == kind {
			found = append(found, o)
		}
	}
	return found
}

// as decodes an object strictly: every key must be known.
func as[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	text, err := yaml.Marshal(o.Object)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &typed)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

// scrapeConfig is the part of the operator's type that the chart uses; its module has many dependencies.
type scrapeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobName        string                       `json:"jobName"`
		HonorLabels    bool                         `json:"honorLabels"`
		ScrapeInterval string                       `json:"scrapeInterval"`
		ScrapeTimeout  string                       `json:"scrapeTimeout"`
		Relabelings    []monitoringv1.RelabelConfig `json:"relabelings"`
		Params         map[string][]string          `json:"params"`
		StaticConfigs  []struct {
			Targets []string          `json:"targets"`
			Labels  map[string]string `json:"labels"`
		} `json:"staticConfigs"`
		KubernetesSDConfigs []struct {
			Role       string                         `json:"role"`
			Namespaces struct{ Names []string }       `json:"namespaces"`
			Selectors  []struct{ Role, Label string } `json:"selectors"`
		} `json:"kubernetesSDConfigs"`
	} `json:"spec"`
}

// discovered returns the targets that Prometheus discovers with a ScrapeConfig for one pod of each workload: the workload, the
// port and the label shard.
func (c chart) discovered(t *testing.T, config scrapeConfig) (targets []string) {
	t.Helper()
	if len(config.Spec.KubernetesSDConfigs) != 1 || len(config.Spec.StaticConfigs) > 0 {
		t.Fatalf("%s has %v and %v", config.Name, config.Spec.KubernetesSDConfigs, config.Spec.StaticConfigs)
	}
	discovery := config.Spec.KubernetesSDConfigs[0]
	if discovery.Role != "Pod" || len(discovery.Selectors) != 1 || discovery.Selectors[0].Role != "Pod" || !slices.Equal(discovery.Namespaces.Names, []string{"monitoring"}) {
		t.Fatalf("%s discovers %+v", config.Name, discovery)
	}
	selector, err := k8slabels.Parse(discovery.Selectors[0].Label)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range c.objects {
		template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		if !found || o.GetNamespace() != "monitoring" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod); err != nil {
			t.Fatal(err)
		}
		if !selector.Matches(k8slabels.Set(pod.Labels)) {
			continue
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				labels := map[string]string{
					"__meta_kubernetes_pod_container_name": container.Name, "__meta_kubernetes_pod_container_port_name": port.Name,
					"__meta_kubernetes_pod_phase": "Running", "__param_shard": strings.Join(config.Spec.Params["shard"], ","),
				}
				if relabelled(t, config.Spec.Relabelings, labels) {
					targets = append(targets, strings.TrimSpace(fmt.Sprint(o.GetName(), " ", port.Name, " ", labels["shard"])))
				}
			}
		}
	}
	slices.Sort(targets)
	return targets
}

// relabelled changes labels as Prometheus does, and returns false if they are dropped.
func relabelled(t *testing.T, configs []monitoringv1.RelabelConfig, labels map[string]string) bool {
	t.Helper()
	for _, r := range configs {
		var values []string
		for _, name := range r.SourceLabels {
			values = append(values, labels[string(name)])
		}
		value := strings.Join(values, ";")
		matches := regexp.MustCompile("^(?:" + cmp.Or(r.Regex, "(.*)") + ")$").MatchString(value)
		switch action := cmp.Or(strings.ToLower(r.Action), "replace"); action {
		case "keep", "drop":
			if matches != (action == "keep") {
				return false
			}
		case "replace":
			labels[r.TargetLabel] = value
		default:
			t.Fatalf("unknown action %s", action)
		}
	}
	return true
}

// TestHelmScrapeConfig checks that a ScrapeConfig scrapes the Service only if its pods all have the same, and otherwise each
// pod once: the Service would answer with the empty body of a standby, or with the objects of one node or shard.
func TestHelmScrapeConfig(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics"} {
		name := "r-" + map[string]string{"run": "kstatd", "kube-state-metrics": "kube-state-metrics"}[personality]
		for values, workloads := range map[string][]string{
			"":                              nil,
			"standby: true\nreplicas: 2":    {name},
			"daemonset: {enabled: true}":    {name, name + "-others", name + "-unscheduled"},
			"autosharding: {enabled: true}": {name},
			"replicas: 2":                   {name},
		} {
			for _, shards := range []int{0, 2} {
				values := fmt.Sprintf("personality: %s\nprometheus: {virtualShards: %d, scrapeconfig: {enabled: true}}\ncontainers: [{name: sidecar, image: i, ports: [{name: http, containerPort: 9}]}]\n%s\n", personality, shards, values)
				c := renderChart(t, values)
				configs := c.ofKind("ScrapeConfig")
				// The replicas of kube-state-metrics are equal; those of `run` have different lines.
				if workloads == nil || personality == "kube-state-metrics" && strings.Contains(values, "\nreplicas: 2") && !strings.Contains(values, "standby") {
					if len(configs) != 1 || len(as[scrapeConfig](t, configs[0]).Spec.StaticConfigs) != max(shards, 1) {
						t.Errorf("%s: the Service is not scraped: %v", values, configs)
					}
					continue
				}
				var got, want []string
				for _, o := range configs {
					config := as[scrapeConfig](t, o)
					got = append(got, c.discovered(t, config)...)
					if shards > 0 && !slices.Equal(config.Spec.Params["total_shards"], []string{strconv.Itoa(shards)}) {
						t.Errorf("%s: the parameters are %v", values, config.Spec.Params)
					}
				}
				for _, workload := range workloads {
					if shards == 0 {
						want = append(want, workload+" http")
					}
					for shard := range shards {
						want = append(want, fmt.Sprint(workload, " http ", shard))
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s: the targets are %q, they should be %q", values, got, want)
				}
			}
		}
	}
}

// operatorKinds are not known to the API server; they are decoded with the operator's types.
var operatorKinds = map[string]func(*testing.T, *unstructured.Unstructured){
	"ServiceMonitor": func(t *testing.T, o *unstructured.Unstructured) { as[monitoringv1.ServiceMonitor](t, o) },
	"PodMonitor":     func(t *testing.T, o *unstructured.Unstructured) { as[monitoringv1.PodMonitor](t, o) },
	"ScrapeConfig":   func(t *testing.T, o *unstructured.Unstructured) { as[scrapeConfig](t, o) },
	"PrometheusRule": func(t *testing.T, o *unstructured.Unstructured) { as[monitoringv1.PrometheusRule](t, o) },
}

const mapping = "statsd: {mappingConfig: \"mappings:\\n- {match: a.*, name: a, labels: {x: $1}}\\n\"}\n"

const everythingOn = `
prometheusScrape: true
prometheus:
  rule: {enabled: true, runbookUrlPrefix: "https://runbooks.example.com/"}
  dashboards: {enabled: true}
podDisruptionBudget: {maxUnavailable: 1}
networkPolicy:
  enabled: true
  scrapers: [{namespaceSelector: {matchLabels: {name: monitoring}}}]
priorityClassName: ""
affinity: {nodeAffinity: {}}
tolerations: [{operator: Exists}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]
podAnnotations: {a: b}
annotations: {c: d}
customLabels: {team: "{{ .Release.Name }}"}
env: [{name: TZ, value: UTC}]
volumes: [{name: extra, emptyDir: {}}]
volumeMounts: [{name: extra, mountPath: /extra}]
extraManifests:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: extra, namespace: "{{ .Release.Namespace }}"}}
`

// restricted limits who reaches the pods and how many are evicted.
const restricted = "podDisruptionBudget: {maxUnavailable: 1}\nnetworkPolicy: {enabled: true, scrapers: [{namespaceSelector: {}}]}\n"

// helmCases are values that together cover each template.
var helmCases = []struct {
	name, values string
	// kinds are those of the workload.
	kinds []string
}{
	{"defaults", "", []string{"Deployment"}},
	{"senders", "networkPolicy: {enabled: true, senders: [{podSelector: {}}]}\n", []string{"Deployment"}},
	{"run", mapping + everythingOn + "kubernetesEvents: true\nmetricLabelsAllowlist: ['pods=[*]', 'nodes=[a,b]']\nmetricDenylist: [kube_secret_.*]\nnamespaces: [a, b]\n", []string{"Deployment"}},
	{"kube-state-metrics", "personality: kube-state-metrics\nreplicas: 2\nauthFilter: {enabled: true}\ncustomResourceState: {enabled: true, config: {kind: CustomResourceStateMetrics, spec: {resources: []}}}\n" + everythingOn, []string{"Deployment"}},
	{"statsd_exporter", "personality: statsd_exporter\n" + mapping + everythingOn, []string{"Deployment"}},
	{"autosharding", "personality: kube-state-metrics\nreplicas: 3\nautosharding: {enabled: true}\n", []string{"StatefulSet"}},
	{"autosharding with monitor and policy", "replicas: 3\nautosharding: {enabled: true}\nprometheus: {virtualShards: 2, monitor: {enabled: true}, scrapeconfig: {enabled: true}}\n" + restricted, []string{"StatefulSet"}},
	{"autosharding of both sides", "replicas: 3\nautosharding: {enabled: true}\n" + mapping, []string{"StatefulSet"}},
	{"standby", "standby: true\nreplicas: 2\nnetworkPolicy: {enabled: true}\n" + mapping, []string{"Deployment"}},
	{"standby with monitor and policy", "personality: kube-state-metrics\nstandby: true\nreplicas: 2\nprometheus: {virtualShards: 2, monitor: {enabled: true}, scrapeconfig: {enabled: true}}\n" + restricted, []string{"Deployment"}},
	{"standby of kube-state-metrics", "personality: kube-state-metrics\nstandby: true\nreplicas: 3\nselfMonitor: {telemetryPort: 9999}\n", []string{"Deployment"}},
	{"daemonset", "daemonset: {enabled: true}\nservice: {internalTrafficPolicy: Local}\n" + mapping + everythingOn, []string{"DaemonSet", "Deployment", "Deployment"}},
	{"daemonset of kube-state-metrics", "personality: kube-state-metrics\ndaemonset: {enabled: true}\nprometheus: {podMonitor: {enabled: true}, scrapeconfig: {enabled: true}}\n" + restricted, []string{"DaemonSet", "Deployment", "Deployment"}},
	{"daemonset of statsd_exporter", "personality: statsd_exporter\ndaemonset: {enabled: true}\nservice: {internalTrafficPolicy: Local}\n", []string{"DaemonSet"}},
	{"some namespaces", "rbac: {useClusterRole: false}\nnamespaces: a,b\ncollectors: [pods, deployments, jobs]\nauthFilter: {enabled: true}\n", []string{"Deployment"}},
	{"service monitor", "prometheus: {monitor: {enabled: true, additionalLabels: {release: p}, tlsConfig: {insecureSkipVerify: true}, scheme: https, relabelings: [{targetLabel: cluster, replacement: c}]}}\n", []string{"Deployment"}},
	{"pod monitor", "personality: statsd_exporter\nprometheus: {podMonitor: {enabled: true}}\n", []string{"Deployment"}},
	{"exporter with everything", "personality: statsd_exporter\nserviceMonitor: {enabled: true}\nautoscaling: {enabled: true}\ningress: {enabled: true}\n" + mapping, []string{"Deployment"}},
	{"proxy", "personality: kube-state-metrics\nkubeRBACProxy: {enabled: true}\nkubeconfig: {enabled: true, secret: YQ==}\nprometheus: {scrapeconfig: {enabled: true}}\n", []string{"Deployment"}},
	{"limits", "personality: kube-state-metrics\nprometheus: {monitor: {enabled: true, sampleLimit: 5, additionalLabels: {a: b, c: d}, http: {relabelings: [{targetLabel: a, replacement: b}]}}}\n", []string{"Deployment"}},
}

// TestHelmChart lints and renders the chart with many values. A real API server accepts each key of the result in a
// dry run, and all pods satisfy the strictest pod security level.
func TestHelmChart(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	ctx := context.Background()
	for _, name := range []string{"monitoring", "a", "b"} {
		labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
		if _, err := cluster.Typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Without controllers, the service account of a pod must be created here.
	account := harness.Object(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: pods, namespace: monitoring}}")
	cluster.Create("serviceaccounts", account)
	for _, test := range helmCases {
		t.Run(test.name, func(t *testing.T) {
			if out, err := helm(t, test.values, "lint", "--strict"); err != nil {
				t.Fatal(err, out)
			}
			c := renderChart(t, test.values)
			var kinds []string
			for _, o := range c.objects {
				if check, found := operatorKinds[o.GetKind()]; found {
					check(t, o)
					continue
				}
				resource, found := resourceOfKind[o.GetKind()]
				if !found {
					t.Fatalf("the chart has a %s", o.GetKind())
				}
				options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
				if _, err := cluster.Resource(resource, o).Create(ctx, o, options); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
				if err != nil {
					t.Fatal(err)
				}
				if !found {
					continue
				}
				kinds = append(kinds, o.GetKind())
				// A workload is accepted regardless of pod security; a pod is not.
				pod := &unstructured.Unstructured{Object: template}
				pod.SetAPIVersion("v1")
				pod.SetKind("Pod")
				pod.SetName("p")
				pod.SetNamespace(o.GetNamespace())
				if err := unstructured.SetNestedField(pod.Object, account.GetName(), "spec", "serviceAccountName"); err != nil {
					t.Fatal(err)
				}
				if _, err := cluster.Resource("pods", pod).Create(ctx, pod, options); err != nil {
					t.Errorf("a pod of %s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			slices.Sort(kinds)
			if !slices.Equal(kinds, test.kinds) {
				t.Errorf("workloads are %v, they should be %v", kinds, test.kinds)
			}
		})
	}
}

// TestHelmChartRefuses has values that contradict each other or cannot work.
func TestHelmChartRefuses(t *testing.T) {
	harness.NotInSelfCheck(t)
	for values, message := range map[string]string{
		"personality: node_exporter":                                "personality",
		"autosharding: {enabled: true}\ndaemonset: {enabled: true}": "choose one",
		"standby: true": "replicas must be 2 or more",
		"standby: true\nreplicas: 2\nautosharding: {enabled: true}":                                                      "its replicas hold everything",
		"personality: statsd_exporter\nstandby: true\nreplicas: 2":                                                       "it belongs to run and kube-state-metrics",
		"daemonset: {enabled: true}\nkubernetesEvents: true":                                                             "does not know the workloads",
		"daemonset: {enabled: true}\ncollectors: [nodes]":                                                                "collectors has no pods",
		"personality: statsd_exporter\nautosharding: {enabled: true}":                                                    "it belongs to run and kube-state-metrics",
		"prometheus: {monitor: {enabled: true}, podMonitor: {enabled: true}}":                                            "scraped twice",
		"rbac: {useClusterRole: false}":                                                                                  "namespaces says where",
		"rbac: {useClusterRole: false}\nnamespaces: a\ncollectors: [nodes]":                                              "nodes are cluster-scoped",
		"collectors: [widgets]":                                                                                          "widgets is not known",
		"collectors: []":                                                                                                 "list those to watch",
		"prometheus: {monitor: {http: {scrapeInterval: 1m}}}":                                                            "prometheus.monitor.http.scrapeInterval",
		"prometheus: {monitor: {bearerTokenFile: /t}, podMonitor: {enabled: true}}":                                      "set bearerTokenSecret",
		"personality: kube-state-metrics\nnetworkPolicy: {enabled: true, flavor: cilium, scrapers: [{podSelector: {}}]}": "has no such peers",
		"personality: kube-state-metrics\nnetworkPolicy: {enabled: true, ingress: [{}], scrapers: [{podSelector: {}}]}":  "replaces the rule",
		"personality: statsd_exporter\ndaemonset: {enabled: true}\nautoscaling: {enabled: true}":                         "a DaemonSet cannot be scaled",
		"autosharding: {enabled: true}\nservice: {type: NodePort}":                                                       "its Service is headless",
		"personality: kube-state-metrics\nautosharding: {enabled: true}\nservice: {type: LoadBalancer}":                  "its Service is headless",
	} {
		if _, err := helm(t, values, "template", "r"); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: the message should say %q: %v", values, message, err)
		}
	}
}

// granted returns the individual permissions of the rules: scope, group, resource, name and verb.
func granted(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var all []string
	for _, o := range objects {
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all = append(all, fmt.Sprintf("namespace %q: %s %s.%s", o.GetNamespace(), verb, resource, group))
					}
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestHelmAccess compares the chart's access rules with the program's list for its arguments.
func TestHelmAccess(t *testing.T) {
	harness.NotInSelfCheck(t)
	allKinds := []string{}
	for _, k := range loadKinds(t) {
		allKinds = append(allKinds, k.resource)
	}
	for name, values := range map[string]string{
		"defaults":         "",
		"every kind":       "collectors: [" + strings.Join(allKinds, ",") + "]",
		"some":             "collectors: [pods, nodes]",
		"auth filter":      "authFilter: {enabled: true}",
		"some namespaces":  "rbac: {useClusterRole: false}\nnamespaces: [a, b]\ncollectors: [pods, deployments]",
		"autosharding":     "autosharding: {enabled: true}",
		"labels of pods":   "collectors: [pods]\nextraArgs: ['--pod-workload-labels=workload,pod_labels=[team]', --metric-denylist=.*]",
		"labels of owners": "collectors: [pods]\nextraArgs: ['--pod-workload-labels=workload, labels=[team]']",
		"senders":          "collectors: [nodes]\nextraArgs: [--statsd.enrich=workload]",
	} {
		t.Run(name, func(t *testing.T) {
			c := renderChart(t, values)
			args := []string{"rbac"}
			for _, arg := range c.container.Args[1:] {
				flag, _, _ := strings.Cut(arg, "=")
				if strings.HasPrefix(flag, "--statsd.listen") || flag == "--listen" || flag == "--telemetry-listen" {
					continue
				}
				args = append(args, strings.NewReplacer("$(POD_NAME)", "r-kstatd-0", "$(POD_NAMESPACE)", "monitoring").Replace(arg))
			}
			code, stdout, stderr := harness.Run(t, harness.Kstatd(t), "", args...)
			if code != 0 {
				t.Fatalf("kstatd %v: %s", args, stderr)
			}
			needed := parseRoles(t, stdout)
			if err := harness.Difference(granted(t, c.objects), granted(t, needed)); err != nil {
				t.Error(err)
			}
		})
	}
}

// parseRoles parses manifests without a workload.
func parseRoles(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, document := range strings.Split(text, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.Object != nil {
			found = append(found, o)
		}
	}
	return found
}

// TestHelmDaemonSet checks that the pods of a node, those without a node and all other kinds are each watched once,
// and that StatsD lines go only to the pods of the nodes.
func TestHelmDaemonSet(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics"} {
		values, name := "personality: "+personality+"\ndaemonset: {enabled: true}\ncollectors: [jobs, pods, nodes]\n", "r-kube-state-metrics"
		if personality == "run" {
			values, name = values+mapping, "r-kstatd"
		}
		c := renderChart(t, values)
		want := map[string][]string{
			name:                  {"--node=$(NODE_NAME)", "--resources=pods"},
			name + "-unscheduled": {"--resources=pods", "--track-unscheduled-pods"},
			name + "-others":      {"--resources=jobs,nodes"},
		}
		for _, w := range c.workloads(t) {
			var watches []string
			takesLines := false
			for _, arg := range w.container.Args {
				flag, value, _ := strings.Cut(arg, "=")
				switch {
				case flag == "--resources" || flag == "--node" || flag == "--track-unscheduled-pods":
					watches = append(watches, arg)
				case strings.HasPrefix(flag, "--statsd."):
					takesLines = takesLines || value != ""
				}
			}
			slices.Sort(watches)
			if !slices.Equal(watches, want[w.workload]) {
				t.Errorf("%s: %s watches %v, it should be %v", personality, w.workload, watches, want[w.workload])
			}
			delete(want, w.workload)
			hasPort := slices.ContainsFunc(w.container.Ports, func(p corev1.ContainerPort) bool { return strings.HasPrefix(p.Name, "statsd") })
			if should := personality == "run" && w.workload == "r-kstatd"; takesLines != should || hasPort != should {
				t.Errorf("%s: %s takes lines: %v, has a port for them: %v", personality, w.workload, takesLines, hasPort)
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: not there: %v", personality, want)
		}
	}
}

// TestHelmMonitors checks that each port with metrics is scraped once, with distinct labels.
func TestHelmMonitors(t *testing.T) {
	harness.NotInSelfCheck(t)
	// The virtual shard of a target is in its parameters and, to tell the targets apart, in a label.
	path := func(given string, params map[string][]string, relabels []monitoringv1.RelabelConfig) string {
		given = cmp.Or(given, "/metrics")
		if len(params) == 0 {
			return given
		}
		if !slices.ContainsFunc(relabels, func(r monitoringv1.RelabelConfig) bool {
			return r.TargetLabel == "shard" && slices.Equal(r.SourceLabels, []monitoringv1.LabelName{"__param_shard"})
		}) {
			t.Errorf("the targets of shards have equal labels: %v", relabels)
		}
		return fmt.Sprintf("%s %s/%s", given, strings.Join(params["shard"], ","), strings.Join(params["total_shards"], ","))
	}
	for _, test := range []struct {
		personality, monitor string
		want                 []string
	}{
		{"run", "prometheus: {monitor: {enabled: true}}", []string{"http /metrics", "metrics /metrics"}},
		{"run", "prometheus: {virtualShards: 2, monitor: {enabled: true}}", []string{"http /metrics 0/2", "http /metrics 1/2", "metrics /metrics"}},
		{"kube-state-metrics", "prometheus: {monitor: {enabled: true, honorLabels: true}}", []string{"http /metrics"}},
		{"kube-state-metrics", "prometheus: {monitor: {enabled: true, honorLabels: true}}\nselfMonitor: {enabled: true}", []string{"http /metrics", "metrics /metrics"}},
		{"statsd_exporter", "serviceMonitor: {enabled: true, honorLabels: true}", []string{"http /metrics"}},
		{"statsd_exporter", "serviceMonitor: {enabled: true, honorLabels: true}\nselfMonitor: {enabled: true}", []string{"http /kstatd/metrics", "http /metrics"}},
	} {
		layouts := []string{"", "daemonset: {enabled: true}"}
		if test.personality != "statsd_exporter" {
			layouts = append(layouts, "standby: true\nreplicas: 2", "autosharding: {enabled: true}\nreplicas: 2")
		}
		for _, layout := range layouts {
			values := fmt.Sprintf("personality: %s\n%s\n%s\n", test.personality, layout, test.monitor)
			service := renderChart(t, values)
			monitor := as[monitoringv1.ServiceMonitor](t, service.ofKind("ServiceMonitor")[0])
			var got []string
			for _, e := range monitor.Spec.Endpoints {
				got = append(got, e.Port+" "+path(e.Path, e.Params, e.RelabelConfigs))
				if !e.HonorLabels {
					t.Errorf("%s: labels of objects are overwritten", e.Port)
				}
			}
			slices.Sort(got)
			selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			ports := map[string]int{}
			for _, o := range service.ofKind("Service") {
				s := as[corev1.Service](t, o)
				if !selector.Matches(labelSet(s.Labels)) {
					continue
				}
				for _, port := range s.Spec.Ports {
					ports[port.Name]++
				}
			}
			for _, e := range monitor.Spec.Endpoints {
				if ports[e.Port] != 1 {
					t.Errorf("%s: port %s is in %d Services", values, e.Port, ports[e.Port])
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: a ServiceMonitor scrapes %v, it should be %v", values, got, test.want)
			}
			other := strings.NewReplacer("serviceMonitor: {enabled: true, honorLabels: true}", "prometheus: {podMonitor: {enabled: true}}",
				"monitor: {enabled: true", "podMonitor: {enabled: true", ", honorLabels: true", "").Replace(values)
			pods := renderChart(t, other)
			got = nil
			for _, e := range as[monitoringv1.PodMonitor](t, pods.ofKind("PodMonitor")[0]).Spec.PodMetricsEndpoints {
				got = append(got, *e.Port+" "+path(e.Path, e.Params, e.RelabelConfigs))
				if !e.HonorLabels {
					t.Errorf("%s: labels of objects are overwritten", *e.Port)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: a PodMonitor scrapes %v, it should be %v", other, got, test.want)
			}
		}
	}
}

// TestHelmDisruptionBudget checks which pods a budget covers: all pods of the release except those of a DaemonSet, which has no
// scale, so that a budget with such a pod allows no eviction of any. With a standby, which has a budget anyway, it covers no
// pod of another release: the API server evicts no pod with two budgets.
func TestHelmDisruptionBudget(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics", "statsd_exporter"} {
		for layout, kinds := range map[string][]string{
			"podDisruptionBudget: {maxUnavailable: 1}":                                {"Deployment"},
			"podDisruptionBudget: {maxUnavailable: 1}\nautosharding: {enabled: true}": {"StatefulSet"},
			"podDisruptionBudget: {maxUnavailable: 1}\ndaemonset: {enabled: true}":    {"Deployment", "Deployment"},
			"standby: true\nreplicas: 2":                                              {"Deployment"},
			"":                                                                        nil,
		} {
			values := "personality: " + personality + "\n" + layout
			if personality == "statsd_exporter" {
				if strings.Contains(layout, "daemonset") {
					kinds = nil
				} else if strings.Contains(layout, "autosharding") || strings.Contains(layout, "standby") {
					continue
				}
			}
			c := renderChart(t, values)
			var covered []string
			pods, selectors := c.selection(t)
			for _, s := range selectors {
				if !strings.HasPrefix(s.object, "PodDisruptionBudget ") {
					continue
				}
				for _, pod := range pods {
					if s.selector.Matches(pod.labels) {
						kind, _, _ := strings.Cut(pod.workload, " ")
						covered = append(covered, kind)
					}
					other := k8slabels.Set{}
					for name, value := range pod.labels {
						other[name] = value
					}
					other["app.kubernetes.io/instance"] = "other"
					if strings.Contains(layout, "standby") && s.selector.Matches(other) {
						t.Errorf("%s: the budget covers pods of another release", values)
					}
				}
			}
			slices.Sort(covered)
			if !slices.Equal(covered, kinds) {
				t.Errorf("%s: the budget covers %v, it should be %v", values, covered, kinds)
			}
		}
	}
}

// TestHelmDaemonSetPorts checks that no two workloads of a release need the same port of a node: with the DaemonSet's pods in
// the host network, pods of the Deployments in it would find no node.
func TestHelmDaemonSetPorts(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics"} {
		c := renderChart(t, "personality: "+personality+"\ndaemonset: {enabled: true}\nhostNetwork: true\n")
		var inHost []string
		for _, w := range c.workloads(t) {
			host := ""
			if w.pod.HostNetwork {
				inHost, host = append(inHost, w.workload), "127.0.0.1"
			}
			for _, probe := range []*corev1.Probe{w.container.LivenessProbe, w.container.ReadinessProbe} {
				if probe.HTTPGet.Host != host {
					t.Errorf("%s: a probe asks %q, it should be %q", w.workload, probe.HTTPGet.Host, host)
				}
			}
		}
		if want := []string{c.ofKind("DaemonSet")[0].GetName()}; !slices.Equal(inHost, want) {
			t.Errorf("%s: in the host network are %v, it should be %v", personality, inHost, want)
		}
	}
}

// TestHelmTestPod checks that the pod of `helm test` is none of the exporter's: an autoscaler would miss its requests, and a
// NetworkPolicy would let it reach nothing. The policy admits it among the scrapers.
func TestHelmTestPod(t *testing.T) {
	harness.NotInSelfCheck(t)
	c := renderChart(t, `
personality: statsd_exporter
autoscaling: {enabled: true}
podDisruptionBudget: {maxUnavailable: 1}
prometheus: {podMonitor: {enabled: true}}
networkPolicy: {enabled: true, scrapers: [{namespaceSelector: {matchLabels: {name: monitoring}}}]}
`)
	labels := k8slabels.Set(c.ofKind("Pod")[0].GetLabels())
	_, selectors := c.selection(t)
	policy := as[networkingv1.NetworkPolicy](t, c.ofKind("NetworkPolicy")[0])
	monitor := as[monitoringv1.PodMonitor](t, c.ofKind("PodMonitor")[0])
	for name, selector := range map[string]metav1.LabelSelector{"NetworkPolicy": policy.Spec.PodSelector, "PodMonitor": monitor.Spec.Selector} {
		of, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			t.Fatal(err)
		}
		selectors = append(selectors, selecting{object: name, selector: of})
	}
	for _, s := range selectors {
		if s.selector.Matches(labels) {
			t.Errorf("%s selects the pod of `helm test`", s.object)
		}
	}
	admitted := slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
		return rule.Ports[0].Port.StrVal == "http" && slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
			of, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
			return err == nil && peer.NamespaceSelector == nil && of.Matches(labels)
		})
	})
	if !admitted {
		t.Errorf("the pod of `helm test` is not admitted: %+v", policy.Spec.Ingress)
	}
}

// TestHelmNames checks with the longest name of a release that no two objects have one name, that each Service can have its
// name and has ports, and that replicas look up a Service that exists.
func TestHelmNames(t *testing.T) {
	harness.NotInSelfCheck(t)
	long := "fullnameOverride: " + strings.Repeat("long-name-", 7) + "\nprometheus: {rule: {enabled: true}, dashboards: {enabled: true}}\n"
	for _, values := range []string{
		long, long + "standby: true\nreplicas: 2", long + "personality: kube-state-metrics\nstandby: true\nreplicas: 2", long + "personality: kube-state-metrics\ndaemonset: {enabled: true}",
		long + "personality: statsd_exporter\n", long + "daemonset: {enabled: true}", "daemonset: {enabled: true}\nstatsd: {udpPort: null, tcpPort: null}",
	} {
		c := renderChart(t, values)
		names := map[string]bool{}
		for _, o := range c.objects {
			name := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
			if names[name] {
				t.Errorf("%s: there are two of %s", values, name)
			}
			names[name] = true
			if o.GetKind() == "Service" && (len(o.GetName()) > 63 || len(as[corev1.Service](t, o).Spec.Ports) == 0) {
				t.Errorf("%s: the API server accepts no such Service: %s, %v", values, o.GetName(), o.Object["spec"])
			}
		}
		for _, arg := range c.container.Args {
			if peers, found := strings.CutPrefix(arg, "--standby-peers="); found {
				if host, _, _ := strings.Cut(peers, ":"); !names["Service monitoring/"+host] {
					t.Errorf("%s: there is no Service %s", values, host)
				}
			}
		}
	}
}

// admits returns true if a rule for these peers admits TCP from or to the pods of the chart at this port. No peers means
// every address.
func (c chart) admits(t *testing.T, ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, port int32) bool {
	t.Helper()
	if len(ports) > 0 && !slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP {
			return false
		}
		if p.Port.Type == intstr.Int {
			return p.Port.IntVal == port
		}
		return slices.ContainsFunc(c.container.Ports, func(own corev1.ContainerPort) bool { return own.Name == p.Port.StrVal && own.ContainerPort == port })
	}) {
		return false
	}
	pods, _ := c.selection(t)
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		selector, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
		return err == nil && peer.NamespaceSelector == nil && peer.IPBlock == nil &&
			!slices.ContainsFunc(pods, func(pod labelled) bool { return !selector.Matches(pod.labels) })
	})
}

// TestHelmNetworkPolicyPeers checks that pods which poll each other may do so: replicas, and shards while their number changes.
// Replicas look up each other's addresses as well. Other pods do not reach each other.
func TestHelmNetworkPolicyPeers(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics"} {
		for layout, polls := range map[string]bool{
			"standby: true\nreplicas: 2": true, "autosharding: {enabled: true}\nreplicas: 2": true, "": false, "daemonset: {enabled: true}": false,
		} {
			for _, port := range []int32{8081, 9999} {
				for _, policy := range []string{
					"", "scrapers: [{namespaceSelector: {}}]", "ingress: [{from: [{ipBlock: {cidr: 10.0.0.1/32}}]}], egress: [{to: [{ipBlock: {cidr: 10.0.0.2/32}}]}]",
				} {
					values := fmt.Sprintf("personality: %s\nselfMonitor: {telemetryPort: %d}\nnetworkPolicy: {enabled: true, %s}\n%s\n", personality, port, policy, layout)
					c := renderChart(t, values)
					p := as[networkingv1.NetworkPolicy](t, c.ofKind("NetworkPolicy")[0])
					ingress, egress, names := false, false, false
					for _, rule := range p.Spec.Ingress {
						// Without scrapers every address reaches the port.
						ingress = ingress || (polls || len(rule.From) > 0) && c.admits(t, rule.Ports, rule.From, port)
					}
					for _, rule := range p.Spec.Egress {
						egress = egress || c.admits(t, rule.Ports, rule.To, port)
						names = names || c.admits(t, rule.Ports, rule.To, 53)
					}
					if ingress != polls || egress != polls {
						t.Errorf("%s: pods of the chart reach each other: ingress %v, egress %v", values, ingress, egress)
					}
					if strings.HasPrefix(layout, "standby") && !names {
						t.Errorf("%s: names cannot be looked up", values)
					}
				}
			}
		}
	}
}

// TestHelmCiliumPolicyPeers checks the same for the policy of Cilium.
func TestHelmCiliumPolicyPeers(t *testing.T) {
	harness.NotInSelfCheck(t)
	for layout, polls := range map[string]bool{"standby: true\nreplicas: 2": true, "autosharding: {enabled: true}\nreplicas: 2": true, "": false} {
		c := renderChart(t, "personality: kube-state-metrics\nnetworkPolicy: {enabled: true, flavor: cilium}\n"+layout)
		text, err := yaml.Marshal(c.ofKind("CiliumNetworkPolicy")[0].Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		var policy struct{ Ingress, Egress []ciliumRule }
		if err := yaml.Unmarshal(text, &policy); err != nil {
			t.Fatal(err)
		}
		reaches := func(rules []ciliumRule, port string) bool {
			return slices.ContainsFunc(rules, func(r ciliumRule) bool {
				return len(r.ToPorts) == 1 && slices.ContainsFunc(r.ToPorts[0].Ports, func(p ciliumPort) bool { return p.Port == port })
			})
		}
		if in, out := reaches(policy.Ingress, "8081"), reaches(policy.Egress, "8081"); in != polls || out != polls {
			t.Errorf("%s: pods of the chart reach each other: ingress %v, egress %v", layout, in, out)
		}
		if names := reaches(policy.Egress, "53"); names != strings.HasPrefix(layout, "standby") {
			t.Errorf("%s: names can be looked up: %v", layout, names)
		}
	}
}

// ciliumRule is a part of a rule of a CiliumNetworkPolicy.
type ciliumRule struct {
	ToPorts []struct{ Ports []ciliumPort }
}

type ciliumPort struct{ Port string }

type labelSet map[string]string

func (l labelSet) Has(name string) bool   { _, found := l[name]; return found }
func (l labelSet) Get(name string) string { return l[name] }
func (l labelSet) Lookup(name string) (string, bool) {
	value, found := l[name]
	return value, found
}

// TestHelmChartServes starts the container of the chart with the permissions of its rules: each personality serves.
func TestHelmChartServes(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, test := range []struct {
		personality, metrics, own string
		kube, statsd              bool
	}{
		{"run", "http://127.0.0.1:8080/metrics", "http://127.0.0.1:8081/metrics", true, true},
		{"kube-state-metrics", "http://127.0.0.1:8080/metrics", "http://127.0.0.1:8081/metrics", true, false},
		{"statsd_exporter", "http://127.0.0.1:9102/metrics", "http://127.0.0.1:9102/kstatd/metrics", false, true},
	} {
		t.Run(test.personality, func(t *testing.T) {
			values := "personality: " + test.personality + "\nselfMonitor: {enabled: true}\n"
			if test.kube {
				values += "prometheus: {monitor: {enabled: true, honorLabels: true, interval: 1s, scrapeTimeout: 1s}}\n"
			} else {
				values += "serviceMonitor: {enabled: true, honorLabels: true, interval: 1s, scrapeTimeout: 1s, jobLabel: app.kubernetes.io/name}\n"
			}
			if test.statsd {
				values += mapping
			}
			c := renderChart(t, values)
			monitor := as[monitoringv1.ServiceMonitor](t, c.ofKind("ServiceMonitor")[0])
			c.objects = slices.DeleteFunc(c.objects, func(o *unstructured.Unstructured) bool { return operatorKinds[o.GetKind()] != nil })
			network, image := harness.NewNetwork(t), harness.NewImage(t)
			var env []string
			if test.kube {
				cluster := harness.StartClusterIn(t, network)
				c.apply(t, cluster)
				cluster.Create("pods", harness.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a}, spec: {containers: [{name: c, image: "c:1"}]}}`))
				env = inCluster(t, image, cluster, "monitoring", c.pod.ServiceAccountName)
			} else if *c.pod.AutomountServiceAccountToken {
				t.Error("StatsD alone has a token")
			}
			c.mount(t, image)
			process := c.start(t, image, network, c.container.Command[0], "r-kstatd-0", "monitoring", env...)
			c.waitProbes(t, network, process)
			if test.statsd {
				conn, err := network.Dial(context.Background(), "udp", "127.0.0.1:9125")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := conn.Write([]byte("a.line:1|c\n")); err != nil {
					t.Fatal(err)
				}
			}
			waitMetrics(t, network, test.metrics, func(e harness.Exposition) error {
				pods := slices.ContainsFunc(e.Samples, func(l string) bool { return strings.HasPrefix(l, `kube_pod_created{namespace="a",pod="p"`) })
				lines := slices.Contains(e.Samples, `a{x="line"} 1`)
				if got, want := [2]bool{pods, lines}, [2]bool{test.kube, test.statsd}; got != want {
					return fmt.Errorf("Kubernetes, StatsD: %v, it should be %v", got, want)
				}
				return nil
			})
			waitMetrics(t, network, test.own, func(e harness.Exposition) error {
				if !slices.ContainsFunc(e.Samples, func(l string) bool { return strings.HasPrefix(l, "kstatd_") }) {
					return errors.New("it says nothing of itself")
				}
				if line := notAllowed(e); line != "" {
					t.Fatalf("something may not be read: %s\n%s", line, process.Output())
				}
				return nil
			})
			scrapeAsMonitored(t, network, monitor, c.container.Ports)
		})
	}
}

// scrapeAsMonitored has a real Prometheus scrape the operator's targets and evaluate the alerts: each target is up
// with distinct labels, and nothing fires.
func scrapeAsMonitored(t *testing.T, network *harness.Network, monitor monitoringv1.ServiceMonitor, ports []corev1.ContainerPort) {
	t.Helper()
	type target struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	// The Service's label that jobLabel names; the labels of both are the same.
	job := monitor.Labels[monitor.Spec.JobLabel]
	var jobs []map[string]any
	for i, e := range monitor.Spec.Endpoints {
		at := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == e.Port })
		if at < 0 {
			t.Fatalf("no port is named %s", e.Port)
		}
		var relabelings []map[string]any
		for _, r := range e.RelabelConfigs {
			relabelings = append(relabelings, map[string]any{"source_labels": r.SourceLabels, "target_label": r.TargetLabel})
		}
		jobs = append(jobs, map[string]any{
			"job_name": fmt.Sprint(monitor.Name, "/", i), "metrics_path": cmp.Or(e.Path, "/metrics"), "honor_labels": e.HonorLabels,
			"scrape_interval": e.Interval, "scrape_timeout": e.ScrapeTimeout, "relabel_configs": relabelings,
			"static_configs": []target{{[]string{fmt.Sprintf("127.0.0.1:%d", ports[at].ContainerPort)}, map[string]string{"job": job}}},
		})
	}
	config, err := yaml.Marshal(map[string]any{"scrape_configs": jobs, "rule_files": []string{mixin("rendered", "alerts.yaml")}, "global": map[string]any{"evaluation_interval": "1s"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatalf("%v (Debian package prometheus)", err)
	}
	process := harness.StartWith(t, harness.Program{Name: "prometheus", Path: path}, harness.StartOptions{Network: network},
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:9090")
	for _, q := range []struct {
		query string
		want  int
	}{
		// As many as there are targets: equal labels would merge two.
		{fmt.Sprintf(`up{job=%q} == 1`, job), len(jobs)},
		{fmt.Sprintf(`{__name__=~"kstatd_.*build_info|kube_.*build_info|statsd_exporter_build_info",job=%q}`, job), -1},
		{`ALERTS{alertstate="firing"}`, 0},
	} {
		query, want := q.query, q.want
		if strings.HasPrefix(query, "ALERTS") {
			// Nothing can fire before the first evaluation.
			waitEvaluated(t, network)
		}
		harness.Eventually(t, query+" has its series", func() error {
			if !process.Running() {
				t.Fatalf("it has ended:\n%s", process.Output())
			}
			resp, err := network.Get("http://127.0.0.1:9090/api/v1/query?query=" + url.QueryEscape(query))
			if err != nil {
				return err
			}
			var answer struct {
				Status string
				Data   struct{ Result []any }
			}
			if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil {
				return err
			}
			if got := len(answer.Data.Result); answer.Status != "success" || got != want && (want >= 0 || got == 0) {
				return fmt.Errorf("status %s, %d series, it should be %d", answer.Status, got, want)
			}
			return nil
		})
	}
}

// waitEvaluated waits until each group of rules has been evaluated twice more.
func waitEvaluated(t *testing.T, network *harness.Network) {
	t.Helper()
	const iterations = "prometheus_rule_group_iterations_total{"
	counts := func() (map[string]float64, error) {
		resp, err := network.Get("http://127.0.0.1:9090/metrics")
		if err != nil {
			return nil, err
		}
		groups := map[string]float64{}
		for line := range strings.Lines(resp.Body) {
			if !strings.HasPrefix(line, iterations) {
				continue
			}
			series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
			if groups[series], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, err
			}
		}
		if len(groups) == 0 {
			return nil, errors.New("there are no groups of rules")
		}
		return groups, nil
	}
	var before map[string]float64
	harness.Eventually(t, "all rules are evaluated", func() error {
		now, err := counts()
		if err != nil {
			return err
		}
		if before == nil {
			before = now
		}
		for group, count := range now {
			if count < before[group]+2 {
				return fmt.Errorf("%s was evaluated %g times, before %g", group, count, before[group])
			}
		}
		return nil
	})
}
