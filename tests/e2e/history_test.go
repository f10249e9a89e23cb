package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kstatd/e2e/harness"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// historyKind is a kind whose objects are created and deleted in a history.
type historyKind struct {
	resource string
	// series is the beginning of a line of the history's objects, and label the label with the name.
	series, label string
	object        func(t *testing.T, name string) *unstructured.Unstructured
	record        *record
	// steady are names of permanent objects.
	steady []string
	prefix string
}

// shown are the names of the history's objects in an exposition.
func (k *historyKind) shown(e harness.Exposition) []string {
	var names []string
	for _, line := range e.Samples {
		labels, found := strings.CutPrefix(line, k.series+"{")
		if !found {
			continue
		}
		_, name, _ := strings.Cut(","+labels, ","+k.label+"=\"")
		if name, _, _ = strings.Cut(name, "\""); strings.HasPrefix(name, k.prefix) {
			names = append(names, name)
		}
	}
	return names
}

const widgetInfo = `
kind: CustomResourceStateMetrics
spec:
  resources:
  - groupVersionKind: {group: example.io, version: v1, kind: Widget}
    labelsFromPath: {name: [metadata, name]}
    metrics:
    - {name: widget, help: A widget., each: {type: Info, info: {labelsFromPath: {version: [spec, version]}}}}
`

// historyKinds are kinds received as metadata, as a table and as JSON.
func historyKinds(prefix string) []*historyKind {
	secret := func(t *testing.T, name string) *unstructured.Unstructured {
		return harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s, namespace: e2e}}", name))
	}
	config := func(t *testing.T, name string) *unstructured.Unstructured { return configMap(t, name) }
	return []*historyKind{
		{resource: "configmaps", series: "kube_configmap_info", label: "configmap", object: config, record: newRecord(), prefix: prefix},
		{resource: "secrets", series: "kube_secret_info", label: "secret", object: secret, record: newRecord(), prefix: prefix},
		{resource: "widgets", series: "kube_customresource_widget", label: "name", record: newRecord(), prefix: prefix,
			object: func(t *testing.T, name string) *unstructured.Unstructured { return widget(t, name, 1) }},
	}
}

// history is a changing cluster with faults on the connection to it.
type history struct {
	cluster *harness.Cluster
	kinds   []*historyKind
	random  *rand.Rand
	prefix  string
	made    int
	sides   []*side
	// rows are the results of each fault, for docs/evidence.md.
	rows []string
}

// side is a program in a history, with its own connection to the API server.
type side struct {
	*harness.KubeExporter
	proxy   *harness.Proxy
	watcher *watcher
	// recovered is the recovery time after the last fault.
	recovered time.Duration
}

// withOriginal returns whether the original runs next to kstatd.
func withOriginal() bool { return os.Getenv("E2E_HISTORY") != "" }

// newHistory prepares a history in a cluster; start adds exporters.
func newHistory(t *testing.T, cluster *harness.Cluster, seed uint64) *history {
	t.Helper()
	h := &history{cluster: cluster, random: rand.New(rand.NewPCG(seed, seed)), prefix: fmt.Sprintf("c%d-", seed)}
	h.kinds = historyKinds(h.prefix)
	if _, err := cluster.TryCreate(definitions, definition(t, "widgets", "Widget", "v1")); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	name := h.prefix + "first"
	for _, kind := range h.kinds {
		kind.record.becomes(func(names map[string]bool) { names[name] = true }, func() {
			createResource(t, cluster, kind.resource, kind.object(t, name))
		})
	}
	return h
}

// start starts kstatd and, if requested, the original. The function way returns for each the program, its arguments,
// and its proxy, if any.
func (h *history) start(t *testing.T, way func(harness.Program) (harness.Program, []string, *harness.Proxy)) {
	t.Helper()
	programs := []harness.Program{harness.OurKubeStateMetrics(t)}
	if withOriginal() {
		programs = append(programs, harness.KubeStateMetrics(t))
	}
	custom := writeCustom(t, widgetInfo)
	for _, program := range programs {
		program, args, proxy := way(program)
		args = append(args, "--custom-resource-state-config-file="+custom)
		h.sides = append(h.sides, &side{KubeExporter: harness.StartKubeExporter(t, program, args...), proxy: proxy})
	}
	h.change(t)
	h.isTrue(t, "the start")
	for _, s := range h.sides {
		s.watcher = watch(t, s.KubeExporter, h.kinds)
	}
}

// startHistory starts a history with proxies.
func startHistory(t *testing.T, cluster *harness.Cluster, seed uint64) *history {
	t.Helper()
	h := newHistory(t, cluster, seed)
	h.start(t, func(p harness.Program) (harness.Program, []string, *harness.Proxy) {
		proxy := harness.StartProxy(t, cluster)
		return p, []string{"--kubeconfig=" + cluster.KubeconfigWith(proxy.URL, harness.AdminToken)}, proxy
	})
	return h
}

func (h *history) ours() *side { return h.sides[0] }

// change creates an object of each kind and deletes some.
func (h *history) change(t *testing.T) {
	t.Helper()
	h.made++
	name := fmt.Sprintf("%s%04d", h.prefix, h.made)
	for _, kind := range h.kinds {
		kind.record.becomes(func(names map[string]bool) { names[name] = true }, func() {
			h.cluster.Create(kind.resource, kind.object(t, name))
		})
		names := slices.DeleteFunc(kind.record.present(), func(name string) bool { return slices.Contains(kind.steady, name) })
		if len(names) > 6 {
			gone := names[h.random.IntN(len(names))]
			kind.record.becomes(func(names map[string]bool) { delete(names, gone) }, func() {
				h.cluster.Delete(kind.resource, kind.object(t, gone))
			})
		}
	}
}

// shows describes the difference between an exposition and the cluster.
func (h *history) shows(exporter *harness.KubeExporter) error {
	e, err := harness.Scrape(exporter.Base+"/metrics", harness.Text)
	if err != nil {
		return err
	}
	for _, kind := range h.kinds {
		if err := harness.Difference(kind.shown(e), kind.record.present()); err != nil {
			return fmt.Errorf("%s: %w", kind.resource, err)
		}
	}
	return nil
}

// isTrue waits until the exposition equals the cluster and logs the time; unit tests assert time limits independently
// of the machine. Every response meanwhile must have been true at some time.
func (h *history) isTrue(t *testing.T, after string) {
	t.Helper()
	start := time.Now()
	var wait sync.WaitGroup
	ends := make([]error, len(h.sides))
	for i, s := range h.sides {
		wait.Go(func() {
			ends[i] = harness.Poll(harness.Patience, func() error { return h.shows(s.KubeExporter) })
			s.recovered = time.Since(start)
		})
	}
	wait.Wait()
	row := after
	for i, s := range h.sides {
		row += fmt.Sprintf(" | %.1f s", s.recovered.Seconds())
		if ends[i] != nil {
			row += " and never"
		}
		if s.watcher == nil {
			continue
		}
		seen := s.watcher.take()
		row += fmt.Sprintf(", oldest %.1f s, %d of %d wrong", seen.oldest.Seconds(), len(seen.wrong), seen.scrapes)
		for _, wrong := range seen.wrong {
			if i == 0 {
				t.Errorf("after %s: %s", after, wrong)
			}
		}
		if i > 0 && len(seen.wrong) > 0 {
			row += " (" + seen.wrong[0] + ")"
		}
	}
	h.rows = append(h.rows, row)
	t.Log(row)
	if ends[0] != nil {
		t.Errorf("after %s: not true again within %s: %v", after, harness.Patience, ends[0])
	}
}

func (h *history) set(faults ...harness.Fault) {
	for _, s := range h.sides {
		s.proxy.Set(faults...)
	}
}

func (h *history) cut() {
	for _, s := range h.sides {
		s.proxy.CutAll()
	}
}

func (h *history) endAll() {
	for _, s := range h.sides {
		s.proxy.EndAll()
	}
}

// fault is one kind of fault.
type fault struct {
	name string
	set  []harness.Fault
	// cut breaks all connections at the beginning, so that requests are made during the fault.
	cut bool
	// counted is the expected reason in the error counter, if any.
	counted string
	// harmless is true if the exposition stays current during the fault.
	harmless bool
}

func one(f harness.Fault) []harness.Fault { return []harness.Fault{f} }

// expired rejects all watches, so that everything is relisted.
var expired = harness.Fault{Status: 410, Only: isWatch}

var faults = []fault{
	{"cuts (RST)", nil, true, "", false},
	{"refused connections", one(harness.Fault{Refuse: true}), false, "", false},
	{"500 for everything", one(harness.Fault{Status: 500}), true, "server_error", false},
	{"500 for half of the requests", one(harness.Fault{Status: 500, Share: 0.5}), true, "", false},
	{"429 with Retry-After: 1", one(harness.Fault{Status: 429, RetryAfter: 1}), true, "throttled", false},
	{"429 to lists alone, with versions that have expired", []harness.Fault{expired, {Status: 429, RetryAfter: 1, Only: harness.IsList}}, true, "throttled", false},
	{"429 to watches alone", one(harness.Fault{Status: 429, RetryAfter: 1, Only: isWatch}), true, "", false},
	{"429 to definitions alone", one(harness.Fault{Status: 429, RetryAfter: 1, Only: isOfDefinitions}), true, "", false},
	{"410 for everything", one(harness.Fault{Status: 410}), true, "", false},
	{"503 for everything", one(harness.Fault{Status: 503}), true, "", false},
	{"403 for everything", one(harness.Fault{Status: 403}), true, "forbidden", false},
	{"torn bodies", one(harness.Fault{Torn: 100}), true, "broken", false},
	{"bodies that end in the middle as if whole", one(harness.Fault{Torn: 100, Clean: true}), true, "", false},
	{"garbage in bodies", one(harness.Fault{Garbage: 100}), true, "", false},
	{"gzip nobody asked for", one(harness.Fault{Gzip: true}), true, "", true},
	{"1 byte/s", one(harness.Fault{BytesPerSecond: 1}), true, "", false},
	{"slow answers", one(harness.Fault{Delay: 3 * time.Second}), true, "", false},
	{"a page in place of every answer", one(harness.Fault{Body: "<html>log in</html>", ContentType: "text/html"}), true, "garbled", false},
	{"an empty object in place of every answer", one(harness.Fault{Body: "{}", ContentType: "application/json"}), true, "", false},
	{"a status in place of every answer", one(harness.Fault{Body: `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"InternalError","code":500}`, ContentType: "application/json"}), true, "", false},
}

// isWatch returns whether a request asks only for events.
func isWatch(r *http.Request) bool { return r.URL.Query().Has("watch") && !harness.IsList(r) }

// isOfDefinitions returns whether a request is for CustomResourceDefinitions.
func isOfDefinitions(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/"+definitions) }

// isLaterPage returns whether a request is for a page after the first.
func isLaterPage(r *http.Request) bool { return r.URL.Query().Has("continue") }

// last applies a fault for a while, with changes during it.
func (h *history) last(t *testing.T, f fault, lasts time.Duration) {
	t.Helper()
	h.set(f.set...)
	if f.cut {
		h.cut()
	}
	h.changeFor(t, lasts)
	if f.counted != "" {
		h.waitCounted(t, f.counted)
	}
	if f.harmless {
		h.isTrue(t, f.name+", while it lasts")
	}
	h.set()
}

// changeFor changes the cluster for a while.
func (h *history) changeFor(t *testing.T, lasts time.Duration) {
	t.Helper()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		h.change(t)
		<-time.After(500 * time.Millisecond)
	}
}

// waitCounted waits until an error with one of these reasons is counted.
func (h *history) waitCounted(t *testing.T, reasons ...string) {
	t.Helper()
	harness.Eventually(t, "an error is counted for "+strings.Join(reasons, " or "), func() error {
		e, err := harness.Scrape(h.ours().Telemetry+"/metrics", harness.Text)
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

// TestFaultsEnd: after the end of any fault on the connection to the API server the exposition equals the cluster.
func TestFaultsEnd(t *testing.T) {
	t.Parallel() // it waits most of its time
	h := startHistory(t, harness.StartCluster(t), 1)
	for _, f := range faults {
		h.last(t, f, 4*time.Second)
		h.isTrue(t, f.name)
	}
	// Repeated cuts have no cumulative effect.
	for range 3 {
		h.cut()
		h.change(t)
		h.isTrue(t, "one of many cuts (RST)")
		h.endAll()
		h.change(t)
		h.isTrue(t, "one of many cuts (FIN)")
	}
}

// TestPageFaults: truncated, refused and expired pages of lists replace nothing, and the next list is complete.
func TestPageFaults(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t, "--feature-gates=WatchList=false")
	h := newHistory(t, cluster, 6)
	configs := h.kinds[0]
	configs.record.becomes(func(names map[string]bool) {
		for i := range 700 {
			configs.steady = append(configs.steady, fmt.Sprintf("%ssteady-%03d", h.prefix, i))
			names[configs.steady[i]] = true
		}
	}, func() {
		var wait sync.WaitGroup
		for at := range 16 {
			wait.Go(func() {
				for i := at; i < len(configs.steady); i += 16 {
					cluster.Create("configmaps", configMap(t, configs.steady[i]))
				}
			})
		}
		wait.Wait()
	})
	h.start(t, func(p harness.Program) (harness.Program, []string, *harness.Proxy) {
		proxy := harness.StartProxy(t, cluster)
		return p, []string{"--kubeconfig=" + cluster.KubeconfigWith(proxy.URL, harness.AdminToken)}, proxy
	})
	for _, f := range []fault{
		{"410 on watches", one(expired), true, "", false},
		{"410 on later pages", []harness.Fault{expired, {Status: 410, Only: isLaterPage}}, true, "", false},
		{"500 on later pages", []harness.Fault{expired, {Status: 500, Only: isLaterPage}}, true, "server_error", false},
		{"429 on pages", []harness.Fault{expired, {Status: 429, RetryAfter: 1, Only: harness.IsList}}, true, "throttled", false},
		{"later pages torn", []harness.Fault{expired, {Torn: 5000, Only: isLaterPage}}, true, "broken", false},
		{"pages that end in the middle as if whole", []harness.Fault{expired, {Torn: 5000, Clean: true, Only: harness.IsList}}, true, "", false},
		{"garbage in later pages", []harness.Fault{expired, {Garbage: 5000, Only: isLaterPage}}, true, "", false},
	} {
		h.last(t, f, 4*time.Second)
		h.isTrue(t, f.name)
	}
}

// TestRestoredFromBackup: a server that was restored to an older state, and continues its versions from there, is
// detected, also by watches that were cut and are reopened.
func TestRestoredFromBackup(t *testing.T) {
	t.Parallel() // it waits most of its time
	h := startHistory(t, harness.StartCluster(t), 7)
	h.cluster.Stop()
	backup := h.cluster.Backup()
	was := make([][]string, len(h.kinds))
	for i, kind := range h.kinds {
		was[i] = kind.record.present()
	}
	h.cluster.Start()
	for _, way := range []struct {
		name      string
		meanwhile []harness.Fault
	}{{"with requests held meanwhile", one(harness.Fault{Hold: true})}, {"with requests refused meanwhile", nil}} {
		for range 20 {
			h.change(t)
		}
		h.isTrue(t, "a restart")
		h.set(way.meanwhile...)
		h.cluster.Crash()
		h.cluster.Restore(backup)
		restore := h.cluster.Start
		for i, kind := range h.kinds {
			inner := restore
			restore = func() {
				kind.record.becomes(func(names map[string]bool) {
					clear(names)
					for _, name := range was[i] {
						names[name] = true
					}
				}, inner)
			}
		}
		restore()
		h.set()
		h.isTrue(t, "a restore, "+way.name)
		h.change(t)
		h.isTrue(t, "a change after it")
	}
}

// TestRandomHistory: faults of random order, length and overlap. E2E_HISTORY sets their number and adds the original;
// E2E_SEED selects them.
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
		if h.random.IntN(2) == 0 {
			g := faults[h.random.IntN(len(faults))]
			f = fault{name: f.name + " and " + g.name, set: slices.Concat(f.set, g.set), cut: f.cut || g.cut}
		}
		h.last(t, f, time.Duration(1+h.random.IntN(9))*time.Second)
		h.isTrue(t, f.name)
	}
}

// TestDeadConnections: open connections that receive nothing any more are detected, also if a proxy terminates TLS
// and HTTP so that keepalives succeed.
func TestDeadConnections(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	t.Run("with new ones that work", func(t *testing.T) {
		t.Parallel()
		h := startHistory(t, cluster.With(t), 2)
		h.set(harness.Fault{Freeze: true})
		h.change(t)
		h.isTrue(t, "all connections died")
	})
	t.Run("with new ones that are dead too", func(t *testing.T) {
		t.Parallel()
		h := startHistory(t, cluster.With(t), 3)
		h.set(harness.Fault{Freeze: true, FreezeNew: true})
		start := time.Now()
		// The reason depends on whether a watch or another request is affected first.
		h.waitCounted(t, "frozen", "timeout")
		t.Logf("counted after %.1f s", time.Since(start).Seconds())
		h.ours().WaitOutput("The API server fails")
		h.set()
		h.isTrue(t, "connections that had died came back")
		if cluster.IsOld() {
			// Not everything: the server lacks some kinds.
			h.ours().WaitOutput("Listed and watched again")
		} else {
			h.ours().WaitOutput("The API server works again")
		}
	})
}
