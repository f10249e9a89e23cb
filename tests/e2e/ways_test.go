package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// over is an argument for history.start: programs with only this kubeconfig.
func over(kubeconfig string) func(harness.Program) (harness.Program, []string, *harness.Proxy) {
	return func(p harness.Program) (harness.Program, []string, *harness.Proxy) {
		return p, []string{"--kubeconfig=" + kubeconfig}, nil
	}
}

var adminToken = fmt.Sprintf("token: %q", harness.AdminToken)

// TestNameStopsResolving: while the API server's name cannot be resolved, the last state stays; when it resolves
// again, also to another address, the exposition is current.
func TestNameStopsResolving(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	h := newHistory(t, cluster, 8)
	names := harness.StartNameServer(t, "127.0.0.1")
	port := harness.FreePort(t)
	here := harness.StartPassage(t, cluster, "127.0.0.1", port)
	// A name in the server's certificate.
	config := kubeconfig(t, cluster, fmt.Sprintf("https://kubernetes.default.svc:%d", port), "", adminToken)
	h.start(t, func(p harness.Program) (harness.Program, []string, *harness.Proxy) {
		return names.For(p), []string{"--kubeconfig=" + config}, nil
	})
	for _, fault := range []struct {
		name  string
		begin func()
	}{{"unknown", names.Unknown}, {"not to be told", names.Fails}, {"asked for without an answer", names.Silent}} {
		asked := names.Asked()
		fault.begin()
		here.Cut()
		h.changeFor(t, 5*time.Second)
		harness.Eventually(t, "the name is asked for", func() error {
			if names.Asked() == asked {
				return fmt.Errorf("it is not")
			}
			return nil
		})
		names.Is("127.0.0.1")
		h.isTrue(t, "the name was "+fault.name)
	}
	h.ours().WaitOutput("kubernetes.default.svc")
	here.Close()
	h.change(t)
	harness.StartPassage(t, cluster, "127.0.0.2", port)
	names.Is("127.0.0.2")
	h.isTrue(t, "the name leads elsewhere")
}

// TestAuthorityRotates: an API server with a certificate of a new CA is trusted as soon as the CA file has been
// updated.
func TestAuthorityRotates(t *testing.T) {
	t.Parallel() // it waits for the outage to end
	cluster := harness.StartCluster(t)
	h := newHistory(t, cluster, 9)
	h.start(t, over(kubeconfig(t, cluster, cluster.URL(), "", adminToken)))
	old := read(t, filepath.Join(cluster.Dir, "ca.crt"))
	cluster.Crash()
	cluster.NewAuthority()
	fresh := read(t, filepath.Join(cluster.Dir, "ca.crt"))
	replaceFile(t, filepath.Join(cluster.Dir, "ca.crt"), old)
	h.change(t)
	harness.WaitStatus(t, h.ours().Process, h.ours().Base+"/livez", 503)
	replaceFile(t, filepath.Join(cluster.Dir, "ca.crt"), fresh)
	h.isTrue(t, "the authority was exchanged")
}

// TestKindForbidden: the objects of a kind that may no longer be listed are dropped after the configured time, all
// others are unaffected, and the kind returns with its permission.
func TestKindForbidden(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	h := newHistory(t, cluster, 10)
	secrets := slices.IndexFunc(h.kinds, func(k *historyKind) bool { return k.resource == "secrets" })
	rules := func(resources string) string {
		return fmt.Sprintf(`[{apiGroups: ["", example.io, apiextensions.k8s.io], resources: [%s], verbs: [list, watch]}]`, resources)
	}
	const others = "configmaps, widgets, customresourcedefinitions"
	token := cluster.ServiceAccountToken("history", rules(others+", secrets"))
	way := harness.StartPassage(t, cluster, "127.0.0.1", harness.FreePort(t))
	config := kubeconfig(t, cluster, fmt.Sprintf("https://127.0.0.1:%d", way.Port), "", fmt.Sprintf("token: %q", token))
	h.start(t, func(p harness.Program) (harness.Program, []string, *harness.Proxy) {
		args := []string{"--kubeconfig=" + config, "--resources=configmaps,secrets"}
		if p.Name != harness.KubeStateMetrics(t).Name {
			args = append(args, "--staleness-limit=5s")
		}
		return p, args, nil
	})
	may := func(resources string) {
		patch := harness.Object(t, "rules: "+rules(resources)).Object
		cluster.Patch("clusterroles", harness.Object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: history}}"), patch)
		// An open watch keeps the permissions that it started with.
		way.Cut()
	}
	record := h.kinds[secrets].record
	record.giveUp(true)
	may(others)
	start := time.Now()
	harness.NotInSelfCheck(t)
	harness.Eventually(t, "what may not be seen goes, and nothing else", func() error {
		h.change(t)
		e, err := harness.Scrape(h.ours().Base+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		if shown := h.kinds[secrets].shown(e); len(shown) > 0 {
			return fmt.Errorf("%d secrets are shown", len(shown))
		}
		for i, kind := range h.kinds {
			if i != secrets && len(kind.shown(e)) == 0 {
				t.Fatalf("%s are gone", kind.resource)
			}
		}
		return nil
	})
	t.Logf("gone %.1f s after the rights", time.Since(start).Seconds())
	h.ours().WaitOutput("forbidden")
	if withOriginal() {
		h.changeFor(t, 30*time.Second)
		e, err := harness.Scrape(h.sides[1].Base+"/metrics", harness.Text)
		t.Logf("%.1f s after the rights the original shows %d secrets (%v)", time.Since(start).Seconds(), len(h.kinds[secrets].shown(e)), err)
	}
	may(others + ", secrets")
	h.isTrue(t, "a kind was forbidden")
	record.giveUp(false)
}

// TestClockJumps: whatever the node's clock shows, the exposition equals the cluster; if the clock is before the
// validity of the server's certificate, as soon as it is right again.
func TestClockJumps(t *testing.T) {
	t.Parallel() // it waits most of its time
	cluster := harness.StartCluster(t)
	h := newHistory(t, cluster, 11)
	way := harness.StartPassage(t, cluster, "127.0.0.1", harness.FreePort(t))
	h.start(t, over(kubeconfig(t, cluster, fmt.Sprintf("https://127.0.0.1:%d", way.Port), "", adminToken)))
	jump := func(wrong time.Duration) {
		for _, s := range h.sides {
			s.JumpClock(t, wrong)
		}
		way.Cut()
	}
	// The certificates are valid from an hour before the server's start, for a year.
	for _, wrong := range []time.Duration{time.Hour, -30 * time.Minute, 100 * 24 * time.Hour, 0} {
		jump(wrong)
		h.changeFor(t, 2*time.Second)
		h.isTrue(t, fmt.Sprintf("the clock is wrong by %s", wrong))
		harness.Eventually(t, "it says the wrong time", func() error { return saysTime(h.ours(), time.Now().Add(wrong)) })
	}
	jump(-48 * time.Hour)
	// A restarted server cannot resume a TLS session without verifying its certificate.
	cluster.Crash()
	cluster.Start()
	harness.WaitStatus(t, h.ours().Process, h.ours().Base+"/livez", 503)
	h.changeFor(t, 3*time.Second)
	jump(0)
	h.isTrue(t, "the certificate was not good yet")
}

// saysTime checks that an exporter reports a response of the server at this time.
func saysTime(s *side, about time.Time) error {
	e, err := harness.Scrape(s.Telemetry+"/metrics", harness.Text)
	if err != nil {
		return err
	}
	const series = `kstatd_kubernetes_last_heard_timestamp_seconds{namespace="",resource="*v1.ConfigMap"}`
	value, found := e.Value(series)
	if !found {
		return fmt.Errorf("there is no %s", series)
	}
	seconds, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return err
	}
	if apart := about.Sub(time.Unix(int64(seconds), 0)).Abs(); apart > time.Minute {
		return fmt.Errorf("it is %s away", apart)
	}
	return nil
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
