package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// bothDirections runs a test with the previous release first, as in an upgrade, and with this one first, as in a
// rollback.
func bothDirections(t *testing.T, program harness.Program, test func(t *testing.T, first, second harness.Program)) {
	harness.NotInSelfCheck(t)
	previous := harness.Previous(t, program)
	t.Run("upgrade", func(t *testing.T) { test(t, previous, program) })
	t.Run("rollback", func(t *testing.T) { test(t, program, previous) })
}

const (
	scrapeInterval = 200 * time.Millisecond
	// usualInterval is that of a Prometheus. No gap may exceed it.
	usualInterval = 15 * time.Second
	standbyPods   = 100
)

// replicaPorts are the addresses of a replica, which its successor takes over.
type replicaPorts struct {
	main, telemetry, udp int
	// path is where the other replicas reach its telemetry listener.
	path *harness.Passage
}

// standbyPair are two replicas of a real cluster with StatsD, scraped every 200 ms.
type standbyPair struct {
	t         *testing.T
	cluster   *harness.Cluster
	ports     [2]replicaPorts
	processes [2]*harness.Process

	done    chan struct{}
	workers sync.WaitGroup
	mu      sync.Mutex
	scrapes [2][]replicaScrape
}

// replicaScrape is a scrape of one replica.
type replicaScrape struct {
	sent, received time.Time
	exposes        bool
}

// startStandbyPair starts two replicas, of which the first one exposes, and begins to scrape them.
func startStandbyPair(t *testing.T, cluster *harness.Cluster, first, second harness.Program) *standbyPair {
	t.Helper()
	s := &standbyPair{t: t, cluster: cluster, done: make(chan struct{})}
	for i := range s.ports {
		s.ports[i] = replicaPorts{main: harness.FreePort(t), telemetry: harness.FreePort(t), udp: harness.FreePort(t)}
		s.ports[i].path = harness.StartPassageTo(t, fmt.Sprintf("127.0.0.1:%d", s.ports[i].telemetry), "127.0.0.1", harness.FreePort(t))
	}
	s.start(0, first)
	s.becomes(0, true)
	s.start(1, second)
	s.hear(true)
	s.becomes(1, false)
	for i := range s.ports {
		s.workers.Go(func() { s.scrapeAll(i) })
	}
	t.Cleanup(s.end)
	s.exposures(0, 3)
	return s
}

// start starts a replica and waits until it is synced, as `kubectl rollout` does.
func (s *standbyPair) start(i int, program harness.Program) {
	s.t.Helper()
	ports, other := s.ports[i], s.ports[1-i]
	s.processes[i] = harness.Start(s.t, program,
		fmt.Sprintf("--listen=127.0.0.1:%d", ports.main), fmt.Sprintf("--telemetry-listen=127.0.0.1:%d", ports.telemetry),
		fmt.Sprintf("--statsd.listen-udp=127.0.0.1:%d", ports.udp), "--statsd.listen-tcp=",
		"--kubeconfig="+s.cluster.Kubeconfig, "--resources=pods", "--standby",
		fmt.Sprintf("--standby-peers=127.0.0.1:%d,127.0.0.1:%d", ports.telemetry, other.path.Port))
	harness.WaitStatus(s.t, s.processes[i], s.base(i)+"/readyz", 200)
}

func (s *standbyPair) base(i int) string { return fmt.Sprintf("http://127.0.0.1:%d", s.ports[i].main) }

// own is one of a replica's own metrics.
func (s *standbyPair) own(i int, series string) string {
	exposition, err := harness.Scrape(fmt.Sprintf("http://127.0.0.1:%d/metrics", s.ports[i].telemetry), harness.Text)
	if err != nil {
		return err.Error()
	}
	value, _ := exposition.Value(series)
	return value
}

// waitOwn waits until one of a replica's own metrics has this value.
func (s *standbyPair) waitOwn(i int, series, want string) {
	s.t.Helper()
	harness.Eventually(s.t, fmt.Sprintf("%s of replica %d is %s", series, i, want), func() error {
		if got := s.own(i, series); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// becomes waits until a replica exposes its metrics, or no longer does.
func (s *standbyPair) becomes(i int, active bool) {
	s.t.Helper()
	s.waitOwn(i, "kstatd_standby", map[bool]string{true: "0", false: "1"}[active])
}

// hear waits until both replicas answer each other, or do not.
func (s *standbyPair) hear(answers bool) {
	s.t.Helper()
	for i := range s.ports {
		s.waitOwn(i, fmt.Sprintf("kstatd_standby_peer_up{peer=\"127.0.0.1:%d\"}", s.ports[1-i].path.Port), map[bool]string{true: "1", false: "0"}[answers])
	}
}

// send sends lines to a replica.
func (s *standbyPair) send(i, lines int) {
	s.t.Helper()
	conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", s.ports[i].udp))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Repeat("upgrade_hits:1|c\n", lines)); err != nil {
		s.t.Fatal(err)
	}
}

// counts waits until a replica, which exposes, has counted so many lines.
func (s *standbyPair) counts(i, lines int) {
	s.t.Helper()
	harness.Eventually(s.t, fmt.Sprintf("replica %d counts %d lines", i, lines), func() error {
		exposition, err := harness.Scrape(s.base(i)+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		if got, _ := exposition.Value("upgrade_hits"); got != fmt.Sprint(lines) {
			return fmt.Errorf("it counts %s", got)
		}
		return nil
	})
}

// scrapeAll scrapes a replica until the end. It may answer nothing, but never a part.
func (s *standbyPair) scrapeAll(i int) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for {
		scrape := replicaScrape{sent: time.Now()}
		if resp, err := client.Get(s.base(i) + "/metrics"); err == nil {
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			scrape.exposes = err == nil && resp.StatusCode == http.StatusOK && len(body) > 0
			if pods := strings.Count(string(body), "\nkube_pod_info{"); scrape.exposes && pods != standbyPods {
				s.t.Errorf("replica %d exposes %d of %d pods", i, pods, standbyPods)
			}
		}
		scrape.received = time.Now()
		s.mu.Lock()
		s.scrapes[i] = append(s.scrapes[i], scrape)
		s.mu.Unlock()
		select {
		case <-s.done:
			return
		case <-time.After(time.Until(scrape.sent.Add(scrapeInterval))):
		}
	}
}

// exposures waits until a replica has exposed its metrics in so many more scrapes.
func (s *standbyPair) exposures(i, more int) {
	s.t.Helper()
	count := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, scrape := range s.scrapes[i] {
			if scrape.exposes {
				n++
			}
		}
		return n
	}
	before := count()
	harness.Eventually(s.t, fmt.Sprintf("replica %d exposes in %d scrapes", i, more), func() error {
		if got := count() - before; got < more {
			return fmt.Errorf("in %d", got)
		}
		return nil
	})
}

func (s *standbyPair) end() {
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	s.workers.Wait()
}

// check ends the scrapes. Nothing may be missing for longer than the usual interval, and both replicas may expose
// between from and to only, which are zero without a partition.
func (s *standbyPair) check(from, to time.Time) {
	s.t.Helper()
	s.end()
	var received []time.Time
	for i, scrapes := range s.scrapes {
		for _, scrape := range scrapes {
			if scrape.exposes {
				received = append(received, scrape.received)
			}
		}
		for k := range len(scrapes) - 1 {
			before, after := scrapes[k], scrapes[k+1]
			if !before.exposes || !after.exposes {
				continue
			}
			// It has exposed in between.
			for _, other := range s.scrapes[1-i] {
				if other.exposes && other.sent.After(before.received) && other.received.Before(after.sent) &&
					(other.sent.Before(from) || other.received.After(to)) {
					s.t.Errorf("both replicas expose at %s", other.sent.Format(time.StampMilli))
				}
			}
		}
	}
	slices.SortFunc(received, time.Time.Compare)
	var gap time.Duration
	for k := range len(received) - 1 {
		gap = max(gap, received[k+1].Sub(received[k]))
	}
	s.t.Logf("no metrics for %s at most, in %d scrapes", gap.Round(time.Millisecond), len(s.scrapes[0])+len(s.scrapes[1]))
	if gap > usualInterval {
		s.t.Errorf("no metrics for %s", gap)
	}
}

// TestUpgradeStandby runs replicas of the previous release and of this one together. The active one is killed, frozen,
// ended, or cannot reach the other: the other one exposes, and counts the lines that any of them received.
func TestUpgradeStandby(t *testing.T) {
	cluster := startUpgradeCluster(t)
	bothDirections(t, harness.KstatdRun(t), func(t *testing.T, first, second harness.Program) {
		for _, fault := range []struct {
			name   string
			inject func(s *standbyPair)
			// returns is true if the first replica still runs afterwards.
			returns bool
		}{
			{"killed", func(s *standbyPair) { s.processes[0].Signal(syscall.SIGKILL) }, false},
			{"ended", func(s *standbyPair) {
				s.processes[0].Signal(syscall.SIGTERM)
				if code := s.processes[0].Exit(); code != 0 {
					s.t.Errorf("exit code %d", code)
				}
			}, false},
			{"frozen", func(s *standbyPair) {
				s.processes[0].Freeze()
				// Longer than 2 s: after a shorter pause it would go on.
				s.exposures(1, 15)
				s.processes[0].Signal(syscall.SIGCONT)
				s.becomes(0, false)
			}, true},
		} {
			t.Run(fault.name, func(t *testing.T) {
				s := startStandbyPair(t, cluster, first, second)
				s.send(0, 100)
				s.send(1, 50)
				s.counts(0, 150)
				s.waitOwn(1, "kstatd_standby_lines_total", "100")
				fault.inject(s)
				s.exposures(1, 3)
				s.counts(1, 150)
				s.send(1, 10)
				s.counts(1, 160)
				if fault.returns {
					s.waitOwn(0, "kstatd_standby_lines_total", "60")
				}
				s.waitOwn(1, "kstatd_standby_lost_lines_total", "0")
				s.check(time.Time{}, time.Time{})
			})
		}
		t.Run("partitioned", func(t *testing.T) {
			s := startStandbyPair(t, cluster, first, second)
			from := time.Now()
			for _, ports := range s.ports {
				ports.path.Close()
			}
			s.hear(false)
			s.exposures(0, 3)
			s.exposures(1, 3)
			for i := range s.ports {
				s.send(i, 20)
				s.counts(i, 20)
				status, err := harness.Get(s.base(i) + "/status")
				if want := fmt.Sprintf("127.0.0.1:%d has not answered", s.ports[1-i].path.Port); err != nil || !strings.Contains(status.Body, want) {
					t.Errorf("replica %d does not report the partition: %v", i, err)
				}
			}
			for _, ports := range s.ports {
				ports.path.Open()
			}
			s.hear(true)
			s.becomes(0, true)
			s.becomes(1, false)
			to := time.Now()
			s.exposures(0, 5)
			s.counts(0, 40)
			s.waitOwn(1, "kstatd_standby_lines_total", "20")
			s.check(from, to)
		})
	})
}

// TestRollingUpgrade replaces both replicas, first with this release, then with the previous one.
func TestRollingUpgrade(t *testing.T) {
	harness.NotInSelfCheck(t)
	program := harness.KstatdRun(t)
	previous := harness.Previous(t, program)
	s := startStandbyPair(t, startUpgradeCluster(t), previous, previous)
	for _, next := range []harness.Program{program, previous} {
		for i := range s.processes {
			s.processes[i].Signal(syscall.SIGTERM)
			if code := s.processes[i].Exit(); code != 0 {
				t.Errorf("%s: exit code %d", next.Name, code)
			}
			s.exposures(1-i, 3)
			s.start(i, next)
			s.hear(true)
			s.becomes(1-i, true)
		}
		// Each replica was started before these lines.
		for i := range s.processes {
			s.send(1-i, 10)
			s.waitOwn(i, "kstatd_standby_lines_total", "10")
			s.waitOwn(i, "kstatd_standby_lost_lines_total", "0")
		}
	}
	s.check(time.Time{}, time.Time{})
}

// startUpgradeCluster starts a cluster with the pods that each replica exposes.
func startUpgradeCluster(t *testing.T) *harness.Cluster {
	t.Helper()
	cluster := harness.StartCluster(t)
	for i := range standbyPods {
		cluster.Create("pods", harness.Object(t, fmt.Sprintf(
			"{apiVersion: v1, kind: Pod, metadata: {name: pod-%03d, namespace: upgrade}, spec: {containers: [{name: c, image: i}]}}", i)))
	}
	return cluster
}

// TestUpgradeShards has shards of the previous release next to those of this one: real and virtual ones together have
// every series once.
func TestUpgradeShards(t *testing.T) {
	cluster := startUpgradeCluster(t)
	bothDirections(t, harness.OurKubeStateMetrics(t), func(t *testing.T, first, second harness.Program) {
		const resources = "--resources=pods,namespaces,configmaps,services"
		programs := []harness.Program{first, second}
		start := func(program harness.Program, args ...string) *harness.KubeExporter {
			return harness.StartKubeExporter(t, program, append([]string{"--kubeconfig=" + cluster.Kubeconfig, resources}, args...)...)
		}
		all := []*harness.KubeExporter{start(first), start(second)}
		whole := func(format string) []string {
			var both [2][]string
			harness.Eventually(t, "both releases expose all pods", func() error {
				for i, exporter := range all {
					exposition, err := harness.Scrape(exporter.Base+"/metrics", format)
					if err != nil {
						return err
					}
					pods := 0
					for _, sample := range exposition.Samples {
						if strings.HasPrefix(sample, "kube_pod_info{") {
							pods++
						}
					}
					if pods != standbyPods {
						return fmt.Errorf("%d pods", pods)
					}
					both[i] = exposition.Samples
				}
				return harness.Difference(both[0], both[1])
			})
			return both[0]
		}
		together := func(format string, urls ...string) error {
			var samples []string
			for _, url := range urls {
				exposition, err := harness.Scrape(url, format)
				if err != nil {
					return err
				}
				samples = append(samples, exposition.Samples...)
			}
			slices.Sort(samples)
			return harness.Difference(samples, whole(format))
		}
		whole(harness.Text)
		for _, total := range []int{2, 3, 7} {
			for _, format := range []string{harness.Text, harness.OpenMetrics} {
				var urls []string
				for shard := range total {
					urls = append(urls, fmt.Sprintf("%s/metrics?shard=%d&total_shards=%d", all[shard%2].Base, shard, total))
				}
				if err := together(format, urls...); err != nil {
					t.Errorf("%d virtual shards: %v", total, err)
				}
			}
		}
		var urls []string
		for shard, program := range programs {
			exporter := start(program, fmt.Sprintf("--shard=%d", shard), "--total-shards=2")
			for part := range 2 {
				urls = append(urls, fmt.Sprintf("%s/metrics?shard=%d&total_shards=2", exporter.Base, part))
			}
		}
		harness.Eventually(t, "real shards, each in two virtual ones", func() error { return together(harness.Text, urls...) })
	})
}

// TestUpgradeAutosharding scales a StatefulSet of pods of both releases, which poll each other, under continuous scrapes.
func TestUpgradeAutosharding(t *testing.T) {
	bothDirections(t, harness.OurKubeStateMetrics(t), func(t *testing.T, first, second harness.Program) {
		s := startSharded(t)
		s.pause = scrapeInterval
		kubeconfig := s.kubeconfig(s.cluster.URL())
		for _, program := range []harness.Program{first, second, first} {
			s.program = program
			s.startPolled(kubeconfig)
		}
		s.begin()
		for _, total := range []int{2, 3, 1} {
			watched := s.watch()
			s.scale(total)
			watched.settle(total)
		}
		for _, exporter := range s.exporters {
			exporter.WaitOutput("Exposed gained objects", "Some(")
		}
	})
}
