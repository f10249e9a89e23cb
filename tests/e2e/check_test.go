package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// checkResult is one line of `kstatd check`.
type checkResult struct{ Result, Text, Hint, Page string }

// checked runs `kstatd check` and returns its exit code and the checks that are not ok.
func checked(t *testing.T, kubeconfig string, args ...string) (int, []checkResult) {
	t.Helper()
	args = append([]string{"check", "-o", "json", "--kubeconfig", kubeconfig}, args...)
	code, stdout, stderr := harness.Run(t, harness.Kstatd(t), "", args...)
	var report struct {
		Sections []struct{ Checks []checkResult }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: exit code %d: %v\n%s%s", args, code, err, stdout, stderr)
	}
	var found []checkResult
	checks := 0
	for _, section := range report.Sections {
		for _, check := range section.Checks {
			checks++
			if check.Result != "ok" {
				found = append(found, check)
			}
		}
	}
	if checks < 2 {
		t.Fatalf("%v: only %d checks: %s", args, checks, stdout)
	}
	return code, found
}

// objectsOf parses the documents of a manifest.
func objectsOf(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		all = append(all, harness.Object(t, document))
	}
	return all
}

// resourceName is the plural of a kind, also of the operator's.
func resourceName(o *unstructured.Unstructured) string {
	return strings.ToLower(o.GetKind()) + "s"
}

// planted is a difference in the manifest of the originals.
type planted struct {
	Name, From, To, Result string
	Parts                  []string
}

// TestCheckBeforeTheSwap finds the originals in a real cluster from their manifests. The clean ones have no objections;
// planted differences are reported, and nothing else: by an administrator, whom the API server tells the rights of the
// service account, and by a caller who may only read, who has rights that prove nothing.
func TestCheckBeforeTheSwap(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	for plural, kind := range map[string]string{"servicemonitors": "ServiceMonitor", "podmonitors": "PodMonitor", "scrapeconfigs": "ScrapeConfig", "prometheusrules": "PrometheusRule"} {
		version := "v1"
		if kind == "ScrapeConfig" {
			version = "v1alpha1"
		}
		cluster.Create("customresourcedefinitions", harness.Object(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: %[2]s, plural: %[1]s}
  scope: Namespaced
  versions:
  - {name: %[3]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, plural, kind, version)))
	}
	manifest, err := os.ReadFile(harness.RepoFile("tests", "data", "check", "original.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var differences []planted
	text, err := os.ReadFile(harness.RepoFile("tests", "data", "check", "planted.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &differences); err != nil || len(differences) < 10 {
		t.Fatalf("%d differences: %v", len(differences), err)
	}
	apply := func(text string) {
		for _, o := range objectsOf(t, text) {
			harness.Eventually(t, o.GetKind(), func() error {
				client := cluster.Resource(resourceName(o), o)
				if o.GetKind() == "Namespace" || o.GetKind() == "CustomResourceDefinition" {
					if _, err := client.Get(context.Background(), o.GetName(), metav1.GetOptions{}); err == nil {
						return nil
					}
				}
				_ = client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
				_, err := cluster.TryCreate(resourceName(o), o)
				return err
			})
		}
	}
	reader := cluster.KubeconfigWith("", cluster.ServiceAccountToken("reader", `[{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}]`))
	apply(string(manifest))
	for name, kubeconfig := range map[string]string{"administrator": cluster.Kubeconfig, "reader": reader} {
		if code, found := checked(t, kubeconfig, "--pre"); code != 0 || len(found) != 0 {
			t.Errorf("%s: exit code %d, objections to clean originals: %+v", name, code, found)
		}
	}
	changed := string(manifest)
	for _, one := range differences {
		if strings.Count(changed, one.From) != 1 {
			t.Fatalf("%s: its text occurs %d times", one.Name, strings.Count(changed, one.From))
		}
		changed = strings.Replace(changed, one.From, one.To, 1)
	}
	apply(changed)
	for name, kubeconfig := range map[string]string{"administrator": cluster.Kubeconfig, "reader": reader} {
		code, found := checked(t, kubeconfig, "--pre", "-n", "monitoring")
		if code != 1 || len(found) != len(differences) {
			t.Errorf("%s: exit code %d, %d of %d differences: %+v", name, code, len(found), len(differences), found)
		}
		for _, one := range differences {
			reported := 0
			for _, check := range found {
				is := check.Result == one.Result
				for _, part := range one.Parts {
					is = is && strings.Contains(check.Text+"\n"+check.Hint+"\n"+check.Page, part)
				}
				if is {
					reported++
				}
			}
			if reported != 1 {
				t.Errorf("%s: %s is reported %d times: %+v", name, one.Name, reported, found)
			}
		}
	}
	// Without roles and bindings, and without reviews, nothing is known about the rights.
	blind := cluster.KubeconfigWith("", cluster.ServiceAccountToken("blind", `[{apiGroups: ["", apps, apiextensions.k8s.io, monitoring.coreos.com], resources: ["*"], verbs: [get, list]}]`))
	if _, found := checked(t, blind, "--pre", "-n", "monitoring", "deploy/kube-state-metrics"); !strings.Contains(fmt.Sprint(found), "{warning not known: ") ||
		strings.Contains(fmt.Sprint(found), "may not watch") {
		t.Errorf("blind: %+v", found)
	}
	// A caller who may not list anything is told so.
	nobody := cluster.KubeconfigWith("", cluster.ServiceAccountToken("nobody", "[]"))
	code, stdout, _ := harness.Run(t, harness.Kstatd(t), "", "check", "--pre", "--kubeconfig", nobody)
	if code != 1 || !strings.Contains(stdout, "! not read: /apis/apps/v1/deployments: 403") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	code, _, stderr := harness.Run(t, harness.Kstatd(t), "", "check", "--kubeconfig", cluster.Kubeconfig, "--context", "absent")
	if code != 2 || !strings.Contains(stderr, "there is no context: absent") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// standIn starts a server for the last hop of the API server's proxy to a pod on this host, which has no address in the
// cluster, and returns a kubeconfig for it.
func standIn(t *testing.T, cluster *harness.Cluster, pod, token string, ports ...int) string {
	t.Helper()
	api, err := url.Parse(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(api)
	forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, port := range ports {
			if path, found := strings.CutPrefix(r.URL.Path, fmt.Sprintf("/api/v1/namespaces/%s:%d/proxy", pod, port)); found {
				r.URL.Path = path
				httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}).ServeHTTP(w, r)
				return
			}
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return cluster.KubeconfigWith(server.URL, token)
}

// TestCheckAfterTheSwap reports the health of a pod, which is reached through the API server: all well, and after its
// access to a kind has ended.
func TestCheckAfterTheSwap(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	rules := func(verbs string) string {
		return `[{apiGroups: [""], resources: [pods], verbs: [list, watch]}, {apiGroups: [""], resources: [nodes], verbs: [` + verbs + `]}]`
	}
	web, telemetry := harness.FreePort(t), harness.FreePort(t)
	token := cluster.ServiceAccountToken("kstatd", rules("list, watch"))
	process := harness.Start(t, harness.OurKubeStateMetrics(t), "--kubeconfig", cluster.KubeconfigWith("", token), "--resources=pods,nodes",
		"--host=127.0.0.1", "--telemetry-host=127.0.0.1", fmt.Sprint("--port=", web), fmt.Sprint("--telemetry-port=", telemetry))
	harness.WaitStatus(t, process, fmt.Sprintf("http://127.0.0.1:%d/readyz?verbose", telemetry), 200)
	for _, text := range []string{fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: kstatd, namespace: e2e-access}
spec:
  replicas: 1
  selector: {matchLabels: {app: kube-state-metrics}}
  template:
    metadata: {labels: {app: kube-state-metrics}}
    spec:
      serviceAccountName: kstatd
      containers:
      - {name: kube-state-metrics, image: "registry.example.com/kstatd/kube-state-metrics:1", args: [--port=%d, --telemetry-port=%d, "--resources=pods,nodes"]}
status: {replicas: 1, readyReplicas: 1}
`, web, telemetry), `
apiVersion: v1
kind: Pod
metadata: {name: kstatd-1, namespace: e2e-access, labels: {app: kube-state-metrics}}
spec: {containers: [{name: c, image: i}]}
`} {
		o := harness.Object(t, text)
		cluster.Create(resourceName(o), o)
	}
	kubeconfig := standIn(t, cluster, "e2e-access/pods/kstatd-1", harness.AdminToken, web)
	code, stdout, stderr := harness.Run(t, harness.Kstatd(t), "", "check", "--kubeconfig", kubeconfig)
	for _, line := range []string{"pod kstatd-1: its state is OK", "1 of 1 pods are ready", "pod kstatd-1: 2 of 2 kinds are synced", "has all 4 rights that these flags need (reviewed by the API server)"} {
		if code != 0 || !strings.Contains(stdout, "√ "+line+"\n") {
			t.Errorf("exit code %d, no %q: %s%s", code, line, stdout, stderr)
		}
	}
	role := harness.Object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: kstatd}, rules: "+rules("list")+"}")
	if _, err := cluster.Resource("clusterroles", role).Update(context.Background(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the missing right is reported", func() error {
		code, found := checked(t, kubeconfig, "-n", "e2e-access", "deploy/kstatd")
		if code != 1 || !strings.Contains(fmt.Sprint(found), "may not watch nodes") {
			return fmt.Errorf("exit code %d: %+v", code, found)
		}
		return nil
	})
	process.Stop()
	if code, found := checked(t, kubeconfig); code != 1 || !strings.Contains(fmt.Sprint(found), "pod kstatd-1: no status: 502") {
		t.Errorf("exit code %d: %+v", code, found)
	}
}
