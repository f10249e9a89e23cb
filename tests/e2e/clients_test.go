package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"kstatd/e2e/harness"

	"github.com/DataDog/datadog-go/v5/statsd"
	cactus "github.com/cactus/go-statsd-client/v5/statsd"
)

// script runs a client in another language. .ci/run installs their packages in tests/.bin.
func script(t *testing.T, args ...string) {
	t.Helper()
	interpreter := map[string]string{"py": "python", "js": "node"}[args[0][len(args[0])-2:]]
	if path := harness.RepoFile("tests", ".bin", "python", "bin", "python"); interpreter == "python" {
		interpreter = path
	}
	cmd := exec.Command(interpreter, append([]string{harness.RepoFile("tests", "e2e", "clients", args[0])}, args[1:]...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+harness.RepoFile("tests", ".bin", "node", "node_modules"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// TestClients sends with popular clients, over each transport that the client and statsd_exporter share.
func TestClients(t *testing.T) {
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), "")
	host, udp, tcp := "127.0.0.1", strconv.Itoa(server.UDPPort), strconv.Itoa(server.TCPPort)
	address := net.JoinHostPort(host, udp)

	pythonStatsd := func(prefix string) []string {
		return []string{
			prefix + "_hits 5", prefix + "_level 40.5", prefix + "_took_sum 0.875", prefix + "_took_count 3",
			prefix + `_took{quantile="0.5"} 0.25`, prefix + "_batched 5",
		}
	}
	pythonDatadog := func(prefix string) []string {
		return []string{
			prefix + `_hits{code="200",env="e2e",path="/a_b"} 5`, prefix + `_level{env="e2e"} 42.5`,
			prefix + `_size_sum{env="e2e"} 6`, prefix + `_size{env="e2e",quantile="0.5"} 1.5`,
			prefix + `_spread_count{env="e2e",k="v"} 3`, prefix + `_took_sum{env="e2e"} 0.25`,
		}
	}
	hotShots := func(prefix string) []string {
		return []string{
			prefix + `_hits{code="200",env="e2e"} 5`, prefix + `_level{env="e2e"} 40.5`, prefix + `_took_sum{env="e2e"} 0.25`,
			prefix + `_size_sum{env="e2e"} 0.5`, prefix + `_spread_sum{env="e2e"} 1.5`,
		}
	}
	for _, test := range []struct {
		name string
		send func(t *testing.T, prefix string)
		want func(prefix string) []string
	}{
		{"python_statsd_udp", func(t *testing.T, p string) { script(t, "python_statsd.py", "udp", host, udp, p) }, pythonStatsd},
		{"python_statsd_tcp", func(t *testing.T, p string) { script(t, "python_statsd.py", "tcp", host, tcp, p) }, pythonStatsd},
		{"python_datadog_udp", func(t *testing.T, p string) { script(t, "python_datadog.py", "udp", host, udp, p) }, pythonDatadog},
		{"python_datadog_unixgram", func(t *testing.T, p string) { script(t, "python_datadog.py", "unixgram", server.Socket, "-", p) }, pythonDatadog},
		{"hot_shots_udp", func(t *testing.T, p string) { script(t, "hot_shots.js", "udp", host, udp, p) }, hotShots},
		{"hot_shots_tcp", func(t *testing.T, p string) { script(t, "hot_shots.js", "tcp", host, tcp, p) }, hotShots},
		{"hot_shots_unixgram", func(t *testing.T, p string) { script(t, "hot_shots.js", "uds", server.Socket, "-", p) }, hotShots},
		{"go_datadog_udp", func(t *testing.T, p string) { goDatadog(t, address, p) }, goDatadogSeries},
		{"go_datadog_unixgram", func(t *testing.T, p string) { goDatadog(t, "unixgram://"+server.Socket, p) }, goDatadogSeries},
		{"go_cactus_udp", func(t *testing.T, p string) { goCactus(t, "udp", address, p) }, goCactusSeries},
		{"go_cactus_tcp", func(t *testing.T, p string) { goCactus(t, "tcp", net.JoinHostPort(host, tcp), p) }, goCactusSeries},
		{"go_cactus_unixgram", func(t *testing.T, p string) { goCactus(t, "unixgram", server.Socket, p) }, goCactusSeries},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.send(t, test.name)
			server.With(t).WaitSeries(test.want(test.name)...)
		})
	}
}

func goDatadog(t *testing.T, address, prefix string) {
	t.Helper()
	client, err := statsd.New(address, statsd.WithNamespace(prefix), statsd.WithTags([]string{"env:e2e"}),
		statsd.WithoutTelemetry(), statsd.WithoutOriginDetection(), statsd.WithExtendedClientSideAggregation())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		client.Incr("hits", []string{"code:200"}, 1), client.Count("hits", 4, []string{"code:200"}, 1),
		client.Gauge("level", 42.5, nil, 1), client.Timing("took", 250*time.Millisecond, nil, 1),
		// Extended aggregation packs the three values into one line.
		client.Histogram("size", 0.5, nil, 1), client.Histogram("size", 1.5, nil, 1), client.Distribution("spread", 4, nil, 1),
		client.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func goDatadogSeries(prefix string) []string {
	return []string{
		prefix + `_hits{code="200",env="e2e"} 5`, prefix + `_level{env="e2e"} 42.5`, prefix + `_took_sum{env="e2e"} 0.25`,
		prefix + `_size_count{env="e2e"} 2`, prefix + `_size_sum{env="e2e"} 2`, prefix + `_spread_sum{env="e2e"} 4`,
	}
}

// lineSender adds transports to go-statsd-client.
type lineSender struct {
	net.Conn
	end string
}

func (s lineSender) Send(data []byte) (int, error) { return fmt.Fprintf(s.Conn, "%s%s", data, s.end) }

func goCactus(t *testing.T, network, address, prefix string) {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	sender := lineSender{Conn: conn}
	if network == "tcp" {
		sender.end = "\n"
	}
	client, err := cactus.NewClientWithSender(sender, prefix, cactus.SuffixOctothorpe)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		client.Inc("hits", 5, 1, cactus.Tag{"code", "200"}), client.Gauge("level", 42, 1), client.GaugeDelta("level", -2, 1),
		client.Timing("took", 250, 1), client.TimingDuration("took", 125*time.Millisecond, 1), client.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func goCactusSeries(prefix string) []string {
	return []string{prefix + `_hits{code="200"} 5`, prefix + "_level 40", prefix + "_took_sum 0.375", prefix + "_took_count 2"}
}
