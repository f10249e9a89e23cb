package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kstatd/e2e/harness"
)

// The families of the story.
const (
	terminations = "kstatd_workload_container_terminations_total"
	ends         = "kstatd_workload_pods_finished_total"
	jobEnds      = "kstatd_jobs_finished_total"
	transitions  = "kstatd_kube_node_condition_transitions_total"
)

// counts are counters by family and the values of their labels, without zeros.
type counts map[string]float64

func (c counts) add(values ...string) { c[strings.Join(values, " ")]++ }

// labelsOf parses the labels of a sample.
func labelsOf(sample string) (name string, labels map[string]string, value float64) {
	series, text, _ := strings.Cut(sample, "} ")
	name, list, _ := strings.Cut(series, "{")
	labels = map[string]string{}
	for label := range strings.SplitSeq(list, "\",") {
		key, value, _ := strings.Cut(strings.TrimSuffix(label, "\""), "=\"")
		labels[key] = value
	}
	value, _ = strconv.ParseFloat(text, 64)
	return name, labels, value
}

// key is the key of a counter of the story, "" for other series.
func key(name string, labels map[string]string) string {
	var names []string
	switch name {
	case terminations:
		names = []string{"workload_type", "workload", "container", "reason"}
	case ends, jobEnds:
		names = []string{"workload_type", "workload", "reason"}
	case transitions:
		names = []string{"node", "condition", "status"}
	default:
		return ""
	}
	values := []string{name}
	for _, name := range names {
		values = append(values, labels[name])
	}
	return strings.Join(values, " ")
}

// storyPod is a pod with one container.
type storyPod struct {
	object   *unstructured.Unstructured
	workload string // type and name
	restarts int
}

// story does what controllers, scheduler and kubelets do, and keeps the ledger of it.
type story struct {
	t       *testing.T
	cluster *harness.Cluster
	random  *rand.Rand
	ledger  counts
	// owners are the owner references by workload.
	owners map[string]string
	pods   []*storyPod
	made   int
	clock  time.Time
}

// create creates an object in the namespace of the story and returns its UID.
func (s *story) create(resource, apiVersion, kind, name, owners, spec string) string {
	s.t.Helper()
	return string(s.cluster.Create(resource, harness.Object(s.t, fmt.Sprintf(
		"{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: story, ownerReferences: %s}, spec: %s}", apiVersion, kind, name, owners, spec))).GetUID())
}

// newPod prepares a pod of a workload.
func (s *story) newPod(workload string) *storyPod {
	s.made++
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(workload, " ", "-"), s.made)
	spec := "{containers: [{name: main, image: i, resources: {requests: {cpu: 10m, memory: 5Mi}}}]}"
	if strings.HasPrefix(workload, "cronjob") {
		spec = strings.Replace(spec, "{", "{restartPolicy: Never, ", 1)
	}
	owners := s.owners[workload]
	if owners == "" {
		owners, workload = "[]", "barepod "+name
	}
	object := harness.Object(s.t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: story, ownerReferences: %s}, spec: %s}", name, owners, spec))
	object.Object["status"] = map[string]any{"phase": "Running", "containerStatuses": s.status(0, `{running: {}}`, `{}`)}
	return &storyPod{object: object, workload: workload}
}

// start creates a pod of a workload.
func (s *story) start(workload string) *storyPod {
	s.t.Helper()
	pod := s.newPod(workload)
	s.cluster.Create("pods", pod.object)
	s.pods = append(s.pods, pod)
	return pod
}

func (s *story) status(restarts int, state, last string) []any {
	status := harness.Object(s.t, fmt.Sprintf("{name: main, image: i, imageID: i, ready: true, restartCount: %d, state: %s, lastState: %s}", restarts, state, last))
	return []any{status.Object}
}

// patch changes the status of a pod.
func (s *story) patch(pod *storyPod, status map[string]any) {
	s.t.Helper()
	s.cluster.Patch("pods", pod.object, map[string]any{"status": status}, "status")
}

// ended is a terminated run of the container; the clock of the kubelet ticks.
func (s *story) ended(reason string, code int) string {
	s.clock = s.clock.Add(time.Second)
	at := s.clock.UTC().Format(time.RFC3339)
	return fmt.Sprintf("{terminated: {reason: %s, exitCode: %d, startedAt: %q, finishedAt: %q, containerID: 'containerd://%d'}}", reason, code, at, at, s.clock.Unix())
}

// crash lets the container of a pod end this often, quicker than the kubelet reports the last time, and run again.
func (s *story) crash(pod *storyPod, times int, slowly bool) {
	s.t.Helper()
	for n := range times {
		reason, code := "Error", 1
		switch s.random.Intn(3) {
		case 0:
			reason, code = "OOMKilled", 137
		case 1:
			reason, code = "Completed", 0
		}
		last := s.ended(reason, code)
		s.ledger.add(terminations, pod.workload, "main", reason)
		if n < times-1 {
			pod.restarts++
			continue
		}
		if slowly {
			s.patch(pod, map[string]any{"containerStatuses": s.status(pod.restarts, last, "{}")})
			s.patch(pod, map[string]any{"containerStatuses": s.status(pod.restarts, "{waiting: {reason: CrashLoopBackOff}}", last)})
		}
		pod.restarts++
		s.patch(pod, map[string]any{"containerStatuses": s.status(pod.restarts, "{running: {}}", last)})
	}
}

// remove deletes a pod; why is the reason of its end, "" if it has ended before.
func (s *story) remove(pod *storyPod, why string) {
	s.t.Helper()
	if why != "" {
		s.ledger.add(ends, pod.workload, why)
	}
	s.cluster.Delete("pods", pod.object)
	s.pods = slices.DeleteFunc(s.pods, func(other *storyPod) bool { return other == pod })
}

// replace lets the controller of a removed pod start another one.
func (s *story) replace(pod *storyPod) {
	s.t.Helper()
	if s.owners[pod.workload] != "" {
		s.start(pod.workload)
	}
}

// end ends a pod by its phase.
func (s *story) end(pod *storyPod, phase, reason string) {
	s.t.Helper()
	status := map[string]any{"phase": phase}
	if reason != "" {
		status["reason"] = reason
	}
	s.patch(pod, status)
	if reason == "" {
		reason = phase
	}
	s.ledger.add(ends, pod.workload, reason)
}

// disrupt is what a drain or a preemption does.
func (s *story) disrupt(pod *storyPod, reason, counted string) {
	s.t.Helper()
	s.patch(pod, map[string]any{"conditions": []any{map[string]any{"type": "DisruptionTarget", "status": "True", "reason": reason}}})
	s.remove(pod, counted)
	s.replace(pod)
}

// step does something to a random pod. With `gap` it does only what the API still shows after the watches have been cut.
func (s *story) step(gap bool) {
	s.t.Helper()
	pod := s.pods[s.random.Intn(len(s.pods))]
	times := 1
	if s.random.Intn(5) == 0 {
		times = 1 + s.random.Intn(3)
	}
	if strings.HasPrefix(pod.workload, "cronjob") {
		return
	}
	switch action := s.random.Intn(20); {
	case gap || action < 12:
		s.crash(pod, times, !gap && action%2 == 0)
	case action < 14:
		s.end(pod, "Failed", "Evicted")
		s.remove(pod, "")
		s.replace(pod)
	case action < 15:
		s.disrupt(pod, "EvictionByEvictionAPI", "EvictionByEvictionAPI")
	case action < 16:
		s.disrupt(pod, "PreemptionByScheduler", "Preempted")
	case action < 17:
		s.end(pod, "Failed", "")
		s.remove(pod, "")
		s.replace(pod)
	default:
		s.remove(pod, "Deleted")
		s.replace(pod)
	}
}

// rollout replaces the ReplicaSet of a Deployment and its pods.
func (s *story) rollout(deployment, uid string) {
	s.t.Helper()
	workload := "deployment " + deployment
	s.made++
	name := fmt.Sprintf("%s-r%d", deployment, s.made)
	set := s.create("replicasets", "apps/v1", "ReplicaSet", name, reference("apps/v1", "Deployment", deployment, uid), replicaSpec)
	s.owners[workload] = reference("apps/v1", "ReplicaSet", name, set)
	for _, pod := range slices.Clone(s.pods) {
		if pod.workload == workload {
			s.start(workload)
			s.remove(pod, "Deleted")
		}
	}
}

// transition changes the condition of a node.
func (s *story) transition(node, status string) {
	s.t.Helper()
	s.clock = s.clock.Add(time.Second)
	object := harness.Object(s.t, fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}}", node))
	s.cluster.Patch("nodes", object, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": status, "lastTransitionTime": s.clock.UTC().Format(time.RFC3339),
	}}}}, "status")
	s.ledger.add(transitions, node, "Ready", strings.ToLower(status))
}

const replicaSpec = "{replicas: 1, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: main, image: i}]}}}"

// storyCounts are the counters of a scrape that the story knows.
func storyCounts(url string) (counts, error) {
	e, err := harness.Scrape(url, "")
	if err != nil {
		return nil, err
	}
	if err := sumsOfPods(e); err != nil {
		return nil, err
	}
	all := counts{}
	for _, sample := range e.Samples {
		name, labels, value := labelsOf(sample)
		if key := key(name, labels); key != "" && value != 0 {
			all[key] = value
		}
	}
	return all, nil
}

// sumsOfPods compares the totals of a scrape with the sums over its pods. A pod that is shown before its owner has no workload yet.
func sumsOfPods(e harness.Exposition) error {
	workloads, want, have := map[string]string{}, counts{}, counts{}
	for _, sample := range e.Samples {
		if name, labels, _ := labelsOf(sample); name == "kstatd_pod_workload_info" {
			workloads[labels["uid"]] = labels["workload_type"] + " " + labels["workload"]
		}
	}
	for _, sample := range e.Samples {
		name, labels, value := labelsOf(sample)
		workload, known := workloads[labels["uid"]]
		switch name {
		case "kube_pod_status_phase":
			if known {
				want[workload+" "+labels["phase"]] += value
			}
		case "kube_pod_container_resource_requests":
			if known {
				want[workload+" "+labels["resource"]] += value
			}
		case "kstatd_workload_pods":
			have[labels["workload_type"]+" "+labels["workload"]+" "+labels["phase"]] += value
		case "kstatd_workload_resource_requests":
			have[labels["workload_type"]+" "+labels["workload"]+" "+labels["resource"]] += value
		}
	}
	for _, sums := range []counts{want, have} {
		maps.DeleteFunc(sums, func(_ string, value float64) bool { return value == 0 })
	}
	if !maps.EqualFunc(want, have, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a) }) {
		return fmt.Errorf("totals %v are not the sums %v", have, want)
	}
	return nil
}

// balance compares counters with the ledger: equal, or what is missing has the reason `unknown`.
func (s *story) balance(have counts) error {
	missing := counts{}
	total := func(key string) string { return key[:strings.LastIndex(key, " ")] }
	for key, want := range s.ledger {
		if have[key] > want {
			return fmt.Errorf("%s is %v, it happened %v times", key, have[key], want)
		}
		missing[total(key)] += want - have[key]
	}
	for key, count := range have {
		if strings.HasSuffix(key, " unknown") && !strings.HasPrefix(key, transitions) {
			missing[total(key)] -= count
		} else if s.ledger[key] < count {
			return fmt.Errorf("%s is %v, it happened %v times", key, count, s.ledger[key])
		}
	}
	for key, count := range missing {
		if count != 0 {
			return fmt.Errorf("%s: %v are missing", key, count)
		}
	}
	return nil
}

// TestStoryOfEvents has 300 pods on a real API server crash, be killed, evicted, rolled out and deleted, with cut
// watches and expired versions in between, and a restart of kstatd. Its counters equal the ledger of the story, or the
// difference has the reason `unknown`; totals equal sums at every scrape; and a real Prometheus computes `increase()`
// as what happened.
func TestStoryOfEvents(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	proxy := harness.StartProxy(t, cluster)
	s := &story{t: t, cluster: cluster, random: rand.New(rand.NewSource(28)), ledger: counts{}, owners: map[string]string{}, clock: time.Now()}
	deployments := map[string]string{}
	for i := range 4 {
		name := fmt.Sprintf("web%d", i)
		uid := s.create("deployments", "apps/v1", "Deployment", name, "[]", replicaSpec)
		set := s.create("replicasets", "apps/v1", "ReplicaSet", name+"-r0", reference("apps/v1", "Deployment", name, uid), replicaSpec)
		deployments[name] = uid
		s.owners["deployment "+name] = reference("apps/v1", "ReplicaSet", name+"-r0", set)
	}
	stateful := s.create("statefulsets", "apps/v1", "StatefulSet", "db", "[]", strings.Replace(replicaSpec, "{", "{serviceName: db, ", 1))
	s.owners["statefulset db"] = reference("apps/v1", "StatefulSet", "db", stateful)
	daemon := s.create("daemonsets", "apps/v1", "DaemonSet", "agent", "[]", strings.Replace(replicaSpec, "replicas: 1, ", "", 1))
	s.owners["daemonset agent"] = reference("apps/v1", "DaemonSet", "agent", daemon)
	canary := s.create("replicasets", "apps/v1", "ReplicaSet", "canary-r0", reference("argoproj.io/v1alpha1", "Rollout", "canary", "7c4f1f1e-0000-4000-8000-000000000001"), replicaSpec)
	s.owners["rollout canary"] = reference("apps/v1", "ReplicaSet", "canary-r0", canary)
	s.owners["strimzipodset broker"] = reference("kafka.strimzi.io/v1", "StrimziPodSet", "broker", "7c4f1f1e-0000-4000-8000-000000000002")
	jobSpec := "{template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}}"
	cron := s.create("cronjobs", "batch/v1", "CronJob", "nightly", "[]", "{schedule: '0 0 * * *', jobTemplate: {spec: "+jobSpec+"}}")
	job := func(name string) {
		uid := s.create("jobs", "batch/v1", "Job", name, reference("batch/v1", "CronJob", "nightly", cron), jobSpec)
		s.owners["cronjob nightly"] = reference("batch/v1", "Job", name, uid)
	}
	job("nightly-0")
	for _, node := range []string{"n0", "n1"} {
		node := harness.Object(t, "{apiVersion: v1, kind: Node, metadata: {name: "+node+"}, status: {conditions: [{type: Ready, status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z'}]}}")
		cluster.Create("nodes", node)
	}
	var created sync.WaitGroup
	queue := make(chan *storyPod)
	for range 8 {
		created.Go(func() {
			for pod := range queue {
				if _, err := cluster.TryCreate("pods", pod.object); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for workload, pods := range map[string]int{
		"deployment web0": 50, "deployment web1": 50, "deployment web2": 40, "deployment web3": 20, "statefulset db": 30, "daemonset agent": 30,
		"rollout canary": 40, "strimzipodset broker": 20, "cronjob nightly": 10, "barepod": 10,
	} {
		for range pods {
			pod := s.newPod(workload)
			s.pods = append(s.pods, pod)
			queue <- pod
		}
	}
	close(queue)
	created.Wait()
	if t.Failed() || len(s.pods) != 300 {
		t.Fatal(len(s.pods), "pods")
	}

	port, telemetry := harness.FreePort(t), harness.FreePort(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/metrics", port)
	start := func() *harness.Process {
		process := harness.Start(t, harness.KstatdRun(t), "--apiserver="+proxy.URL, "--kubeconfig="+cluster.KubeconfigWith(proxy.URL, harness.AdminToken),
			"--statsd.listen-udp=", "--statsd.listen-tcp=", fmt.Sprintf("--listen=127.0.0.1:%d", port), fmt.Sprintf("--telemetry-listen=127.0.0.1:%d", telemetry))
		harness.WaitStatus(t, process, url, 200)
		return process
	}
	process := start()
	p := startPrometheusWith(t, "1s", fmt.Sprintf("- {job_name: ours, honor_labels: true, static_configs: [{targets: ['127.0.0.1:%d']}]}\n", port))
	scraped := func() (at time.Time) {
		// Everything until now has been scraped.
		since := time.Now()
		harness.Eventually(t, "a scrape", func() error {
			// Of an expression, timestamp() is the time of the evaluation.
			lines, err := p.vector(`timestamp(scrape_samples_scraped{job="ours"}) and scrape_samples_scraped > 0`, time.Now())
			if err != nil || len(lines) != 1 {
				return fmt.Errorf("%v %v", lines, err)
			}
			_, text, _ := strings.Cut(lines[0], " ")
			seconds, err := strconv.ParseFloat(text, 64)
			at = time.UnixMilli(int64(math.Round(seconds * 1000)))
			if err != nil || !at.After(since) {
				return fmt.Errorf("the last one was at %v: %v", at, err)
			}
			return nil
		})
		return at
	}
	p.waitQuery(fmt.Sprintf("count(%s{reason=~'OOMKilled|Error|Completed'} == 0)", terminations), fmt.Sprint(3*19))
	scraped()
	have := counts{}
	balanced := func() {
		t.Helper()
		harness.Eventually(t, "the ledger balances", func() (err error) {
			if have, err = storyCounts(url); err != nil {
				return err
			}
			return s.balance(have)
		})
	}
	for round := range 6 {
		for range 25 {
			s.step(false)
		}
		s.transition(fmt.Sprintf("n%d", round%2), []string{"False", "Unknown", "True"}[round/2])
		switch round {
		case 0, 3: // Watches resume where they were cut.
			proxy.CutAll()
		case 1, 4: // Versions expire while the watches are cut: everything is listed again.
			balanced()

			proxy.Set(expired, harness.Fault{Hold: true, Only: harness.IsList})
			proxy.CutAll()
			for range 25 {
				s.step(true)
			}
			requests := proxy.Requests()
			proxy.Set()
			balanced()
			// Each of the 29 kinds is checked, listed in pages and watched again, and watches over HTTP/1.1 are retried.
			if made := proxy.Requests() - requests; made > 200 {
				t.Errorf("%d requests after the gap", made)
			}
		case 2:
			s.rollout("web3", deployments["web3"])
		}
		if _, err := storyCounts(url); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range slices.Clone(s.pods) {
		if strings.HasPrefix(pod.workload, "cronjob") {
			s.ledger.add(terminations, pod.workload, "main", "Completed")
			s.patch(pod, map[string]any{"phase": "Succeeded", "containerStatuses": s.status(0, s.ended("Completed", 0), "{}")})
			s.ledger.add(ends, pod.workload, "Succeeded")
		}
	}
	nightly := harness.Object(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: nightly-0, namespace: story}}")
	now := time.Now().UTC().Format(time.RFC3339)
	cluster.Patch("jobs", nightly, map[string]any{"status": map[string]any{"startTime": now, "completionTime": now, "conditions": []any{
		map[string]any{"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached"},
		map[string]any{"type": "Complete", "status": "True", "reason": "CompletionsReached"},
	}}}, "status")
	s.ledger.add(jobEnds, "cronjob nightly", "Complete")
	balanced()
	scraped()
	first := have

	// After a restart, counters begin at 0, and only what happens from then on counts.
	process.Stop()
	start()
	s.ledger = counts{}
	p.waitQuery(fmt.Sprintf("count(%s{workload_type!='barepod',reason=~'OOMKilled|Error|Completed'} == 0)", terminations), fmt.Sprint(3*9))
	scraped()
	for range 60 {
		s.step(false)
	}
	balanced()
	at := scraped()
	want := counts{}
	for _, part := range []counts{first, have} {
		for key, count := range part {
			want[key] += count
		}
	}
	increases := 0
	for _, family := range []string{terminations, ends, jobEnds, transitions} {
		// The series of these reasons exist from the beginning.
		query := fmt.Sprintf(`increase(%s{reason=~"|OOMKilled|Error|Completed|Evicted|Failed|Succeeded|Complete"}[1h])`, family)
		lines, err := p.vector(query, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			text, value, _ := strings.Cut(line, "} ")
			labels := map[string]string{}
			if err := json.Unmarshal([]byte(text+"}"), &labels); err != nil {
				t.Fatal(err)
			}
			increase, _ := strconv.ParseFloat(value, 64)
			key := key(family, labels)
			if strings.Contains(key, "barepod") {
				continue // They begin and end in the middle.
			}
			if math.Abs(increase-want[key]) > 1e-6 {
				t.Errorf("increase of %s is %v, it happened %v times", key, increase, want[key])
			}
			if increase > 0 {
				increases++
			}
		}
	}
	if increases < 30 {
		t.Errorf("%d counters have increased", increases)
	}
}

// eventCounts are the counters of Kubernetes Events.
func eventCounts(url string) (counts, error) {
	e, err := harness.Scrape(url, "")
	if err != nil {
		return nil, err
	}
	all := counts{}
	for _, sample := range e.Samples {
		// The API server may record one about its own Service.
		if name, l, value := labelsOf(sample); name == "kstatd_kube_events_total" && l["involved_kind"] != "Service" {
			all[fmt.Sprintf("%s %s %s %s/%s", l["involved_kind"], l["reason"], l["type"], l["workload_type"], l["workload"])] = value
		}
	}
	return all, nil
}

// TestKubernetesEvents has both APIs of a real API server record events, with counts and series, over cut watches,
// expired versions and a restart of the API server: each occurrence counts once, for the workload of its object.
func TestKubernetesEvents(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	proxy := harness.StartProxy(t, cluster)
	s := &story{t: t, cluster: cluster, random: rand.New(rand.NewSource(1)), ledger: counts{}, owners: map[string]string{}, clock: time.Now()}
	deployment := s.create("deployments", "apps/v1", "Deployment", "web", "[]", replicaSpec)
	set := s.create("replicasets", "apps/v1", "ReplicaSet", "web-r0", reference("apps/v1", "Deployment", "web", deployment), replicaSpec)
	s.owners["deployment web"] = reference("apps/v1", "ReplicaSet", "web-r0", set)
	pod := s.start("deployment web").object
	ctx := context.Background()
	old := cluster.Typed.CoreV1().Events("story")
	recent := cluster.Typed.EventsV1().Events("story")
	live, err := cluster.Resource("pods", pod).Get(ctx, pod.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ofPod := corev1.ObjectReference{Kind: "Pod", Namespace: "story", Name: live.GetName(), UID: live.GetUID()}
	count := func(name string, of corev1.ObjectReference, reason string, count int32) {
		t.Helper()
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "story"}, InvolvedObject: of, Reason: reason, Type: "Warning", Count: count,
			FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now()}
		found, err := old.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			event.ResourceVersion = found.ResourceVersion
			_, err = old.Update(ctx, event, metav1.UpdateOptions{})
		} else {
			_, err = old.Create(ctx, event, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	series := func(name string, of corev1.ObjectReference, reason string, repeated int32) {
		t.Helper()
		event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "story"}, EventTime: metav1.NowMicro(), Regarding: of, Reason: reason, Type: "Normal",
			Action: "Do", ReportingController: "e2e", ReportingInstance: "e2e-0"}
		found, err := recent.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			found.Series = &eventsv1.EventSeries{Count: repeated, LastObservedTime: metav1.NowMicro()}
			_, err = recent.Update(ctx, found, metav1.UpdateOptions{})
		} else {
			_, err = recent.Create(ctx, event, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	count("before", ofPod, "BackOff", 40)

	port, telemetry := harness.FreePort(t), harness.FreePort(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/metrics", port)
	args := []string{"--kubeconfig=" + cluster.KubeconfigWith(proxy.URL, harness.AdminToken), "--statsd.listen-udp=", "--statsd.listen-tcp=",
		fmt.Sprintf("--listen=127.0.0.1:%d", port), fmt.Sprintf("--telemetry-listen=127.0.0.1:%d", telemetry)}
	process := harness.Start(t, harness.KstatdRun(t), append(args, "--kubernetes-events", "--resources=pods,replicasets,jobs,deployments,nodes")...)
	harness.WaitStatus(t, process, url, 200)
	is := func(what string, want counts) {
		t.Helper()
		harness.Eventually(t, what, func() error {
			have, err := eventCounts(url)
			if err == nil && !maps.Equal(have, want) {
				err = fmt.Errorf("%v, they should be %v", have, want)
			}
			return err
		})
	}
	is("old events do not count", counts{})
	count("before", ofPod, "BackOff", 43)
	series("a", ofPod, "Pulled", 0)
	ofNode := corev1.ObjectReference{Kind: "Node", Name: "n0", UID: "n0"}
	node := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "node", Namespace: "default"}, InvolvedObject: ofNode, Reason: "Rebooted", Type: "Warning", Count: 2}
	if _, err := cluster.Typed.CoreV1().Events("default").Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := counts{"Pod BackOff Warning deployment/web": 3, "Pod Pulled Normal deployment/web": 1, "Node Rebooted Warning /": 2}
	is("the first events", want)

	// Updates during a gap, after which everything is listed again.

	proxy.Set(expired, harness.Fault{Hold: true, Only: harness.IsList})
	proxy.CutAll()
	series("a", ofPod, "Pulled", 4)
	count("before", ofPod, "BackOff", 50)
	count("gap", ofPod, "Failed", 7)
	requests := proxy.Requests()
	proxy.Set()
	want["Pod BackOff Warning deployment/web"], want["Pod Pulled Normal deployment/web"], want["Pod Failed Warning deployment/web"] = 10, 4, 7
	is("a gap", want)
	if made := proxy.Requests() - requests; made > 6*10 {
		t.Errorf("%d requests after the gap", made)
	}
	for range 3 {
		proxy.CutAll()
		series("a", ofPod, "Pulled", int32(want["Pod Pulled Normal deployment/web"])+1)
		want["Pod Pulled Normal deployment/web"]++
		is("a cut", want)
	}
	// An event is deleted and recorded again, and the API server restarts.
	if err := old.Delete(ctx, "gap", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	count("gap", ofPod, "Failed", 2)
	want["Pod Failed Warning deployment/web"] = 9
	is("a new event of the same name", want)
	cluster.Stop()
	cluster.Start()
	count("before", ofPod, "BackOff", 51)
	want["Pod BackOff Warning deployment/web"]++
	is("a restart of the API server", want)
	process.Stop()

	// While events are forbidden, everything else continues, and the kind is named. What happened until then is old.
	proxy.Set(harness.Fault{Status: 403, Only: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/events") }})
	requests = proxy.Requests()
	refused := harness.Start(t, harness.KstatdRun(t), append(args, "--kubernetes-events", "--resources=pods,replicasets", "--gate-metrics-until-synced=false")...)
	harness.WaitStatus(t, refused, url, 200)
	harness.Eventually(t, "the kind is named", func() error {
		e, err := harness.Scrape(url, "")
		if err != nil {
			return err
		}
		if _, found := e.Value(`kstatd_workload_container_terminations_total{namespace="story",workload="web",workload_type="deployment",container="main",reason="Error"}`); !found {
			return fmt.Errorf("no counters of terminations")
		}
		ready, err := harness.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz?verbose", telemetry))
		if err == nil && !strings.Contains(ready.Body, "[-]kubernetes/events") {
			err = fmt.Errorf("%s", ready.Body)
		}
		return err
	})
	count("before", ofPod, "BackOff", 60)
	// Three kinds are listed and watched, and the backoff after a 403 is up to 8 s.
	if made := proxy.Requests() - requests; made > 30 {
		t.Errorf("%d requests while events are forbidden", made)
	}
	proxy.Set()
	harness.Eventually(t, "events are listed", func() error {
		ready, err := harness.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz?verbose", telemetry))
		if err == nil && !strings.Contains(ready.Body, "[+]kubernetes/events") {
			err = fmt.Errorf("%s", ready.Body)
		}
		return err
	})
	is("events before their first list are old", counts{})
	count("before", ofPod, "BackOff", 62)
	is("events after it", counts{"Pod BackOff Warning deployment/web": 2})
	refused.Stop()

	quiet := harness.Start(t, harness.KstatdRun(t), append(args, "--resources=pods")...)
	harness.WaitStatus(t, quiet, url, 200)
	is("events are not counted without the flag", counts{})
}
