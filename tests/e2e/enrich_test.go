package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// send sends text from an address on this host, or from an unnamed Unix socket.
func send(t *testing.T, network, from, to, text string) {
	t.Helper()
	var local net.Addr
	switch network {
	case "udp":
		local = &net.UDPAddr{IP: net.ParseIP(from)}
	case "tcp":
		local = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	dialer := net.Dialer{LocalAddr: local}
	conn, err := dialer.Dial(network, to)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestSendersOfPods sends lines from addresses on this host that pods of a real API server have, over UDP, TCP and a
// Unix socket: they get the workload of their pod, an address that changes hands follows its pod, and a pod that a line
// names against its address is not believed.
func TestSendersOfPods(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	create := func(resource, apiVersion, kind, name, owners, spec string) string {
		return string(cluster.Create(resource, harness.Object(t, fmt.Sprintf(
			"{apiVersion: %s, kind: %s, metadata: {name: %s, namespace: shop, ownerReferences: %s}, spec: %s}",
			apiVersion, kind, name, owners, spec))).GetUID())
	}
	const replicated = "{replicas: 2, selector: {matchLabels: {app: x}}, template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}}"
	deployment := create("deployments", "apps/v1", "Deployment", "web", "[]", replicated)
	set := create("replicasets", "apps/v1", "ReplicaSet", "web-1", reference("apps/v1", "Deployment", "web", deployment), replicated)
	id := func(name string) string { return strings.ReplaceAll(fmt.Sprintf("%-64s", name), " ", "0") }
	pod := func(name, owners, address, started string) {
		o := cluster.Create("pods", harness.Object(t, fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop, ownerReferences: %s}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}}", name, owners)))
		cluster.Patch("pods", o, map[string]any{"status": map[string]any{
			"phase": "Running", "podIP": address, "podIPs": []any{map[string]any{"ip": address}}, "hostIP": "127.0.7.1", "startTime": started,
			"containerStatuses": []any{map[string]any{"name": "c", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
				"containerID": "containerd://" + id(name),
				"state":       map[string]any{"running": map[string]any{"startedAt": started}}}},
		}}, "status")
	}
	owned := reference("apps/v1", "ReplicaSet", "web-1", set)
	pod("web-1-a", owned, "127.0.6.1", "2026-01-01T00:00:00Z")
	pod("web-1-b", owned, "127.0.6.2", "2026-01-01T00:00:00Z")
	pod("bare", "[]", "127.0.6.3", "2026-01-01T00:00:00Z")

	port, telemetry, lines := harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)
	unix := filepath.Join(t.TempDir(), "socket")
	process := harness.Start(t, harness.KstatdRun(t), "--kubeconfig="+cluster.Kubeconfig, "--statsd.enrich=workload",
		fmt.Sprintf("--statsd.listen-udp=:%d", lines), fmt.Sprintf("--statsd.listen-tcp=:%d", lines), "--statsd.listen-unixgram="+unix,
		fmt.Sprintf("--listen=127.0.0.1:%d", port), fmt.Sprintf("--telemetry-listen=127.0.0.1:%d", telemetry))
	harness.WaitStatus(t, process, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), 200)
	series := func(path string, prefix string) []string {
		response, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, prefix) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return found
	}
	wait := func(want ...string) {
		t.Helper()
		harness.Eventually(t, strings.Join(want, ", "), func() error {
			name, _, _ := strings.Cut(want[0], "{")
			have := series(fmt.Sprintf("http://127.0.0.1:%d/metrics/statsd", port), name)
			if !slices.Equal(have, want) {
				return fmt.Errorf("%q, not %q", have, want)
			}
			return nil
		})
	}
	web, bare := `{namespace="shop",workload="web",workload_type="deployment"}`, `{namespace="shop",workload="bare",workload_type="barepod"}`
	to := fmt.Sprintf("127.0.0.1:%d", lines)
	for _, network := range []string{"udp", "tcp"} {
		for _, from := range []string{"127.0.6.1", "127.0.6.2", "127.0.6.3"} {
			send(t, network, from, to, "by_"+network+":1|c\n")
		}
		wait("by_"+network+bare+" 1", "by_"+network+web+" 2")
	}
	// The process of this test is in no pod, so the container in the line counts there, and not against an address.
	container := "|c:ci-" + id("web-1-a")
	send(t, "unixgram", "", unix, "by_container:1|c|#a:b"+container)
	send(t, "udp", "127.0.6.3", to, "by_container:1|c|#a:b"+container)
	label := func(labels string) string { return strings.Replace(labels, "{", `{a="b",`, 1) }
	wait("by_container"+label(bare)+" 1", "by_container"+label(web)+" 1")
	own := fmt.Sprintf("http://127.0.0.1:%d/metrics", telemetry)
	if got := series(own, `kstatd_statsd_rejected_origins_total{contradicted_by="address"}`); len(got) != 1 || !strings.HasSuffix(got[0], " 1") {
		t.Errorf("rejected: %q", got)
	}
	// An address that changes hands belongs to the pod that started last, while the former one still exists.
	pod("heir", "[]", "127.0.6.1", "2026-01-02T00:00:00Z")
	heir := `{namespace="shop",workload="heir",workload_type="barepod"}`
	harness.Eventually(t, "the new pod", func() error {
		send(t, "udp", "127.0.6.1", to, "inherited:1|g")
		if have := series(fmt.Sprintf("http://127.0.0.1:%d/metrics/statsd", port), "inherited"+heir); len(have) != 1 {
			return fmt.Errorf("%q", have)
		}
		return nil
	})
}
