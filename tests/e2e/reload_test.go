package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// reloading is an exporter with an options file, behind a gate; every scrape of it is checked.
type reloading struct {
	*harness.KubeExporter
	t    *testing.T
	gate *harness.APIGate
	file string
	// configMaps and secrets are their numbers.
	configMaps, secrets int
	scrapes             atomic.Int64
}

const bothKinds = "resources: {configmaps: {}, secrets: {}}\n"

// The second configuration has different families of both kinds.
const fewerFamilies = bothKinds + "metric_denylist: {kube_configmap_created: {}, kube_secret_created: {}}\n"

func startReloading(t *testing.T, configMaps, secrets int) (*reloading, *harness.Cluster) {
	t.Helper()
	cluster := harness.StartCluster(t)
	fill(t, cluster, "configmaps", "ConfigMap", configMaps)
	fill(t, cluster, "secrets", "Secret", secrets)
	r := &reloading{t: t, gate: cluster.StartAPIGate(t), file: filepath.Join(t.TempDir(), "options.yaml")}
	r.write(bothKinds)
	r.KubeExporter = harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--resources=configmaps", "--kubeconfig="+cluster.KubeconfigWith(r.gate.URL, harness.AdminToken), "--config="+r.file)
	r.waitGauge("1")
	if err := harness.Poll(harness.Patience, func() error {
		e, err := harness.Scrape(r.Base+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		r.configMaps, r.secrets = families(e)["kube_configmap_info"], families(e)["kube_secret_info"]
		if r.configMaps < configMaps || r.secrets < secrets {
			return fmt.Errorf("%d config maps, %d secrets", r.configMaps, r.secrets)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return r, cluster
}

// fill creates objects, several concurrently.
func fill(t *testing.T, cluster *harness.Cluster, resource, kind string, count int) {
	t.Helper()
	var wait sync.WaitGroup
	const writers = 16
	for i := range writers {
		wait.Go(func() {
			for k := i; k < count; k += writers {
				object := harness.Object(t, fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: o-%d-%s, namespace: e2e}}", kind, k, strings.Repeat("x", 200)))
				if _, err := cluster.TryCreate(resource, object); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func (r *reloading) write(text string) {
	r.t.Helper()
	replaceFile(r.t, r.file, text)
}

func families(e harness.Exposition) map[string]int {
	counts := map[string]int{}
	for _, line := range e.Samples {
		name, _, _ := strings.Cut(line, "{")
		counts[name]++
	}
	return counts
}

// state scrapes once: every kind is complete and in one of its two forms. It returns which kinds have the new form.
func (r *reloading) state() (newConfigMaps, newSecrets bool, err error) {
	e, err := harness.Scrape(r.Base+"/metrics", harness.Text)
	if err != nil {
		return false, false, err
	}
	r.scrapes.Add(1)
	if len(e.Distinct().Samples) != len(e.Samples) {
		return false, false, fmt.Errorf("a series is there twice")
	}
	counts := families(e)
	form := func(kind string, want int) (bool, error) {
		info, created := counts["kube_"+kind+"_info"], counts["kube_"+kind+"_created"]
		if info != want || created != want && created != 0 {
			return false, fmt.Errorf("%d of %d %ss, %d with their creation", info, want, kind, created)
		}
		return created == 0, nil
	}
	if newConfigMaps, err = form("configmap", r.configMaps); err != nil {
		return false, false, err
	}
	newSecrets, err = form("secret", r.secrets)
	return newConfigMaps, newSecrets, err
}

// watch scrapes continuously until the returned function is called, which fails the test if any scrape was wrong.
func (r *reloading) watch() (end func()) {
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, _, err := r.state(); err != nil {
				done <- err
				return
			}
		}
	}()
	return func() {
		r.t.Helper()
		close(stop)
		if err := <-done; err != nil {
			r.t.Errorf("after %d scrapes: %v", r.scrapes.Load(), err)
		}
	}
}

func (r *reloading) gauge() (string, error) {
	e, err := harness.Scrape(r.Telemetry+"/metrics", harness.Text)
	if err != nil {
		return "", err
	}
	value, found := e.Value(fmt.Sprintf(`kube_state_metrics_last_config_reload_successful{filename="%s",type="config"}`, r.file))
	if !found {
		return "", fmt.Errorf("there is no gauge")
	}
	return value, nil
}

func (r *reloading) waitGauge(want string) {
	r.t.Helper()
	harness.Eventually(r.t, "the gauge is "+want, func() error {
		value, err := r.gauge()
		if err == nil && value != want {
			err = fmt.Errorf("it is %s", value)
		}
		return err
	})
}

// reload writes one of the two configurations and waits until both kinds have its form and the gauge is 1.
func (r *reloading) reload(text string) {
	r.t.Helper()
	r.write(text)
	r.waitFor(text)
}

func (r *reloading) waitFor(text string) {
	r.t.Helper()
	want := text == fewerFamilies
	harness.Eventually(r.t, "both kinds are as the file says", func() error {
		configMaps, secrets, err := r.state()
		if err == nil && (configMaps != want || secrets != want) {
			err = fmt.Errorf("new are: config maps %t, secrets %t", configMaps, secrets)
		}
		return err
	})
	r.waitGauge("1")
}

// TestReloadWhileListsFail: while lists fail, first all and then one kind's, each kind keeps its old state until its
// own new one is complete, and the gauge shows that.
func TestReloadWhileListsFail(t *testing.T) {
	harness.NotInSelfCheck(t)
	r, _ := startReloading(t, 1200, 800)
	for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden, http.StatusTooManyRequests, harness.Hold} {
		t.Run(fmt.Sprint("status ", code), func(t *testing.T) {
			end := r.watch()
			var lists atomic.Int64
			r.gate.Rule(func(q *http.Request) int {
				if !harness.IsList(q) {
					return 0
				}
				lists.Add(1)
				return code
			})
			r.write(fewerFamilies)
			r.waitGauge("0")
			harness.Eventually(t, "lists are tried", func() error {
				if lists.Load() == 0 {
					return fmt.Errorf("none was")
				}
				return nil
			})
			// The kind that can be listed again does not wait for the other.
			r.gate.Rule(func(q *http.Request) int {
				if harness.IsList(q) && strings.Contains(q.URL.Path, "configmaps") {
					return code
				}
				return 0
			})
			// If the server permanently refuses the list, the old config maps are served with the families that are still
			// configured.
			refused := code == http.StatusForbidden
			harness.Eventually(t, "secrets are new", func() error {
				configMaps, secrets, err := r.state()
				if configMaps && !refused {
					t.Fatal("config maps are new although they cannot be listed")
				}
				if err == nil && !(secrets && configMaps == refused) {
					err = fmt.Errorf("config maps are new: %t, secrets: %t", configMaps, secrets)
				}
				return err
			})
			if value, err := r.gauge(); err != nil || value != "0" {
				t.Errorf("the gauge is %s (%v) while the old config maps are served", value, err)
			}
			r.gate.Rule(nil)
			r.waitFor(fewerFamilies)
			r.reload(bothKinds)
			end()
		})
	}
	t.Logf("%d scrapes", r.scrapes.Load())
}

// TestReloadDuringOutage: a file that is edited during an outage is applied after it.
func TestReloadDuringOutage(t *testing.T) {
	harness.NotInSelfCheck(t)
	r, cluster := startReloading(t, 300, 300)
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"away", func() { cluster.Stop() }, func() { cluster.Start() }},
		{"frozen", func() { cluster.Process().Freeze() }, func() { cluster.Process().Signal(syscall.SIGCONT) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			end := r.watch()
			fault.begin()
			noticed := func() int { return strings.Count(r.Output(), "Changes detected") }
			before := noticed()
			// The second edit supersedes the first.
			r.write(bothKinds + "metric_denylist: {kube_configmap_info: {}}\n")
			r.waitGauge("0")
			r.write(fewerFamilies)
			scrapes := r.scrapes.Load()
			harness.Eventually(t, "both edits are noticed", func() error {
				if now := noticed(); now < before+2 {
					return fmt.Errorf("%d of 2", now-before)
				}
				return nil
			})
			harness.Eventually(t, "it is scraped meanwhile", func() error {
				if r.scrapes.Load() < scrapes+20 {
					return fmt.Errorf("%d scrapes", r.scrapes.Load()-scrapes)
				}
				return nil
			})
			if value, err := r.gauge(); err != nil || value != "0" {
				t.Errorf("the gauge is %s (%v)", value, err)
			}
			fault.end()
			r.waitFor(fewerFamilies)
			r.reload(bothKinds)
			end()
		})
	}
}

// TestReloadMemory: a reload of many objects needs no more additional memory than one kind.
func TestReloadMemory(t *testing.T) {
	harness.NotInSelfCheck(t)
	empty, _ := startReloading(t, 0, 0)
	base := resident(t, empty.Pid())
	const each = 12_000
	r, _ := startReloading(t, each, each)
	for range 3 {
		if _, _, err := r.state(); err != nil {
			t.Fatal(err)
		}
	}
	steady := resident(t, r.Pid())
	kind := (steady - base) / 2
	// The allocator returns free memory at varying times: one reload within the limit is sufficient.
	var above int
	for range 4 {
		peak := r.highest(func() {
			for range 3 {
				r.reload(fewerFamilies)
				r.reload(bothKinds)
			}
		})
		above = peak - steady
		t.Logf("KiB: empty %d, %d objects of two kinds %d (one kind %d), highest of six reloads %d (%d above), afterwards %d", base, 2*each, steady, kind, peak, above, resident(t, r.Pid()))
		// Lists arrive in pieces, which are held next to the resulting objects.
		if above <= kind*3/2+4<<10 {
			return
		}
	}
	t.Errorf("a reload takes %d KiB, one kind has %d", above, kind)
}

// highest is the peak memory during f, in KiB.
func (r *reloading) highest(f func()) int {
	peak := 0
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for ticker := time.NewTicker(2 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-ticker.C:
				peak = max(peak, resident(r.t, r.Pid()))
			}
		}
	}()
	f()
	close(stop)
	<-done
	return peak
}

// resident is the resident memory of a process in KiB, without pages of the program file, which are loaded on first
// use.
func resident(t *testing.T, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Error(err)
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kib, _ := strconv.Atoi(strings.Fields(rest)[0])
	return kib
}
