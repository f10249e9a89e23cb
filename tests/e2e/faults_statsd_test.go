package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kstatd/e2e/harness"
)

// TestStatsdStartErrors: a startup error ends the program with code 1 and a message that names its cause.
func TestStatsdStartErrors(t *testing.T) {
	harness.NotInSelfCheck(t)
	dir := t.TempDir()
	mapping := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	busyUDP, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busyUDP.Close()
	for _, test := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown flag", []string{"--statsd.no-such-flag"}, []string{"--statsd.no-such-flag"}},
		{"unexpected word", []string{"frobnicate"}, []string{"frobnicate"}},
		{"value of a boolean", []string{"--check-config=true"}, []string{"true"}},
		{"flag twice", []string{"--statsd.cache-size=1", "--statsd.cache-size=2"}, []string{"statsd.cache-size"}},
		{"bad number", []string{"--statsd.cache-size=many"}, []string{"many"}},
		{"bad duration", []string{"--statsd.event-flush-interval=200"}, []string{"200"}},
		{"bad choice", []string{"--statsd.cache-type=fifo"}, []string{"fifo"}},
		{"bad address", []string{"--statsd.listen-udp=nowhere"}, []string{"nowhere"}},
		{"negative threshold", []string{"--statsd.event-flush-threshold=-1"}, []string{"event-flush-threshold"}},
		{"all listeners off", []string{"--statsd.listen-udp=", "--statsd.listen-tcp="}, []string{"listen"}},
		{"missing mapping", []string{"--statsd.mapping-config=/nonexistent/mapping.yaml"}, []string{"/nonexistent/mapping.yaml"}},
		{"broken YAML", []string{"--statsd.mapping-config=" + mapping("broken.yaml", "mappings:\n- match: a.*\n  name: [a\n")}, []string{"broken.yaml", "line ", "column "}},
		{"bad indentation", []string{"--statsd.mapping-config=" + mapping("indent.yaml", "mappings:\n- match: a.*\n  name: a\n wrong: b\n")}, []string{"indent.yaml", "line 4"}},
		{"unknown key", []string{"--statsd.mapping-config=" + mapping("unknown.yaml", "mappings:\n- match: a.*\n  name: a\n  nmae: b\n")}, []string{"unknown.yaml", "nmae", "line 4"}},
		{"wrong type", []string{"--statsd.mapping-config=" + mapping("type.yaml", "mappings:\n- match: a.*\n  name: a\n  scale: fast\n")}, []string{"type.yaml", "scale", "line 4"}},
		{"no name", []string{"--statsd.mapping-config=" + mapping("noname.yaml", "mappings:\n- match: a.*\n")}, []string{"noname.yaml", "name", "line 2"}},
		{"bad glob", []string{"--statsd.mapping-config=" + mapping("glob.yaml", "mappings:\n- {match: ok, name: a}\n- {match: a.b*, name: a}\n")}, []string{"glob.yaml", "a.b*", "line 3"}},
		{"bad regex", []string{"--statsd.mapping-config=" + mapping("regex.yaml", "mappings:\n- {match: 'a(', match_type: regex, name: a}\n")}, []string{"regex.yaml", "a(", "line 2"}},
		{"bad label", []string{"--statsd.mapping-config=" + mapping("label.yaml", "mappings:\n- match: a.*\n  name: a\n  labels: {'no-dash': $1}\n")}, []string{"label.yaml", "no-dash", "line 4"}},
		{"busy web port", []string{"--web.listen-address=" + busy.Addr().String()}, []string{busy.Addr().String(), "in use"}},
		{"busy TCP port", []string{"--statsd.listen-tcp=" + busy.Addr().String()}, []string{busy.Addr().String(), "in use"}},
		{"busy UDP port", []string{"--statsd.listen-udp=" + busyUDP.LocalAddr().String()}, []string{busyUDP.LocalAddr().String(), "in use"}},
		{"file at the socket's path", []string{"--statsd.listen-unixgram=" + mapping("sock", "")}, []string{"sock"}},
		// Longer than a label of a domain name may be: no name server is queried.
		{"relay to nowhere", []string{"--statsd.relay.address=" + strings.Repeat("x", 64) + ".invalid:9125"}, []string{strings.Repeat("x", 64) + ".invalid"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := slices.Clone(test.args)
			for _, listener := range []string{"--web.listen-address", "--statsd.listen-udp", "--statsd.listen-tcp"} {
				if !strings.Contains(strings.Join(args, " "), listener+"=") {
					args = append(args, fmt.Sprintf("%s=127.0.0.1:%d", listener, harness.FreePort(t)))
				}
			}
			code, stdout, stderr := harness.Run(t, harness.OurStatsdExporter(t), "", args...)
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
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

// TestStatsdCorrectsMapping: options that crash the original at the first event are corrected at load, with a
// warning that names their line.
func TestStatsdCorrectsMapping(t *testing.T) {
	harness.NotInSelfCheck(t)
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), `mappings:
- match: h.*
  name: h
  observer_type: histogram
  histogram_options: {buckets: [2, 1, 1]}
- match: s.*
  name: s
  observer_type: summary
  summary_options:
    max_age: -5m
    quantiles: [{quantile: 1.5, error: 0.1}, {quantile: 0.5, error: 0.1}]
`)
	server.WaitOutput("buckets", "max_age", "quantile", "line 5", "line 10")
	server.SendUDP("h.a:1.5|h\ns.a:2|h")
	server.WaitSeries(`h_bucket{le="1"} 0`, `h_bucket{le="2"} 1`, "h_count 1", `s{quantile="0.5"} 2`, "s_count 1")
	promtool(t, server.Base+"/metrics")
}

// TestStatsdSurvives sends lines that crash the original or permanently break its exposition. kstatd rejects only
// those lines.
func TestStatsdSurvives(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, program := range []harness.Program{harness.OurStatsdExporter(t), harness.KstatdRun(t)} {
		t.Run(program.Name, func(t *testing.T) { survives(t, program) })
	}
}

func survives(t *testing.T, program harness.Program) {
	server := harness.StartStatsd(t, program, `
mappings:
- {match: h.*, name: h, observer_type: histogram, histogram_options: {buckets: [1, 2]}, help: One help., labels: {what: $1}}
- {match: helped.a, name: helped, help: One help.}
- {match: helped.b.*, name: helped, help: Another help., labels: {what: $1}}
`)
	// Only kstatd's own name offers OpenMetrics.
	formats := []string{harness.Text}
	if strings.HasSuffix(program.Name, " run") {
		formats = append(formats, harness.OpenMetrics)
	}
	server.SendUDP("good:1|c\nsum:0.5|h")
	server.WaitSeries("good 1", "sum_count 1")
	for i, packet := range []string{
		"a][:1|c",
		"timer:1|ms|#quantile:0.5",
		"h.x:1|h|#le:5",
		",a=b:1|c",
		"#a=b:1|c",
		"[a=b]:1|c",
		"reserved:1|c|#__name__:x,__a:b",
		"reserved2:1|c|#name:ok,__:b",
		"helped.a:1|c\nhelped.b.c:1|c",
		"sum_count:1|c\nsum_sum:1|g\nsum_bucket:2|c",
		"after_count:1|h\nafter:1|h",
		"statsd_exporter_lines_total:1|c",
		"statsd_exporter_build_info:1|g|#version:fake",
		"go_goroutines:1|g\nprocess_cpu_seconds_total:1|c",
		"kstatd_build_info:1|g",
		"often:1|ms|@0.000001",
		"often:1|h|@1e-300",
		"never:1|ms|@nan\nnever:1|c|@nan\nnever:1|c|@inf",
		"big:1e308|c\nbig:1e308|c\nbig:1e308|c",
		"nan:nan|c\nnan:1|c\nnan:nan|g\nnan:nan|ms",
		strings.Repeat("x", 60_000) + ":1|c",
		"n:1|c|#" + strings.Repeat("k:v,", 10_000),
		"v:" + strings.Repeat("1:", 20_000) + "1|ms",
		strings.Repeat(":", 60_000),
		strings.Repeat("\n", 60_000),
		strings.Repeat("|", 60_000),
		"\x00:1|c\n\x00\x01\x02",
		"\xc3\x28:1|c|#\xff:\xfe",
		"line\u2028sep:1|c|#k:\u2028\r",
		"e" + strings.Repeat("\u0301", 200) + ":1|c",
		"label:1|c|#k:" + strings.Repeat("v", 50_000),
	} {
		server.SendUDP(packet)
		// The next valid line shows that the packet has been processed.
		server.SendUDP("good:1|c")
		server.WaitSeries(fmt.Sprintf("good %d", i+2))
		if t.Failed() || !server.Running() {
			t.Fatalf("after %.80q: %s", packet, server.Output())
		}
		for _, accept := range formats {
			if _, err := harness.Scrape(server.Base+"/metrics", accept); err != nil {
				t.Fatalf("after %.80q: %v", packet, err)
			}
		}
	}
	promtool(t, server.Base+"/metrics")
	server.WaitSeries("sum_count 1", "sum_sum 0.5")
}

// TestStatsdRelayFailure: a target that refuses every datagram affects only the relayed copies.
func TestStatsdRelayFailure(t *testing.T) {
	harness.NotInSelfCheck(t)
	// The kernel refuses to send to a broadcast address, so nothing leaves the machine.
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), "", "--statsd.relay.address=127.255.255.255:9")
	const lines = 5000
	for i := range lines / 50 {
		server.SendTCP(strings.Repeat("hits:1|c\n", 50))
		server.WaitOwn("statsd_exporter_lines_total", float64((i+1)*50))
	}
	server.WaitSeries(fmt.Sprintf("hits %d", lines))
	if !server.Running() {
		t.Fatal("it has ended")
	}
}

// TestStatsdOutOfDescriptors: if connections cannot be accepted for lack of descriptors, open ones continue, and
// later connections work.
func TestStatsdOutOfDescriptors(t *testing.T) {
	harness.NotInSelfCheck(t)
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), "")
	server.SendUDP("before:1|c")
	server.WaitSeries("before 1")
	// Its current number, and a few more.
	limit := uint64(server.OpenFiles() + 8)
	server.LimitFiles(limit)
	var held []net.Conn
	for range 40 {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.TCPPort))
		if err != nil {
			break
		}
		held = append(held, conn)
	}
	server.SendUDP("during:1|c")
	server.SendTCP("during.tcp:1|c\n")
	for _, conn := range held {
		conn.Close()
	}
	server.WaitSeries("during 1", "during_tcp 1")
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.TCPPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("after:1|c\n")); err != nil {
		t.Fatal(err)
	}
	server.WaitSeries("before 1", "after 1")
}

// TestStatsdReload: both ways of reloading, valid and invalid files, on both sides.
func TestStatsdReload(t *testing.T) {
	const first = "mappings:\n- {match: a.*, name: first, labels: {x: $1}}\n"
	theirs := harness.StartStatsd(t, harness.StatsdExporter(t), strings.ReplaceAll(first, "x:", "xx:"), "--web.enable-lifecycle")
	ours := harness.StartStatsd(t, harness.OurStatsdExporter(t), strings.ReplaceAll(first, "x:", "xx:"), "--web.enable-lifecycle")
	success, failure := 0.0, 0.0
	for i, step := range []struct {
		mapping string
		ok      bool
		http    bool
	}{
		{"mappings:\n- {match: a.*, name: second, labels: {xx: $1}}\n", true, false},
		{"mappings:\n- {match: a.*\n", false, false},
		{"mappings:\n- {match: a.*, name: third}\n- {match: b.*, name: of_b}\n", true, true},
		{"mappings:\n- {match: a.*, nmae: third}\n", false, true},
		{"", true, false},
	} {
		if step.ok {
			success++
		} else {
			failure++
		}
		for _, side := range []*harness.StatsdServer{theirs, ours} {
			if err := os.WriteFile(side.MappingFile(), []byte(step.mapping), 0o600); err != nil {
				t.Fatal(err)
			}
			if step.http {
				if answer, err := harness.Do("POST", side.Base+"/-/reload"); err != nil || answer.Status != 200 {
					t.Fatalf("reload: %v %+v", err, answer)
				}
			} else {
				side.Signal(syscall.SIGHUP)
			}
			side.WaitOwn(`statsd_exporter_config_reloads_total{outcome="success"}`, success)
			side.WaitOwn(`statsd_exporter_config_reloads_total{outcome="failure"}`, failure)
			side.SendUDP(fmt.Sprintf("a.step%d:1|c\nb.step%d:2|c", i, i))
			side.WaitOwn("statsd_exporter_lines_total", float64(2*(i+1)))
		}
		harness.Eventually(t, fmt.Sprintf("both sides agree after reload %d", i), func() error { return compareStatsd(ours, theirs) })
	}
}
