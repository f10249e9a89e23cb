package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kstatd/e2e/harness"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const mainSlice = "--resources=pods,nodes,namespaces,deployments,replicasets,services,configmaps"

// TestKubeStartErrors: a startup error ends the program with code 1 and a message that names its cause. The
// original's exit code is the same.
func TestKubeStartErrors(t *testing.T) {
	cluster := harness.StartCluster(t)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	busyPort := busy.Addr().(*net.TCPAddr).Port
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("apiVersion: v1\nclusters: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	free := func() string { return fmt.Sprint(harness.FreePort(t)) }
	for _, test := range []struct {
		name string
		args []string
		// says are texts in kstatd's message, ignoring case.
		says []string
	}{
		{"no kubeconfig", nil, []string{"kubeconfig"}},
		{"missing kubeconfig", []string{"--kubeconfig=/nonexistent/config"}, []string{"/nonexistent/config"}},
		{"broken kubeconfig", []string{"--kubeconfig=" + broken}, []string{broken}},
		{"unreachable server", []string{"--apiserver=http://127.0.0.1:1"}, []string{"127.0.0.1:1"}},
		{"invalid token", []string{"--kubeconfig=" + cluster.KubeconfigWith("", "not-a-token")}, []string{"unauthorized"}},
		{"unknown flag", []string{"--no-such-flag"}, []string{"no-such-flag"}},
		{"unknown word", []string{"frobnicate"}, []string{"frobnicate"}},
		{"bad number", []string{"--port=many"}, []string{"port", "many"}},
		{"bad duration", []string{"--server-read-timeout=soon"}, []string{"server-read-timeout", "soon"}},
		{"bad pattern", []string{"--metric-allowlist=kube_(", "--kubeconfig=" + cluster.Kubeconfig}, []string{"kube_("}},
		{"both lists", []string{"--metric-allowlist=a", "--metric-denylist=b", "--kubeconfig=" + cluster.Kubeconfig}, []string{"allowlist", "denylist"}},
		{"bad allow list", []string{"--metric-labels-allowlist==pods=[x]"}, []string{"metric-labels-allowlist"}},
		{"unknown resource", []string{"--resources=pods,podz", "--kubeconfig=" + cluster.Kubeconfig}, []string{"podz"}},
		{"unknown resource in allow list", []string{"--metric-labels-allowlist=podz=[a]", "--kubeconfig=" + cluster.Kubeconfig}, []string{"podz"}},
		{"missing options file", []string{"--config=/nonexistent/options.yaml"}, []string{"/nonexistent/options.yaml"}},
		{"busy port", []string{"--host=127.0.0.1", fmt.Sprintf("--port=%d", busyPort), "--kubeconfig=" + cluster.Kubeconfig}, []string{fmt.Sprint(busyPort), "in use"}},
		{"busy telemetry port", []string{"--port=" + free(), "--telemetry-host=127.0.0.1", fmt.Sprintf("--telemetry-port=%d", busyPort), "--kubeconfig=" + cluster.Kubeconfig}, []string{fmt.Sprint(busyPort), "in use"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := slices.Clone(test.args)
			if !strings.Contains(strings.Join(args, " "), "port=") {
				args = append(args, "--port="+free(), "--telemetry-port="+free())
			} else if !strings.Contains(strings.Join(args, " "), "telemetry-port=") {
				args = append(args, "--telemetry-port="+free())
			}
			theirs, _, _ := harness.Run(t, harness.KubeStateMetrics(t), "", args...)
			code, stdout, stderr := harness.Run(t, harness.OurKubeStateMetrics(t), "", args...)
			if code != theirs || code != 1 {
				t.Errorf("exit code %d, the original's is %d", code, theirs)
			}
			harness.NotInSelfCheck(t)
			for _, text := range test.says {
				if !strings.Contains(strings.ToLower(stderr), strings.ToLower(text)) {
					t.Errorf("the message does not name %q:\n%s%s", text, stderr, stdout)
				}
			}
			if strings.Contains(stderr, "panicked at") {
				t.Errorf("it panics:\n%s", stderr)
			}
		})
	}
}

// TestStartWhileThrottled: a server that answers 429 at startup is retried at the time that it names.
func TestStartWhileThrottled(t *testing.T) {
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	for _, program := range []harness.Program{harness.KubeStateMetrics(t), harness.OurKubeStateMetrics(t)} {
		proxy := harness.StartProxy(t, cluster)
		proxy.Set(harness.Fault{Status: 429, RetryAfter: 1})
		var wait sync.WaitGroup
		wait.Go(func() {
			err := harness.Poll(harness.Patience, func() error {
				if asked := proxy.Requests(); asked < 3 {
					return fmt.Errorf("%s asks %d times", program.Name, asked)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			proxy.Set()
		})
		exporter := harness.StartKubeExporter(t, program, "--resources=configmaps", "--kubeconfig="+cluster.KubeconfigWith(proxy.URL, harness.AdminToken))
		waitNames(t, exporter, "one")
		wait.Wait()
	}
}

// TestOutage stops the API server and restarts it on the same port: the series stay meanwhile, an expired watch
// causes a relist, and changes during the outage are detected.
func TestOutage(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	pair := harness.StartPair(t, mainSlice, "--kubeconfig="+cluster.Kubeconfig)
	for i := range 5 {
		cluster.Create("configmaps", configMap(t, fmt.Sprintf("before-%d", i)))
	}
	waitNames(t, pair.Ours, "before-0", "before-1", "before-2", "before-3", "before-4")
	pair.Converge("")

	cluster.Stop()
	// Without a server the series are unchanged.
	waitNames(t, pair.Ours, "before-0", "before-1", "before-2", "before-3", "before-4")

	// The exporters are stopped during the changes, so no event can report them.
	pair.Ours.Signal(syscall.SIGSTOP)
	pair.Theirs.Signal(syscall.SIGSTOP)
	cluster.Start()
	cluster.Delete("configmaps", configMap(t, "before-0"))
	cluster.Patch("configmaps", configMap(t, "before-1"), map[string]any{"metadata": map[string]any{"labels": map[string]any{"changed": "yes"}}})
	cluster.Create("configmaps", configMap(t, "after-0"))
	// A restarted server has no events from before its start: the old watch gets status 410.
	cluster.Stop()
	cluster.Start()
	pair.Ours.Signal(syscall.SIGCONT)
	pair.Theirs.Signal(syscall.SIGCONT)
	waitNames(t, pair.Ours, "after-0", "before-1", "before-2", "before-3", "before-4")
	pair.Converge("")

	cluster.Create("configmaps", configMap(t, "after-1"))
	waitNames(t, pair.Ours, "after-0", "after-1", "before-1", "before-2", "before-3", "before-4")
	pair.Converge("")
}

// TestFrozenServer: a frozen server does not change the exposition.
func TestFrozenServer(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), mainSlice, "--kubeconfig="+cluster.Kubeconfig)
	waitNames(t, exporter, "one")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 200)
	cluster.Process().Signal(syscall.SIGSTOP)
	waitNames(t, exporter, "one")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/healthz", 200)
	cluster.Process().Signal(syscall.SIGCONT)
	cluster.Create("configmaps", configMap(t, "two"))
	waitNames(t, exporter, "one", "two")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 200)
}

// TestTokenExpires: an expired token stops updates but not the exporter; with a valid token they continue.
func TestTokenExpires(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), mainSlice, "--kubeconfig="+cluster.Kubeconfig)
	waitNames(t, exporter, "one")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 200)

	cluster.Stop()
	cluster.StartWithToken("another-token")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 503)
	waitNames(t, exporter, "one")
	harness.Eventually(t, "failed calls are counted", func() error {
		e, err := harness.Scrape(exporter.Telemetry+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		for _, line := range e.Samples {
			if strings.HasPrefix(line, `kube_state_metrics_watch_total{resource="*v1.ConfigMap",result="error"}`) ||
				strings.HasPrefix(line, `kube_state_metrics_watch_total{result="error",resource="*v1.ConfigMap"}`) {
				return nil
			}
		}
		return fmt.Errorf("there is no such series")
	})
	cluster.Stop()
	cluster.Start()
	cluster.Create("configmaps", configMap(t, "two"))
	waitNames(t, exporter, "one", "two")
}

// TestWatchListRefused: a server without streaming lists is listed in pages.
func TestWatchListRefused(t *testing.T) {
	cluster := harness.StartCluster(t, "--feature-gates=WatchList=false")
	var wait sync.WaitGroup
	for i := range 10 {
		wait.Go(func() {
			for k := range 130 {
				if _, err := cluster.TryCreate("configmaps", configMap(t, fmt.Sprintf("c-%d-%d", i, k))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	pair := harness.StartPair(t, mainSlice, "--kubeconfig="+cluster.Kubeconfig)
	pair.ConvergeAt(3*1300, "?resources=configmaps")
	cluster.Delete("configmaps", configMap(t, "c-3-7"))
	cluster.Create("configmaps", configMap(t, "later"))
	harness.Eventually(t, "the watch goes on from the list", func() error {
		e, err := harness.Scrape(pair.Ours.Base+"/metrics?resources=configmaps", harness.Text)
		all := strings.Join(e.Samples, "\n")
		if err == nil && (strings.Contains(all, `"c-3-7"`) || !strings.Contains(all, `"later"`)) {
			err = fmt.Errorf("it shows the old state")
		}
		return err
	})
	pair.Converge("")
}

// TestForbidden: with permissions for some kinds, those are served and nothing fails.
func TestForbidden(t *testing.T) {
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "visible"))
	cluster.Create("pods", harness.Object(t, `{apiVersion: v1, kind: Pod, metadata: {name: hidden, namespace: e2e}, spec: {containers: [{name: c, image: "c:1"}]}}`))
	token := cluster.ServiceAccountToken("only-configmaps", `[{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}]`)
	pair := harness.StartPair(t, mainSlice, "--kubeconfig="+cluster.KubeconfigWith("", token))
	harness.Eventually(t, "the permitted kind is served", func() error {
		e, err := harness.Scrape(pair.Ours.Base+"/metrics", harness.Text)
		all := strings.Join(e.Samples, "\n")
		if err == nil && !strings.Contains(all, `configmap="visible"`) {
			err = fmt.Errorf("it is not there")
		}
		if strings.Contains(all, "hidden") {
			t.Fatal("a forbidden object is there")
		}
		return err
	})
	pair.Converge("")
}

// TestTerminationDuringScrape: an open scrape is finished, then the program ends with code 0. New connections are
// refused.
func TestTerminationDuringScrape(t *testing.T) {
	harness.NotInSelfCheck(t)
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), "")
	const series = 30_000
	var batch strings.Builder
	for i := range series {
		fmt.Fprintf(&batch, "a.rather.long.name.that.fills.the.buffers.%d:1|c|#label:%s\n", i, strings.Repeat("x", 60))
	}
	server.SendTCP(batch.String())
	server.WaitOwn("statsd_exporter_lines_total", series)

	// A reader with a tiny window: most of the response is queued in the server.
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	conn, err := dialer.Dial("tcp", strings.TrimPrefix(server.Base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 4096), nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 2000)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	server.Signal(syscall.SIGTERM)
	harness.Eventually(t, "no new connection is served", func() error {
		if _, err := harness.Get(server.Base + "/-/healthy"); err == nil {
			return fmt.Errorf("it still answers")
		}
		return nil
	})
	if !server.Running() {
		t.Fatal("it ended in the middle of an answer")
	}
	rest, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(rest), err)
	}
	e, err := harness.Parse(string(first) + string(rest))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(slices.DeleteFunc(e.Samples, func(l string) bool { return !strings.HasPrefix(l, "a_rather") })); got != series {
		t.Errorf("the answer has %d of %d series", got, series)
	}
	if code := server.Exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestTerminationIsBounded: a reader that never reads delays the shutdown by at most ten seconds.
func TestTerminationIsBounded(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), mainSlice, "--kubeconfig="+cluster.Kubeconfig)
		conn, err := net.Dial("tcp", strings.TrimPrefix(exporter.Base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// Half a request: the server waits for the rest.
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n"); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		exporter.Signal(signal)
		if code := exporter.Exit(); code != 0 {
			t.Errorf("%v: exit code %d", signal, code)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%v: the end took %s", signal, took)
		}
	}
}

// waitNames waits until exactly these config maps of the test namespace are exposed.
func waitNames(t *testing.T, exporter *harness.KubeExporter, names ...string) {
	t.Helper()
	harness.Eventually(t, "the config maps are "+strings.Join(names, ", "), func() error {
		e, err := harness.Scrape(exporter.Base+"/metrics?resources=configmaps", harness.Text)
		if err != nil {
			return err
		}
		var got []string
		for _, line := range e.Samples {
			if rest, found := strings.CutPrefix(line, `kube_configmap_info{namespace="e2e",configmap="`); found {
				name, _, _ := strings.Cut(rest, `"`)
				got = append(got, name)
			}
		}
		return harness.Difference(got, names)
	})
}

func configMap(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	return harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: e2e}, data: {k: v}}", name))
}
