package e2e

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"github.com/DataDog/datadog-go/v5/statsd"
	cactus "github.com/cactus/go-statsd-client/v5/statsd"
)

// batchingCalls is how often each client counts, in batchingNames metrics by turns.
const batchingCalls, batchingNames = 2000, 20

// TestClientBatching measures how many lines each client puts in a datagram, and compares that with the table in
// docs/senders.md. `go test -run TestClientBatching -v` prints the rows.
func TestClientBatching(t *testing.T) {
	harness.NotInSelfCheck(t)
	page, err := os.ReadFile(harness.RepoFile("docs", "senders.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		// client and settings name the row.
		client, settings, transport string
		send                        func(t *testing.T, server *harness.StatsdServer)
	}{
		{"Python `statsd` 4.0", "default", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "python_batching.py", "statsd", "default", "127.0.0.1", strconv.Itoa(s.UDPPort))
		}},
		{"Python `statsd` 4.0", "`with client.pipeline()`", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "python_batching.py", "statsd", "pipeline", "127.0.0.1", strconv.Itoa(s.UDPPort))
		}},
		{"Python `datadog` 0.56", "default", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "python_batching.py", "datadog", "default", "udp", "127.0.0.1", strconv.Itoa(s.UDPPort))
		}},
		{"Python `datadog` 0.56", "`disable_buffering=False`", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "python_batching.py", "datadog", "buffering", "udp", "127.0.0.1", strconv.Itoa(s.UDPPort))
		}},
		{"Python `datadog` 0.56", "`disable_buffering=False`", "Unix socket", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "python_batching.py", "datadog", "buffering", "unixgram", s.Socket, "-")
		}},
		{"Node `hot-shots` 17.1", "default", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "hot_shots_batching.js", "default", "udp", "127.0.0.1", strconv.Itoa(s.UDPPort))
		}},
		{"Node `hot-shots` 17.1", "`maxBufferSize: 1432`", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "hot_shots_batching.js", "buffering", "udp", "127.0.0.1", strconv.Itoa(s.UDPPort))
		}},
		{"Node `hot-shots` 17.1", "default", "Unix socket", func(t *testing.T, s *harness.StatsdServer) {
			script(t, "hot_shots_batching.js", "default", "uds", s.Socket, "-")
		}},
		{"Go `datadog-go` 5.9", "default", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			countWithDatadog(t, udpAddress(s))
		}},
		{"Go `datadog-go` 5.9", "`WithoutClientSideAggregation()`", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			countWithDatadog(t, udpAddress(s), statsd.WithoutClientSideAggregation())
		}},
		{"Go `datadog-go` 5.9", "`WithoutClientSideAggregation()`", "Unix socket", func(t *testing.T, s *harness.StatsdServer) {
			countWithDatadog(t, "unixgram://"+s.Socket, statsd.WithoutClientSideAggregation())
		}},
		{"Go `go-statsd-client` 5.1", "default", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			countWithCactus(t, &cactus.ClientConfig{Address: udpAddress(s)})
		}},
		{"Go `go-statsd-client` 5.1", "`UseBuffered: true`", "UDP", func(t *testing.T, s *harness.StatsdServer) {
			countWithCactus(t, &cactus.ClientConfig{Address: udpAddress(s), UseBuffered: true})
		}},
	} {
		t.Run(strings.NewReplacer(" ", "_", "`", "").Replace(test.client+"_"+test.settings+"_"+test.transport), func(t *testing.T) {
			server := harness.StartStatsd(t, harness.OurStatsdExporter(t), "")
			test.send(t, server)
			var total float64
			harness.Eventually(t, "each call counts", func() error {
				total = 0
				for number := range batchingNames {
					total += server.Own(fmt.Sprintf("batching_requests%d", number))
				}
				if total != batchingCalls {
					return fmt.Errorf("%v of %d calls", total, batchingCalls)
				}
				return nil
			})
			lines := server.Own("statsd_exporter_samples_total")
			datagrams := server.Own("statsd_exporter_udp_packets_total") + server.Own("statsd_exporter_unixgram_packets_total")
			row := fmt.Sprintf("| %s | %s | %s |", test.client, test.settings, test.transport)
			t.Logf("%s %.0f | %.0f | %.1f |", row, lines, datagrams, lines/datagrams)
			_, rest, found := strings.Cut(string(page), row)
			if !found {
				t.Fatalf("docs/senders.md has no row %s", row)
			}
			cells := strings.Split(strings.SplitN(rest, "\n", 2)[0], "|")
			for at, measured := range []float64{lines, datagrams, lines / datagrams} {
				documented, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(cells[at]), ",", ""), 64)
				// Flushes by time may cut a datagram short.
				if err != nil || measured > documented*1.1+2 || measured < documented*0.9-2 {
					t.Errorf("docs/senders.md says %s in column %d, measured %.1f", cells[at], at+1, measured)
				}
			}
		})
	}
}

func udpAddress(s *harness.StatsdServer) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.UDPPort))
}

func countWithDatadog(t *testing.T, address string, options ...statsd.Option) {
	t.Helper()
	client, err := statsd.New(address, append(options, statsd.WithoutTelemetry(), statsd.WithoutOriginDetection())...)
	if err != nil {
		t.Fatal(err)
	}
	for call := range batchingCalls {
		if err := client.Incr(fmt.Sprintf("batching.requests%d", call%batchingNames), nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
}

func countWithCactus(t *testing.T, config *cactus.ClientConfig) {
	t.Helper()
	client, err := cactus.NewClientWithConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for call := range batchingCalls {
		if err := client.Inc(fmt.Sprintf("batching.requests%d", call%batchingNames), 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
}
