package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ownAddress is an IPv4 address of this host that the API server may forward to: not loopback. Empty if there is none.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if ip, ok := address.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}

// TestKubectlPlugin asks a pod through the proxy of a real API server, as an administrator, and as users who lack one
// right. On a host without an address other than loopback, the last hop is that of a stand-in.
func TestKubectlPlugin(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	web, telemetry := harness.FreePort(t), harness.FreePort(t)
	args := []string{
		fmt.Sprintf("--listen=0.0.0.0:%d", web), fmt.Sprintf("--telemetry-listen=0.0.0.0:%d", telemetry),
		"--resources=pods", "--statsd.listen-udp=", "--statsd.listen-tcp=",
	}
	process := harness.Start(t, harness.KstatdRun(t), append([]string{"--kubeconfig", cluster.Kubeconfig, "--profiles=everybody"}, args...)...)
	harness.WaitStatus(t, process, fmt.Sprintf("http://127.0.0.1:%d/readyz", web), 200)
	containers := fmt.Sprintf(`[{name: kstatd, image: "registry.example/kstatd:1", args: ["%s"]}]`, strings.Join(args, `", "`))
	for _, text := range []string{`
apiVersion: v1
kind: Namespace
metadata: {name: metrics}
`, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: kstatd, namespace: metrics}
spec:
  selector: {matchLabels: {app: kstatd}}
  template: {metadata: {labels: {app: kstatd}}, spec: {containers: ` + containers + `}}
`, `
apiVersion: v1
kind: Pod
metadata: {name: kstatd-1, namespace: metrics, labels: {app: kstatd}}
spec: {containers: ` + containers + `}
`} {
		o := harness.Object(t, text)
		harness.Eventually(t, o.GetKind(), func() error {
			_, err := cluster.TryCreate(resourceName(o), o)
			return err
		})
	}
	address := ownAddress(t)
	pod := cluster.Resource("pods", harness.Object(t, "{apiVersion: v1, kind: Pod, metadata: {name: kstatd-1, namespace: metrics}}"))
	status := `{"status": {"phase": "Running"}}`
	if address != "" {
		status = fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %q}]}}`, address, address)
	}
	if _, err := pod.Patch(context.Background(), "kstatd-1", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	kubeconfig := func(token string) string {
		if address == "" {
			return standIn(t, cluster, "metrics/pods/kstatd-1", token, web, telemetry)
		}
		return cluster.KubeconfigWith("", token)
	}
	plugin := filepath.Join(t.TempDir(), "kubectl-kstatd")
	if err := os.Symlink(harness.Kstatd(t).Path, plugin); err != nil {
		t.Fatal(err)
	}
	run := func(kubeconfig string, args ...string) (int, string, string) {
		t.Helper()
		return harness.Run(t, harness.Program{Name: "kubectl-kstatd", Path: plugin}, "", append(args, "--kubeconfig", kubeconfig)...)
	}
	admin := kubeconfig(harness.AdminToken)
	harness.Eventually(t, "the pod has its series", func() error {
		code, stdout, stderr := run(admin, "explain", "object", "pods", "metrics/kstatd-1", "--target", "deploy/kstatd")
		if code != 0 || !strings.Contains(stdout, "kube_pod_info") {
			return fmt.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
	for _, one := range []struct {
		code int
		args []string
		want string
	}{
		{0, []string{"status"}, "OK  kstatd"},
		{0, []string{"top", "--once", "-n", "metrics"}, "kube_pod_"},
		{0, []string{"top", "kube_pod_info", "--target", "kstatd-1", "-n", "metrics"}, "kube_pod_info"},
		// Its service account has no rights.
		{1, []string{"check"}, "√ pod kstatd-1: its state is OK"},
	} {
		if code, stdout, stderr := run(admin, one.args...); code != one.code || !strings.Contains(stdout, one.want) {
			t.Errorf("%v: exit code %d, no %q in %s%s", one.args, code, one.want, stdout, stderr)
		}
	}
	archive := filepath.Join(t.TempDir(), "bundle.tar.gz")
	code, stdout, stderr := run(admin, "bundle", "--file", archive)
	// There is no kubelet that has the log of the pod.
	if _, err := os.Stat(archive); err != nil || code != 1 || strings.Count(stdout, "MISSING") != 1 || !strings.Contains(stdout, "pod-log.txt") {
		t.Errorf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	rules := func(more string) string {
		return `[{apiGroups: [apps], resources: [deployments, statefulsets, daemonsets], verbs: [list]}` + more + `]`
	}
	lister := kubeconfig(cluster.ServiceAccountToken("lister", rules(`, {apiGroups: [""], resources: [pods], verbs: [list]}`)))
	if code, _, stderr := run(lister, "status"); code != 2 || !strings.Contains(stderr, "the verb get on the resource pods/proxy") ||
		!strings.Contains(stderr, `cannot get resource "pods/proxy"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	podless := kubeconfig(cluster.ServiceAccountToken("podless", rules("")))
	if code, _, stderr := run(podless, "status"); code != 2 || !strings.Contains(stderr, `cannot list resource "pods"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	nobody := kubeconfig(cluster.ServiceAccountToken("nobody", "[]"))
	if code, _, stderr := run(nobody, "status"); code != 2 || !strings.Contains(stderr, `cannot list resource "deployments"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	enough := kubeconfig(cluster.ServiceAccountToken("enough", rules(`, {apiGroups: [""], resources: [pods], verbs: [list]}, {apiGroups: [""], resources: [pods/proxy], verbs: [get]}`)))
	if code, stdout, stderr := run(enough, "status"); code != 0 {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
