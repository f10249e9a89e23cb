package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"kstatd/e2e/harness"
)

// reference is an owner reference in YAML.
func reference(apiVersion, kind, name, uid string) string {
	return fmt.Sprintf("[{apiVersion: %s, kind: %s, name: %s, uid: %q, controller: true}]", apiVersion, kind, name, uid)
}

// TestWorkloadRuleEqualsTheMixin has a real Prometheus evaluate kubernetes-mixin's chain of joins and the recording rule
// that replaces it, on the objects of a real API server: they agree about every pod whose chain the mixin resolves, but
// for pods of CronJobs, which belong to the Job there.
func TestWorkloadRuleEqualsTheMixin(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	create := func(resource, apiVersion, kind, name, owners, spec string) string {
		created := cluster.Create(resource, harness.Object(t, fmt.Sprintf(
			"{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: shop, ownerReferences: %s}, spec: %s}", apiVersion, kind, name, owners, spec)))
		return string(created.GetUID())
	}
	const template = "{metadata: {labels: {app: x}}, spec: {restartPolicy: Always, containers: [{name: c, image: i}]}}"
	const replicated = "{replicas: 2, selector: {matchLabels: {app: x}}, template: " + template + "}"
	job := strings.ReplaceAll("{template: "+template+"}", "Always", "Never")
	deployment := create("deployments", "apps/v1", "Deployment", "web", "[]", replicated)
	stateful := create("statefulsets", "apps/v1", "StatefulSet", "db", "[]", strings.Replace(replicated, "{", "{serviceName: db, ", 1))
	daemon := create("daemonsets", "apps/v1", "DaemonSet", "agent", "[]", strings.Replace(replicated, "replicas: 2, ", "", 1))
	cron := create("cronjobs", "batch/v1", "CronJob", "nightly", "[]", "{schedule: '0 0 * * *', jobTemplate: {spec: "+job+"}}")
	ofDeployment := create("replicasets", "apps/v1", "ReplicaSet", "web-1", reference("apps/v1", "Deployment", "web", deployment), replicated)
	ofRollout := create("replicasets", "apps/v1", "ReplicaSet", "canary-1", reference("argoproj.io/v1alpha1", "Rollout", "canary", "7c4f1f1e-0000-4000-8000-000000000001"), replicated)
	alone := create("replicasets", "apps/v1", "ReplicaSet", "alone", "[]", replicated)
	ofCron := create("jobs", "batch/v1", "Job", "nightly-1", reference("batch/v1", "CronJob", "nightly", cron), job)
	once := create("jobs", "batch/v1", "Job", "once", "[]", job)
	want := map[string][2]string{}
	pod := func(name, owners, workload, kind string) {
		create("pods", "v1", "Pod", name, owners, "{containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}")
		want[name] = [2]string{workload, kind}
	}
	for i := range 2 {
		pod(fmt.Sprintf("web-1-%d", i), reference("apps/v1", "ReplicaSet", "web-1", ofDeployment), "web", "deployment")
		pod(fmt.Sprintf("db-%d", i), reference("apps/v1", "StatefulSet", "db", stateful), "db", "statefulset")
		pod(fmt.Sprintf("agent-%d", i), reference("apps/v1", "DaemonSet", "agent", daemon), "agent", "daemonset")
	}
	pod("canary-1-0", reference("apps/v1", "ReplicaSet", "canary-1", ofRollout), "canary", "rollout")
	pod("alone-0", reference("apps/v1", "ReplicaSet", "alone", alone), "alone", "replicaset")
	pod("nightly-1-0", reference("batch/v1", "Job", "nightly-1", ofCron), "nightly", "cronjob")
	pod("once-0", reference("batch/v1", "Job", "once", once), "once", "job")
	pod("bare", "[]", "bare", "barepod")
	pod("broker-0", reference("kafka.strimzi.io/v1", "StrimziPodSet", "broker", "7c4f1f1e-0000-4000-8000-000000000002"), "broker", "strimzipodset")

	port, telemetry := harness.FreePort(t), harness.FreePort(t)
	process := harness.Start(t, harness.KstatdRun(t), "--kubeconfig="+cluster.Kubeconfig, "--statsd.listen-udp=", "--statsd.listen-tcp=",
		fmt.Sprintf("--listen=127.0.0.1:%d", port), fmt.Sprintf("--telemetry-listen=127.0.0.1:%d", telemetry))
	harness.WaitStatus(t, process, fmt.Sprintf("http://127.0.0.1:%d/metrics", port), 200)
	p := startPrometheusWith(t, "1s", fmt.Sprintf("- {job_name: ours, honor_labels: true, static_configs: [{targets: ['127.0.0.1:%d']}]}\n", port))
	p.waitQuery(`count(kstatd_pod_workload_info{job="ours"})`, fmt.Sprint(len(want)))
	p.waitQuery(`count(kube_pod_owner{job="ours"})`, fmt.Sprint(len(want)))
	at := time.Now()
	type workload struct{ Namespace, Pod, Workload, Kind string }
	evaluate := func(expr string) []workload {
		lines, err := p.vector(expr, at)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		var found []workload
		for _, line := range lines {
			labels, value, _ := strings.Cut(line, "} ")
			var one map[string]string
			if err := json.Unmarshal([]byte(labels+"}"), &one); err != nil || value != "1" {
				t.Fatalf("%s: %v", line, err)
			}
			found = append(found, workload{one["namespace"], one["pod"], one["workload"], one["workload_type"]})
		}
		return found
	}

	text, err := os.ReadFile(mixin("rendered", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Record, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	rule := rules.Groups[0].Rules[0]
	ours := evaluate(rule.Expr)
	for _, one := range ours {
		if got := [2]string{one.Workload, one.Kind}; one.Namespace != "shop" || got != want[one.Pod] {
			t.Errorf("%s/%s: %v, not %v", one.Namespace, one.Pod, got, want[one.Pod])
		}
	}
	if len(ours) != len(want) {
		t.Errorf("%d pods of %d", len(ours), len(want))
	}

	var expressions []struct{ Name, Expr string }
	if text, err = os.ReadFile("testdata/expressions.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &expressions); err != nil {
		t.Fatal(err)
	}
	resolved := 0
	for _, each := range expressions {
		if !strings.HasPrefix(each.Name, rule.Record) {
			continue
		}
		for _, one := range evaluate(strings.ReplaceAll(each.Expr, "JOB", "ours")) {
			// The mixin does not resolve a ReplicaSet without an owner.
			if one.Workload == "" {
				continue
			}
			resolved++
			is := func(other workload) bool {
				return other.Namespace == one.Namespace && other.Pod == one.Pod && (other.Workload == one.Workload || other.Kind == "cronjob")
			}
			if !slices.ContainsFunc(ours, is) {
				t.Errorf("the mixin says %+v, and the rule\n%+v", one, ours)
			}
		}
	}
	if resolved != 9 {
		t.Errorf("the mixin resolves %d pods", resolved)
	}

	// Ownership changes are followed.
	orphan := harness.Object(t, "{apiVersion: v1, kind: Pod, metadata: {name: web-1-0, namespace: shop}}")
	cluster.Patch("pods", orphan, map[string]any{"metadata": map[string]any{"ownerReferences": []any{}}})
	p.waitQuery(`count(kstatd_pod_workload_info{pod="web-1-0",workload_type="barepod"})`, "1")
	p.waitQuery(`sum(kstatd_workload_pods{workload="web"})`, "1")
}
