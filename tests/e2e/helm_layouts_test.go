package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8slabels "k8s.io/apimachinery/pkg/labels"
)

// TestHelmDaemonSetCustomResources checks that custom resources are exposed by one process next to a DaemonSet, not by that of
// each node: by the Deployment of the other kinds, which is there for them alone if pods are the only kind.
func TestHelmDaemonSetCustomResources(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics"} {
		for _, collectors := range []string{"[pods]", "[jobs, pods]"} {
			for _, custom := range []string{
				"customResourceState: {enabled: true, config: {kind: CustomResourceStateMetrics}}",
				"extraArgs: [--custom-resource-state-config-file=/etc/customresourcestate/config.yaml]",
				"extraArgs: [--custom-resource-state-config-file, /etc/customresourcestate/config.yaml]",
			} {
				values := "personality: " + personality + "\ndaemonset: {enabled: true}\ncollectors: " + collectors + "\n" + custom + "\n"
				var exposed, mounted []string
				for _, w := range renderChart(t, values).workloads(t) {
					args := strings.ReplaceAll(strings.Join(w.container.Args, " "), "-config-file /", "-config-file=/")
					if strings.Contains(args, "/etc/customresourcestate/config.yaml") {
						if !strings.Contains(args, "--custom-resource-state-config-file=/etc/customresourcestate/config.yaml") {
							t.Errorf("%s: %s has the arguments %s", values, w.workload, args)
						}
						exposed = append(exposed, w.workload)
						resources := strings.Contains(args, "--resources=")
						if only := strings.Contains(args, "--custom-resource-state-only"); only == resources || resources && !strings.Contains(args, "--resources=jobs") {
							t.Errorf("%s: %s has the arguments %s", values, w.workload, args)
						}
					}
					if len(w.container.VolumeMounts) > 0 {
						mounted = append(mounted, w.workload)
					}
				}
				others := []string{"r-" + map[string]string{"run": "kstatd", "kube-state-metrics": "kube-state-metrics"}[personality] + "-others"}
				if !slices.Equal(exposed, others) {
					t.Errorf("%s: custom resources are exposed by %v, it should be %v", values, exposed, others)
				}
				if strings.HasPrefix(custom, "customResourceState") && !slices.Equal(mounted, others) {
					t.Errorf("%s: the configuration is mounted by %v, it should be %v", values, mounted, others)
				}
			}
		}
	}
}

// TestHelmDaemonSetTolerations checks that the DaemonSet's pods run on tainted nodes, whose pods they report and whose lines they
// take, and that the Deployments next to it have only the tolerations of the values.
func TestHelmDaemonSetTolerations(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics", "statsd_exporter"} {
		for values, want := range map[string][2]string{
			"daemonset: {enabled: true}": {"", ""},
			"daemonset: {enabled: true}\ntolerations: [{key: a, operator: Exists}]":                  {"", "a"},
			"daemonset: {enabled: true, tolerations: [{key: b, operator: Exists}]}":                  {"b", ""},
			"daemonset: {enabled: true, tolerations: []}\ntolerations: [{key: a, operator: Exists}]": {"a", "a"},
		} {
			c := renderChart(t, "personality: "+personality+"\n"+values)
			for _, w := range c.workloads(t) {
				onNodes := slices.ContainsFunc(c.ofKind("DaemonSet"), func(o *unstructured.Unstructured) bool { return o.GetName() == w.workload })
				key, count := want[1], 1
				if onNodes {
					key = want[0]
				} else if key == "" {
					count = 0
				}
				if got := w.pod.Tolerations; len(got) != count || count == 1 && (got[0].Key != key || got[0].Operator != corev1.TolerationOpExists) {
					t.Errorf("%s: %s: %s tolerates %v", personality, values, w.workload, got)
				}
			}
		}
	}
}

// TestHelmStandbyPlaces checks where the replicas of a standby can run, and that an upgrade replaces them with no more nodes than
// replicas: in the host network a new pod finds no port next to an old one. Replicas look up each other's addresses there, too.
func TestHelmStandbyPlaces(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, personality := range []string{"run", "kube-state-metrics"} {
		for values, want := range map[string]struct {
			surge, unavailable string
			dns                corev1.DNSPolicy
			apart              bool
		}{
			"": {"25%", "25%", corev1.DNSClusterFirst, true},
			"affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/instance: r}}}]}}":                                                      {"0", "1", corev1.DNSClusterFirst, false},
			"affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [], requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app.kubernetes.io/instance: r}}}]}}": {"0", "1", corev1.DNSClusterFirst, false},
			"affinity: |\n  podAntiAffinity:\n    requiredDuringSchedulingIgnoredDuringExecution: []":                                                                                                                                                    {"0", "1", corev1.DNSClusterFirst, false},
			"hostNetwork: true": {"0", "1", corev1.DNSClusterFirstWithHostNet, true},
			"hostNetwork: true\ndnsPolicy: Default\naffinity: {nodeAffinity: {}}":                                {"0", "1", corev1.DNSDefault, false},
			"hostNetwork: true\nupdateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: \"50%\"}}": {"25%", "50%", corev1.DNSClusterFirstWithHostNet, true},
		} {
			c := renderChart(t, "personality: "+personality+"\nstandby: true\nreplicas: 2\n"+values)
			d := as[appsv1.Deployment](t, c.ofKind("Deployment")[0])
			// The API server's default.
			surge, unavailable := "25%", "25%"
			if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
				t.Errorf("%s: %s: the strategy is %v", personality, values, d.Spec.Strategy)
			}
			if r := d.Spec.Strategy.RollingUpdate; r != nil && r.MaxSurge != nil {
				surge = r.MaxSurge.String()
			}
			if r := d.Spec.Strategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
				unavailable = r.MaxUnavailable.String()
			}
			pod := d.Spec.Template
			if surge != want.surge || unavailable != want.unavailable || pod.Spec.DNSPolicy != want.dns {
				t.Errorf("%s: %s: surge %s, unavailable %s, names from %s", personality, values, surge, unavailable, pod.Spec.DNSPolicy)
			}
			_, selectors := c.selection(t)
			// The Services, the budget, the Deployment's own selector, and that of the anti-affinity.
			apart := 0
			for _, s := range selectors {
				if s.object == "Deployment "+d.Name && s.selector.Matches(k8slabels.Set(pod.Labels)) {
					apart++
				}
			}
			if (apart == 2) != want.apart {
				t.Errorf("%s: %s: replicas prefer different nodes: %v", personality, values, apart == 2)
			}
		}
	}
}

// TestHelmNetworkPolicyPorts checks which ports of any address the pods reach: those of the API server behind its Service, which
// are 8443 and 16443 in some distributions, and of the name server.
func TestHelmNetworkPolicyPorts(t *testing.T) {
	harness.NotInSelfCheck(t)
	names := []string{"53/TCP", "53/UDP", "5353/TCP", "5353/UDP"}
	for values, want := range map[string][]string{
		"networkPolicy: {enabled: true}":                                                                    {"16443/TCP", "443/TCP", "6443/TCP", "8443/TCP"},
		"networkPolicy: {enabled: true, apiServerPorts: [7443]}":                                            {"7443/TCP"},
		"networkPolicy: {enabled: true, apiServerPorts: [], egress: [{ports: [{port: 9, protocol: TCP}]}]}": {"9/TCP"},
		"personality: statsd_exporter\nnetworkPolicy: {enabled: true}":                                      nil,
	} {
		for _, layout := range []string{"", "standby: true\nreplicas: 2", "autosharding: {enabled: true}", "daemonset: {enabled: true}"} {
			if strings.Contains(values, "statsd_exporter") && !strings.HasPrefix(layout, "daemonset") && layout != "" {
				continue
			}
			policy := as[networkingv1.NetworkPolicy](t, renderChart(t, values+"\n"+layout).ofKind("NetworkPolicy")[0])
			var got []string
			for _, rule := range policy.Spec.Egress {
				if len(rule.Ports) == 0 {
					t.Errorf("%s: a rule admits every port", values)
				}
				for _, port := range rule.Ports {
					if len(rule.To) == 0 {
						got = append(got, fmt.Sprintf("%s/%s", port.Port, *port.Protocol))
					}
				}
			}
			slices.Sort(got)
			all := slices.Sorted(slices.Values(slices.Concat(names, want)))
			if !slices.Equal(got, all) {
				t.Errorf("%s, %s: the pods reach the ports %v, they should reach %v", values, layout, got, all)
			}
		}
	}
}

// TestHelmSocketOfNodes checks that only the processes of the DaemonSet bind a socket that extraArgs give to all.
func TestHelmSocketOfNodes(t *testing.T) {
	harness.NotInSelfCheck(t)
	chart := renderChart(t, "daemonset: {enabled: true}\nextraArgs: [--statsd.listen-unixgram=/run/kstatd/statsd.sock]")
	for _, w := range chart.workloads(t) {
		// The last one counts.
		last := ""
		for _, arg := range w.container.Args {
			if value, found := strings.CutPrefix(arg, "--statsd.listen-unixgram="); found {
				last = value
			}
		}
		if isNode := w.workload == "r-kstatd"; (last != "") != isNode {
			t.Errorf("%s listens on the socket %q", w.workload, last)
		}
	}
}

// TestHelmRulesSelectTheirTargets finds the job of each monitor among those that the rules select, or the label that they select as well.
func TestHelmRulesSelectTheirTargets(t *testing.T) {
	harness.NotInSelfCheck(t)
	jobs := regexp.MustCompile("^(.+[/_-])?(kstatd|kube-state-metrics|statsd[-_]exporter)([/_-].+)?$")
	for _, values := range []string{
		"prometheus: {rule: {enabled: true}, monitor: {enabled: true}}",
		"nameOverride: other\nprometheus: {rule: {enabled: true}, monitor: {enabled: true}}",
		"prometheus: {rule: {enabled: true}, monitor: {enabled: true, jobLabel: app.kubernetes.io/instance}}",
		"nameOverride: other\nprometheus: {rule: {enabled: true}, scrapeconfig: {enabled: true, jobName: other}}",
		"personality: statsd_exporter\nfullnameOverride: statsd\nserviceMonitor: {enabled: true}\nprometheus: {rule: {enabled: true}}",
		"personality: statsd_exporter\nserviceMonitor: {enabled: true}\nprometheus: {rule: {enabled: true}}",
	} {
		chart := renderChart(t, values)
		var service *unstructured.Unstructured
		for _, o := range chart.ofKind("Service") {
			service = o
		}
		found := 0
		for _, kind := range []string{"ServiceMonitor", "ScrapeConfig"} {
			for _, o := range chart.ofKind(kind) {
				found++
				job, _, _ := unstructured.NestedString(o.Object, "spec", "jobName")
				if label, _, _ := unstructured.NestedString(o.Object, "spec", "jobLabel"); label != "" {
					job = service.GetLabels()[label]
				} else if job == "" {
					job = service.GetName()
				}
				text, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				hasLabel := strings.Contains(string(text), "app_kubernetes_io_name")
				if hasLabel == jobs.MatchString(job) {
					t.Errorf("%s: the %s has the job %q, and the label that rules select: %v", values, kind, job, hasLabel)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s: no monitor", values)
		}
	}
}

// TestHelmStatsdOnNodes checks that StatsD lines stay on the node of their sender next to a DaemonSet unless the values say otherwise,
// as in deploy/daemonset-statsd: a process on another node would keep the sender's old gauges.
func TestHelmStatsdOnNodes(t *testing.T) {
	harness.NotInSelfCheck(t)
	for values, want := range map[string]corev1.ServiceInternalTrafficPolicy{
		"": corev1.ServiceInternalTrafficPolicyLocal,
		"service: {internalTrafficPolicy: Cluster}\n": corev1.ServiceInternalTrafficPolicyCluster,
		"personality: statsd_exporter\n":              corev1.ServiceInternalTrafficPolicyLocal,
	} {
		taken := 0
		for _, o := range renderChart(t, "daemonset: {enabled: true}\n"+values).ofKind("Service") {
			service := as[corev1.Service](t, o)
			if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol == corev1.ProtocolUDP }) {
				continue
			}
			taken++
			if policy := service.Spec.InternalTrafficPolicy; policy == nil || *policy != want {
				t.Errorf("%q: lines to %s go by %v, it should be %s", values, service.Name, policy, want)
			}
		}
		if taken != 1 {
			t.Errorf("%q: %d Services take lines", values, taken)
		}
	}
}
