package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// shardedSet creates a StatefulSet and its pods, which no kubelet runs.
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

// podsShown are the pods of a namespace that an exporter exposes.
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

// shardsUnderTest are the processes of a StatefulSet without a kubelet, with the pods of a namespace as objects.
type shardsUnderTest struct {
	t         *testing.T
	cluster   *harness.Cluster
	exporters []*harness.KubeExporter
	// pause is the time between two scrapes.
	pause time.Duration
	// program is that of the next process.
	program harness.Program
	// telemetry is the port of the telemetry listeners, on an address for each process.
	telemetry int
}

const (
	shardedNamespace = "sharded"
	shardedPods      = 200
	mostShards       = 3
)

// startSharded creates the StatefulSet with one replica, its pods and the pods that it exposes.
func startSharded(t *testing.T) *shardsUnderTest {
	t.Helper()
	cluster := harness.StartCluster(t)
	shardedSet(t, cluster, 1, mostShards)
	for i := range shardedPods {
		cluster.Create("pods", harness.Object(t, fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: pod-%03d, namespace: %s}, spec: {containers: [{name: c, image: i}]}}", i, shardedNamespace)))
	}
	return &shardsUnderTest{t: t, cluster: cluster, program: harness.OurKubeStateMetrics(t), telemetry: harness.FreePort(t)}
}

// kubeconfig grants exactly the permissions of the deployment.
func (s *shardsUnderTest) kubeconfig(server string) string {
	token := s.cluster.ServiceAccountToken("sharding", `[{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}, {apiGroups: [apps], resources: [statefulsets], verbs: [get, list, watch]}]`)
	return s.cluster.KubeconfigWith(server, token)
}

// start starts the next process.
func (s *shardsUnderTest) start(kubeconfig string, args ...string) {
	s.t.Helper()
	args = append([]string{"--kubeconfig=" + kubeconfig, "--resources=pods", fmt.Sprintf("--pod=ksm-%d", len(s.exporters)), "--pod-namespace=monitoring"}, args...)
	s.exporters = append(s.exporters, harness.StartKubeExporter(s.t, s.program, args...))
}

// startPolled starts the next process on an address where the others poll it.
func (s *shardsUnderTest) startPolled(kubeconfig string) {
	s.t.Helper()
	number := len(s.exporters)
	host := fmt.Sprintf("127.0.0.%d", number+2)
	pod := harness.Object(s.t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: ksm-%d, namespace: monitoring}}", number))
	s.cluster.Patch("pods", pod, map[string]any{"status": map[string]any{"podIP": host, "podIPs": []any{map[string]any{"ip": host}}}}, "status")
	s.start(kubeconfig, "--telemetry-host="+host, fmt.Sprintf("--telemetry-port=%d", s.telemetry))
}

// patch changes the StatefulSet, or its status.
func (s *shardsUnderTest) patch(patch map[string]any, subresource ...string) {
	s.t.Helper()
	set := harness.Object(s.t, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: ksm, namespace: monitoring}}")
	s.cluster.Patch("statefulsets", set, patch, subresource...)
}

func (s *shardsUnderTest) scale(replicas int) {
	s.t.Helper()
	s.patch(map[string]any{"spec": map[string]any{"replicas": replicas}})
}

// watched is the result of continuous scrapes.
type watched struct {
	*shardsUnderTest
	// doubled counts the scrapes in which two shards exposed a pod.
	doubled map[string]int
}

// watch starts scraping: from now on every pod must be exposed by a shard.
func (s *shardsUnderTest) watch() *watched {
	w := &watched{s, map[string]int{}}
	// Shards use the shortest of the last three intervals between scrapes.
	for range 4 {
		w.scrape()
	}
	return w
}

// scrape returns the pods of each shard.
func (w *watched) scrape() [][]string {
	w.t.Helper()
	// From the end of the previous scrape: two in quick succession count as one.
	<-time.After(w.pause)
	together, shown := map[string]int{}, make([][]string, mostShards)
	for i, exporter := range w.exporters {
		var err error
		if shown[i], err = podsShown(exporter.Base, shardedNamespace); err != nil {
			w.t.Fatal(err)
		}
		slices.Sort(shown[i])
		for _, name := range shown[i] {
			if together[name]++; together[name] == 2 {
				w.doubled[name]++
			}
		}
	}
	if len(together) != shardedPods {
		w.t.Fatalf("%d of %d pods are shown: %d, %d and %d", len(together), shardedPods, len(shown[0]), len(shown[1]), len(shown[2]))
	}
	return shown
}

// settle scrapes until each shard exposes exactly its pods; no pod may have been exposed twice in more than one
// scrape.
func (w *watched) settle(total int) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("%d shards", total), func() error { return w.differs(w.scrape(), total) })
	for name, scrapes := range w.doubled {
		if scrapes > 1 {
			for _, exporter := range w.exporters {
				w.t.Log(exporter.Output())
			}
			w.t.Fatalf("%s is shown twice at %d scrapes on the way to %d shards", name, scrapes, total)
		}
	}
}

// differs describes the difference from the pods that the shards should expose.
func (w *watched) differs(shown [][]string, total int) error {
	for i := range w.exporters {
		if want := w.cluster.ShardOfPods(shardedNamespace, i, total); !slices.Equal(shown[i], want) {
			return fmt.Errorf("shard %d shows %d pods, not %d", i, len(shown[i]), len(want))
		}
	}
	return nil
}

// begin waits until the first shard exposes everything.
func (s *shardsUnderTest) begin() {
	s.t.Helper()
	harness.Eventually(s.t, "the first lists", func() error {
		shown, err := podsShown(s.exporters[0].Base, shardedNamespace)
		if err == nil && len(shown) != shardedPods {
			err = fmt.Errorf("%d pods", len(shown))
		}
		return err
	})
}

// TestAutosharding scales a StatefulSet under continuous scrapes: every scrape has every pod, at most one scrape has
// a pod twice, and finally none does. The pods have no addresses, so the shards cannot poll each other and use
// timers, which may differ by half a second before a scrape shows it.
func TestAutosharding(t *testing.T) {
	s := startSharded(t)
	s.pause = 2 * time.Second
	kubeconfig := s.kubeconfig(s.cluster.URL())
	for range mostShards {
		s.start(kubeconfig)
	}
	s.begin()
	for _, total := range []int{3, 2} {
		watched := s.watch()
		s.scale(total)
		watched.settle(total)
		for i, exporter := range s.exporters {
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

// TestAutoshardingPollsPeers has shards that poll each other, on separate addresses and the same port. A shard that
// cannot list delays all others beyond their own timers, and a later shard exposes nothing before the others are
// ready.
func TestAutoshardingPollsPeers(t *testing.T) {
	s := startSharded(t)
	s.pause = 200 * time.Millisecond
	kubeconfig, gate := s.kubeconfig(s.cluster.URL()), s.cluster.StartAPIGate(t)
	gated := s.cluster.KubeconfigWith(gate.URL, harness.AdminToken)
	s.startPolled(kubeconfig)
	s.startPolled(gated)
	s.begin()

	var refused atomic.Int32
	gate.Rule(func(r *http.Request) int {
		if harness.IsList(r) && strings.HasSuffix(r.URL.Path, "/pods") {
			refused.Add(1)
			return http.StatusServiceUnavailable
		}
		return 0
	})
	watched := s.watch()
	s.scale(2)
	harness.Eventually(t, "lists that are refused for long", func() error {
		if err := watched.differs(watched.scrape(), 1); err != nil {
			t.Fatal(err)
		}
		if got := refused.Load(); got < 7 {
			return fmt.Errorf("%d of them", got)
		}
		return nil
	})
	gate.Rule(nil)
	watched.settle(2)

	// A third pod is expected: the two are not sufficient.
	watched = s.watch()
	s.patch(map[string]any{"status": map[string]any{"replicas": 3, "readyReplicas": 2}}, "status")
	s.scale(3)
	s.startPolled(kubeconfig)
	watched.settle(3)
	watched = s.watch()
	s.scale(2)
	watched.settle(2)
}

// TestAutoshardingWithoutStatefulSet checks that startup fails for a pod without a StatefulSet, and that a pod whose name
// has no number exposes nothing, as in the original.
func TestAutoshardingWithoutStatefulSet(t *testing.T) {
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
