package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kstatd/e2e/harness"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// history is a cluster that changes while a proxy in front of it misbehaves.
type history struct {
	cluster *harness.Cluster
	proxy   *harness.Proxy
	ours    *harness.KubeExporter
	// theirs is the original behind a proxy of its own, nil where only kstatd is looked at.
	theirs     *harness.KubeExporter
	theirProxy *harness.Proxy
	random     *rand.Rand
	// prefix is what the names of its config maps begin with.
	prefix      string
	made        int
	worstTheirs time.Duration
}

func startHistory(t *testing.T, cluster *harness.Cluster, seed uint64) *history {
	t.Helper()
	h := &history{cluster: cluster, proxy: harness.StartProxy(t, cluster), random: rand.New(rand.NewPCG(seed, seed)), prefix: fmt.Sprintf("c%d-", seed)}
	h.ours = harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.KubeconfigWith(h.proxy.URL, harness.AdminToken))
	if os.Getenv("E2E_HISTORY") != "" {
		h.theirProxy = harness.StartProxy(t, cluster)
		h.theirs = harness.StartKubeExporter(t, harness.KubeStateMetrics(t), "--kubeconfig="+cluster.KubeconfigWith(h.theirProxy.URL, harness.AdminToken))
	}
	h.change(t)
	h.isTrue(t, "the start")
	return h
}

// change creates a few config maps and deletes some.
func (h *history) change(t *testing.T) {
	t.Helper()
	for range 3 {
		h.made++
		h.cluster.Create("configmaps", configMap(t, fmt.Sprintf("%s%04d", h.prefix, h.made)))
	}
	names := h.truth(t)
	if len(names) > 6 {
		h.cluster.Delete("configmaps", configMap(t, names[h.random.IntN(len(names))]))
	}
}

// truth is what there is, as the server says.
func (h *history) truth(t *testing.T) []string {
	t.Helper()
	list, err := h.cluster.Typed.CoreV1().ConfigMaps("e2e").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		if strings.HasPrefix(item.Name, h.prefix) {
			names = append(names, item.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (h *history) shows(exporter *harness.KubeExporter, names []string) error {
	e, err := harness.Scrape(exporter.Base+"/metrics?resources=configmaps", harness.Text)
	if err != nil {
		return err
	}
	var got []string
	for _, line := range e.Samples {
		if rest, found := strings.CutPrefix(line, `kube_configmap_info{namespace="e2e",configmap="`+h.prefix); found {
			name, _, _ := strings.Cut(rest, `"`)
			got = append(got, h.prefix+name)
		}
	}
	return harness.Difference(got, names)
}

// isTrue waits until the exposition is what the cluster is. How long that takes is
// logged; that it is bounded is what the unit tests of waiting times hold, which a
// busy machine does not disturb.
func (h *history) isTrue(t *testing.T, after string) {
	t.Helper()
	start := time.Now()
	names := h.truth(t)
	theirs := make(chan time.Duration, 1)
	go func() {
		if h.theirs != nil {
			_ = harness.Poll(harness.Patience, func() error { return h.shows(h.theirs, names) })
		}
		theirs <- time.Since(start)
	}()
	err := harness.Poll(harness.Patience, func() error { return h.shows(h.ours, names) })
	took := time.Since(start)
	if h.theirs == nil {
		t.Logf("after %s: true again within %.1f s", after, took.Seconds())
	} else {
		original := <-theirs
		h.worstTheirs = max(h.worstTheirs, original)
		t.Logf("after %s: true again within %.1f s, the original within %.1f s", after, took.Seconds(), original.Seconds())
	}
	if err != nil {
		t.Errorf("after %s: not true again within %s: %v", after, harness.Patience, err)
	}
}

func (h *history) set(f harness.Fault) {
	h.proxy.Set(f)
	if h.theirProxy != nil {
		h.theirProxy.Set(f)
	}
}

func (h *history) cut() {
	h.proxy.CutAll()
	if h.theirProxy != nil {
		h.theirProxy.CutAll()
	}
}

// fault is one kind of trouble.
type fault struct {
	name string
	set  harness.Fault
	// cut breaks all connections when it begins, so that something is asked for during it.
	cut bool
	// counted is the reason under which its errors are counted, where it has one that is looked for.
	counted string
}

var faults = []fault{
	{"cuts", harness.Fault{}, true, ""},
	{"refused connections", harness.Fault{Refuse: true}, false, ""},
	{"500 for everything", harness.Fault{Status: 500}, true, "server_error"},
	{"500 for half of the requests", harness.Fault{Status: 500, Share: 0.5}, true, ""},
	{"429 with Retry-After: 1", harness.Fault{Status: 429, RetryAfter: 1}, true, "throttled"},
	{"410 for everything", harness.Fault{Status: 410}, true, ""},
	{"503 for everything", harness.Fault{Status: 503}, true, ""},
	{"403 for everything", harness.Fault{Status: 403}, true, "forbidden"},
	{"torn bodies", harness.Fault{Torn: 100}, true, "broken"},
	{"slow bodies", harness.Fault{BytesPerSecond: 1}, true, ""},
	{"slow answers", harness.Fault{Delay: 3 * time.Second}, true, ""},
	{"a page in place of every answer", harness.Fault{Body: "<html>log in</html>", ContentType: "text/html"}, true, "garbled"},
	{"an empty object in place of every answer", harness.Fault{Body: "{}", ContentType: "application/json"}, true, ""},
	{"a status in place of every answer", harness.Fault{Body: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"InternalError","code":500}`, ContentType: "application/json"}, true, ""},
}

// last lets a fault be there for a while, with changes all the while.
func (h *history) last(t *testing.T, f fault, lasts time.Duration) {
	t.Helper()
	h.set(f.set)
	if f.cut {
		h.cut()
	}
	end := time.Now().Add(lasts)
	for time.Now().Before(end) {
		h.change(t)
		<-time.After(500 * time.Millisecond)
	}
	if f.counted != "" {
		h.waitCounted(t, f.counted)
	}
	h.set(harness.Fault{})
}

// waitCounted waits until an error for one of these reasons is counted.
func (h *history) waitCounted(t *testing.T, reasons ...string) {
	t.Helper()
	harness.Eventually(t, "an error is counted for "+strings.Join(reasons, " or "), func() error {
		e, err := harness.Scrape(h.ours.Telemetry+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		for _, reason := range reasons {
			if _, found := e.Value(fmt.Sprintf(`kstatd_kubernetes_errors_total{namespace="",reason=%q,resource="*v1.ConfigMap"}`, reason)); found {
				return nil
			}
		}
		return fmt.Errorf("there is no such series")
	})
}

// TestFaultsEnd: after the end of any fault on the way to the API server the
// exposition is what the cluster is.
func TestFaultsEnd(t *testing.T) {
	t.Parallel() // it waits most of its time
	h := startHistory(t, harness.StartCluster(t), 1)
	for _, f := range faults {
		h.last(t, f, 6*time.Second)
		h.isTrue(t, f.name)
	}
	// Cut again and again it stays true: nothing is remembered of the cuts before.
	for range 6 {
		h.cut()
		h.change(t)
		h.isTrue(t, "one of many cuts")
	}
}

// TestRandomHistory: whatever the order and length of faults. E2E_HISTORY says
// how many there are, and has the original beside; E2E_SEED which they are.
func TestRandomHistory(t *testing.T) {
	t.Parallel() // it waits most of its time
	count := 4
	if text := os.Getenv("E2E_HISTORY"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(20261122)
	if text := os.Getenv("E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("E2E_SEED=%d", seed)
	h := startHistory(t, harness.StartCluster(t), seed)
	for range count {
		f := faults[h.random.IntN(len(faults))]
		h.last(t, f, time.Duration(1+h.random.IntN(9))*time.Second)
		h.isTrue(t, f.name)
	}
}

// TestDeadConnections: connections that stay open although nothing comes over
// them any more are noticed, also where TLS and HTTP end in
// between, so that no keep-alive tells of them.
func TestDeadConnections(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	t.Run("with new ones that work", func(t *testing.T) {
		t.Parallel()
		h := startHistory(t, cluster.With(t), 2)
		h.set(harness.Fault{Freeze: true})
		h.cluster.Create("configmaps", configMap(t, h.prefix+"behind-dead-connections"))
		h.isTrue(t, "all connections died")
	})
	t.Run("with new ones that are dead too", func(t *testing.T) {
		t.Parallel()
		h := startHistory(t, cluster.With(t), 3)
		h.set(harness.Fault{Freeze: true, FreezeNew: true})
		start := time.Now()
		// Which of the two it is depends on whether a watch or a request met with it first.
		h.waitCounted(t, "frozen", "timeout")
		t.Logf("counted after %.1f s", time.Since(start).Seconds())
		h.ours.WaitOutput("the API server fails")
		h.set(harness.Fault{})
		h.isTrue(t, "connections that had died came back")
		h.ours.WaitOutput("the API server works again")
	})
}
