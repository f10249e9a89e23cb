package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// release is an installed release of the chart on a real API server.
type release struct {
	t       *testing.T
	cluster *harness.Cluster
	name    string
}

// upgrade installs the release, or upgrades it to these values, and returns what helm prints if it fails.
func (r release) upgrade(values string) string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(harness.Tool(r.t, "helm"), "upgrade", "--install", r.name, harness.RepoFile("deploy", "helm", "kstatd"),
		"--kubeconfig="+r.cluster.Kubeconfig, "--namespace=upgrades", "--create-namespace", "--values="+file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return stderr.String()
	}
	return ""
}

// service returns the main Service of the release.
func (r release) service(name string) *corev1.Service {
	r.t.Helper()
	service, err := r.cluster.Typed.CoreV1().Services("upgrades").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return service
}

// TestHelmUpgrades upgrades a release from each layout to each other one: nothing that the API server does not let change is in
// the way. The Service keeps its address, or stays headless.
func TestHelmUpgrades(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	layouts := map[string]string{
		"one": "", "standby": "standby: true\nreplicas: 2\n", "shards": "autosharding: {enabled: true}\nreplicas: 2\n", "nodes": "daemonset: {enabled: true}\n",
	}
	// Each ordered pair once.
	path := []string{"standby", "shards", "standby", "nodes", "standby", "one", "shards", "one", "nodes", "shards", "nodes", "one", "standby"}
	for _, personality := range []string{"run", "kube-state-metrics"} {
		for _, first := range []string{"one", "shards"} {
			r := release{t, cluster, first + "-" + personality[:1] + "-kstatd"}
			values := "personality: " + personality + "\nfullnameOverride: " + r.name + "\n"
			before := ""
			for _, layout := range append([]string{first}, path...) {
				if message := r.upgrade(values + layouts[layout]); message != "" {
					t.Fatalf("%s, first %s: no upgrade to %s: %s", personality, first, layout, message)
				}
				now := r.service(r.name).Spec.ClusterIP
				if before == "" {
					before = now
				}
				if now != before || (now == corev1.ClusterIPNone) != (first == "shards") {
					t.Errorf("%s, first %s: with %s the address of the Service is %s, it was %s", personality, first, layout, now, before)
				}
			}
		}
	}
}

// TestHelmUpgradesRefused has changes that the API server allows no upgrade to make: the message names the value and what to do.
func TestHelmUpgradesRefused(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	for name, test := range map[string]struct{ before, after, message string }{
		"labels":  {"", "nameOverride: other\n", "kubectl -n upgrades delete deployment labels-kstatd"},
		"address": {"", "service: {clusterIP: 10.0.0.77}\n", "kubectl -n upgrades delete service address-kstatd"},
		"outside": {"autosharding: {enabled: true}\n", "service: {type: NodePort}\n", "service.type: the cluster IP of Service outside-kstatd is None"},
		"role":    {"", "rbac: {useExistingRole: view}\n", "kubectl delete clusterrolebinding role-kstatd"},
		"roles": {
			"rbac: {useClusterRole: false}\nnamespaces: upgrades\ncollectors: [pods]\npersonality: kube-state-metrics\n",
			"rbac: {useClusterRole: false, useExistingRole: view}\nnamespaces: upgrades\ncollectors: [pods]\npersonality: kube-state-metrics\n",
			"kubectl -n upgrades delete rolebinding roles-kstatd",
		},
		"program": {"autosharding: {enabled: true}\n", "autosharding: {enabled: true}\npersonality: kube-state-metrics\n", "kubectl -n upgrades delete statefulset program-kstatd"},
	} {
		r := release{t, cluster, name}
		values := "fullnameOverride: " + name + "-kstatd\n"
		if message := r.upgrade(values + test.before); message != "" {
			t.Fatalf("%s: %s", name, message)
		}
		if message := r.upgrade(values + test.after); !strings.Contains(message, test.message) {
			t.Errorf("%s: the message should say %q: %s", name, test.message, message)
		}
		// The release still has its values.
		if message := r.upgrade(values + test.before); message != "" {
			t.Errorf("%s: %s", name, message)
		}
	}
}
