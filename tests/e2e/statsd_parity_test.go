package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"kstatd/e2e/harness"
)

// statsdMappings are the mapping files of the parity test. They avoid documented defects of the original: rules that
// end where a longer one continues, two help texts for one name, references such as $10.
var statsdMappings = []struct{ name, text string }{
	{"none", ""},
	{"globs", `
mappings:
- {match: web.*.requests.*, name: web_requests, labels: {host: $1, code: $2}}
- match: web.*.latency
  name: web_latency
  observer_type: histogram
  histogram_options: {buckets: [0.125, 0.5, 1, 2.5, 100]}
  labels: {host: "${1}"}
- {match: web.*.*, name: "web_${2}_of_$1", labels: {rest: "$2-$1"}}
- {match: "*.drop.*", action: drop, name: dropped}
- {match: jobs.*.*, match_metric_type: counter, name: "jobs_${2}", labels: {job: $1, fixed: yes}}
- {match: jobs.*.*, match_metric_type: gauge, name: "jobs_${2}_now", labels: {job: $1}}
- {match: queue.*, name: queue, scale: 0.5, honor_labels: true, labels: {queue: $1, env: from-rule}, help: Things that wait.}
- {match: empty.*, name: "$2"}
`},
	{"globs without order", `
defaults:
  glob_disable_ordering: true
  summary_options: {quantiles: [{quantile: 0.25, error: 0.05}, {quantile: 0.99, error: 0.001}]}
mappings:
- {match: web.*.requests.*, name: by_code, labels: {host: $1, code: $2}}
- {match: web.a.requests.*, name: of_host_a, labels: {code: $1}}
- {match: "jobs.*.x", name: jobs_x, labels: {job: $1}}
- {match: jobs.b.*, name: jobs_b, labels: {what: $1}}
- {match: queue.*, name: queue, observer_type: summary, summary_options: {max_age: 5m, age_buckets: 3}}
`},
	{"regexes", `
defaults: {match_type: regex}
mappings:
- {match: '^web\.(?P<host>[a-z]+)\.(requests|latency)', name: "web_$2", labels: {host: $host, all: $0}}
- {match: 'jobs\.([^.]*)\.(.*)$', name: jobs, match_metric_type: counter, labels: {job: "${1}-x", rest: $2}}
- {match: 'drop', name: dropped, action: drop}
- {match: '(q)(u)?e', name: "matched_$1", labels: {none: "[$3]", dollar: "$$"}}
`},
	{"both kinds and histograms", `
defaults:
  observer_type: histogram
  histogram_options: {buckets: [1, 2, 4, 8, 1000]}
mappings:
- {match: 'web\.b\..*', match_type: regex, name: web_regex}
- {match: web.*.latency, name: web_latency, labels: {host: $1}, observer_type: summary}
- {match: 'j.*s', match_type: regex, name: jobs_regex, scale: 4}
- {match: queue.*, name: queue_$1}
`},
}

// lines generates random lines from a seed. Values and rates are dyadic, so that sums do not depend on the order of
// their terms, and lines that crash the original are excluded.
type lines struct{ *rand.Rand }

func pick[T any](l lines, from ...T) T { return from[l.IntN(len(from))] }

func (l lines) name() string {
	host := pick(l, "a", "b", "c", "dd", "e-1")
	switch l.IntN(10) {
	case 0:
		return "web." + host + ".requests." + pick(l, "200", "404", "500")
	case 1:
		return "web." + host + ".latency"
	case 2:
		return "web." + host + "." + pick(l, "x", "y", "")
	case 3:
		return pick(l, "web", "jobs", "other") + ".drop." + host
	case 4:
		return "jobs." + host + "." + pick(l, "x", "done", "failed")
	case 5:
		return "queue." + host
	case 6:
		return "empty." + host
	case 7:
		return pick(l, "plain", "Upper.Case", "with-dash--es", "1digit", "sp ace", "ünï.cödé", "a..b", "trailing.", ".leading", "slash/es")
	default:
		return fmt.Sprintf("series.%d", l.IntN(60))
	}
}

func (l lines) value(kind string) string {
	if l.IntN(60) == 0 {
		switch kind {
		case "c", "g":
			return pick(l, "inf", "+Inf", "NaN", "-infinity", "1e400", "0x10")
		default:
			return pick(l, "inf", "-Inf")
		}
	}
	eighths := l.IntN(4000)
	if kind == "ms" {
		// Milliseconds become seconds: a multiple of 125 stays dyadic.
		return fmt.Sprint(eighths * 125)
	}
	text := fmt.Sprintf("%d%s", eighths/8, pick(l, "", ".5", ".25", ".125", ".0", "."))
	switch l.IntN(12) {
	case 0:
		text = pick(l, "1e3", "0x1p-3", "1_000", "2.5E1", ".5")
	case 1:
		text = "-" + text
	case 2:
		text = "+" + text
	}
	return text
}

func (l lines) tags(pair, list string) string {
	keys := []string{"env", "region", "Weird-Key", "dots.in.key", "0start", "sp ace", "queue", "kéy"}
	values := []string{"prod", "a b", `quo"te`, `back\slash`, "ünï", "1", "x=y", "%s", "$1"}
	var tags []string
	for range 1 + l.IntN(3) {
		tags = append(tags, pick(l, keys...)+pair+pick(l, values...))
	}
	switch l.IntN(20) {
	case 0:
		tags = append(tags, "nosep")
	case 1:
		tags = append(tags, "")
	case 2:
		tags = append(tags, pair+"novalue")
	case 3:
		tags = append(tags, "nokey"+pair)
	}
	return strings.Join(tags, list)
}

func (l lines) line() string {
	if l.IntN(12) == 0 {
		return l.malformed()
	}
	kind := pick(l, "c", "c", "c", "g", "g", "ms", "h", "d")
	name, tail, dog := l.name(), "", false
	switch l.IntN(8) {
	case 0:
		tail, dog = "|#"+l.tags(":", ","), true
	case 1:
		name += "," + l.tags("=", ",")
	case 2:
		name += "#" + l.tags("=", ",")
	case 3:
		name = name[:len(name)/2] + "[" + l.tags("=", ",") + "]" + name[len(name)/2:]
		if strings.ContainsAny(name[:strings.IndexByte(name, '[')], "]") || !validUTF8Cut(name) {
			name = "cut[" + l.tags("=", ",") + "]"
		}
	}
	rate := ""
	if l.IntN(5) == 0 {
		rate = "|@" + pick(l, "0.5", "0.25", "0.125", "1", "0", "x", "")
		if kind != "c" {
			rate = "|@" + pick(l, "0.5", "0.3", "0.7", "0.1", "2", "-1", "x")
		}
	}
	switch {
	case dog && l.IntN(4) == 0:
		tail += "|c:ci-abc"
	case dog && l.IntN(6) == 0:
		tail += "|T1656581400"
	}
	sample := func() string { return l.value(kind) + "|" + kind + rate }
	switch l.IntN(10) {
	case 0:
		if kind == "c" || kind == "g" {
			break
		}
		values := []string{l.value(kind), l.value(kind), l.value(kind)}
		return name + ":" + strings.Join(values, ":") + "|" + kind + rate + tail
	case 1:
		// Several samples without a tag section, which would make them a single sample.
		if !dog {
			return name + ":" + sample() + ":" + sample()
		}
	}
	return name + ":" + sample() + tail
}

// validUTF8Cut returns whether truncating the name did not split a character.
func validUTF8Cut(name string) bool { return strings.ToValidUTF8(name, "?") == name }

func (l lines) malformed() string {
	return pick(l,
		"", "foo", ":1|c", "foo:|c", "foo:1", "foo:1|", "foo:1|c|", "foo:1|x", "foo:abc|c", "foo:1|c|@", "foo:1|c|#",
		"foo:1|c|#a:b,,", "foo:1|c|#nosep", "foo:1:2|c", "foo:1:2|g|#a:b", "foo:1|c|@0.5|@0.25", "foo:1|C", "foo:1|s",
		"\xff\xfe:1|c", "foo:1|c|#a:\xff", "foo[bar:1|c", "foo]bar:1|c", "foo#a=b:1|c|#x:y", "foo,a=b:1|c|#x:y",
		"_e{5,4}:title|text", "_sc|name|0|#a:b", " foo:1|c", "foo :1|c", "foo: 1|c", "foo:1 |c", "foo:1|c\r", "foo:1|c|#a:b|c:",
		"foo:1|c|#a:b|e:x", "foo:1|c|q", "foo:1|c|2|3|4|5|6", "foo:1|ms|@0.5|#a:b|@0.25", "foo:1.2.3|g", "foo:--1|g", "foo:+|g",
	)
}

// TestStatsdParity sends the same random stream to both sides over UDP, TCP and a unix datagram socket, and compares
// the users' series, their types and the exporters' own counters.
func TestStatsdParity(t *testing.T) {
	for i, mapping := range statsdMappings {
		t.Run(mapping.name, func(t *testing.T) {
			theirs := harness.StartStatsd(t, harness.StatsdExporter(t), mapping.text)
			ours := harness.StartStatsd(t, harness.OurStatsdExporter(t), mapping.text)
			stream := lines{rand.New(rand.NewPCG(2026, uint64(i)))}
			sent := 0
			var history strings.Builder
			for range 40 {
				transport := stream.IntN(3)
				for range 20 {
					packet := make([]string, 1+stream.IntN(5))
					for k := range packet {
						packet[k] = stream.line()
					}
					sent += len(packet)
					text := strings.Join(packet, "\n")
					fmt.Fprintln(&history, text)
					for _, side := range []*harness.StatsdServer{theirs, ours} {
						switch transport {
						case 0:
							side.SendUDP(text)
						case 1:
							side.SendUnixgram(text)
						case 2:
							side.SendTCP(text + "\n")
						}
					}
				}
				// The next burst waits until this one is processed: the last of several values of a gauge wins, and no socket may
				// lose lines.
				theirs.WaitOwn("statsd_exporter_lines_total", float64(sent))
				ours.WaitOwn("statsd_exporter_lines_total", float64(sent))
			}
			for _, side := range []*harness.StatsdServer{theirs, ours} {
				if lost := side.Own("statsd_exporter_udp_packet_drops_total"); lost != 0 {
					t.Fatalf("%v datagrams were lost", lost)
				}
			}
			if err := harness.Poll(harness.Patience/4, func() error { return compareStatsd(ours, theirs) }); err != nil {
				path := os.TempDir() + "/statsd-parity-" + strings.ReplaceAll(mapping.name, " ", "-")
				if err := os.WriteFile(path, []byte(history.String()), 0o600); err != nil {
					t.Error(err)
				}
				t.Fatalf("after %d lines (in %s): %v", sent, path, err)
			}
		})
	}
}

// comparedOwn are the own metrics whose values must be equal on both sides.
var comparedOwn = []string{
	"statsd_exporter_lines_total", "statsd_exporter_samples_total", "statsd_exporter_sample_errors_total",
	"statsd_exporter_tags_total", "statsd_exporter_tag_errors_total", "statsd_exporter_events_total",
	"statsd_exporter_events_unmapped_total", "statsd_exporter_events_actions_total", "statsd_exporter_events_error_total",
	"statsd_exporter_events_conflict_total", "statsd_exporter_udp_packets_total", "statsd_exporter_unixgram_packets_total",
	"statsd_exporter_tcp_connections_total", "statsd_exporter_tcp_too_long_lines_total", "statsd_exporter_tcp_connection_errors_total",
	"statsd_exporter_loaded_mappings", "statsd_exporter_metrics_total", "statsd_exporter_config_reloads_total",
}

func compareStatsd(ours, theirs *harness.StatsdServer) error {
	get := func(s *harness.StatsdServer) (user harness.Exposition, own []string, err error) {
		all, err := harness.Scrape(s.Base+"/metrics", harness.Text)
		if err != nil {
			return user, nil, err
		}
		for _, line := range all.Samples {
			if name, _, _ := strings.Cut(strings.Replace(line, " ", "{", 1), "{"); slices.Contains(comparedOwn, name) {
				own = append(own, line)
			}
		}
		user, err = s.User(harness.Text)
		return user, own, err
	}
	theirUser, theirOwn, err := get(theirs)
	if err != nil {
		return err
	}
	ourUser, ourOwn, err := get(ours)
	if err != nil {
		return err
	}
	if len(theirUser.Samples) == 0 {
		return errors.New("the original has no series")
	}
	for _, line := range theirUser.Samples {
		var name string
		var count float64
		if series, value, found := strings.Cut(line, "_count"); found {
			name = series
			if _, err := fmt.Sscanf(value[strings.LastIndexByte(value, ' ')+1:], "%g", &count); err == nil && count >= 500 {
				return fmt.Errorf("%s has %v observations: the original estimates quantiles from there on, so the stream must be thinner", name, count)
			}
		}
	}
	return errors.Join(harness.Compare(ourUser, theirUser), harness.Difference(ourOwn, theirOwn))
}

// TestStatsdExpiry lets series expire on both sides.
func TestStatsdExpiry(t *testing.T) {
	mapping := "defaults: {ttl: 20s}\nmappings:\n- {match: keep.*, name: keep, ttl: 1h}\n- {match: short.*, name: short, ttl: 10s}\n"
	theirs := harness.StartStatsd(t, harness.StatsdExporter(t), mapping)
	ours := harness.StartStatsd(t, harness.OurStatsdExporter(t), mapping)
	for _, side := range []*harness.StatsdServer{theirs, ours} {
		side.SendUDP("keep.a:1|c\nshort.a:1|g\nunmapped:1|c\nunmapped.t:1|ms")
		side.WaitSeries("keep 1", "short 1", "unmapped 1", "unmapped_t_count 1")
	}
	for _, side := range []*harness.StatsdServer{theirs, ours} {
		harness.Eventually(t, "all but one series expire", func() error {
			e, err := side.User(harness.Text)
			if err != nil {
				return err
			}
			return harness.Difference(e.Samples, []string{"keep 1"})
		})
		// A series that reappears starts from zero.
		side.SendUDP("unmapped:5|c")
		side.WaitSeries("unmapped 5")
	}
}

// TestStatsdWeb compares the common web endpoints.
func TestStatsdWeb(t *testing.T) {
	theirs := harness.StartStatsd(t, harness.StatsdExporter(t), "", "--web.enable-lifecycle")
	ours := harness.StartStatsd(t, harness.OurStatsdExporter(t), "", "--web.enable-lifecycle")
	for _, side := range []*harness.StatsdServer{theirs, ours} {
		side.SendUDP("a:1|c\nb:2|g\nc:3|ms")
		side.WaitSeries("a 1", "b 2", "c_count 1")
	}
	for _, request := range []struct{ method, path string }{
		{"GET", "/-/healthy"}, {"HEAD", "/-/healthy"}, {"POST", "/-/healthy"},
		{"GET", "/-/ready"}, {"POST", "/-/ready"},
		{"GET", "/-/reload"}, {"POST", "/-/reload"}, {"PUT", "/-/reload"},
		{"GET", "/-/quit"},
		{"GET", "/nothing"}, {"POST", "/nothing"}, {"GET", "/metrics/"}, {"GET", "/debug/pprof/nothing"},
		{"GET", "/metrics?name[]=a"}, {"GET", "/metrics?name[]=a&name[]=c"}, {"GET", "/metrics?name[]=unknown"}, {"HEAD", "/metrics?name[]=a"}, {"POST", "/metrics?name[]=b"},
	} {
		t.Run(request.method+" "+request.path, func(t *testing.T) {
			theirs, err := harness.Do(request.method, theirs.Base+request.path)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := harness.Do(request.method, ours.Base+request.path)
			if err != nil {
				t.Fatal(err)
			}
			ours.Body, theirs.Body = withoutHelp(ours.Body), withoutHelp(theirs.Body)
			if ours.Status != theirs.Status || ours.Body != theirs.Body || ours.Header.Get("Content-Type") != theirs.Header.Get("Content-Type") {
				t.Errorf("ours:   %d %q %q\ntheirs: %d %q %q",
					ours.Status, ours.Header.Get("Content-Type"), ours.Body, theirs.Status, theirs.Header.Get("Content-Type"), theirs.Body)
			}
		})
	}
	for _, side := range []*harness.StatsdServer{theirs, ours} {
		answer, err := harness.Do("POST", side.Base+"/-/quit")
		if err != nil || answer.Status != 200 || !strings.Contains(answer.Body, "Goodbye") {
			t.Errorf("quit: %v %+v", err, answer)
		}
		if code := side.Exit(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// withoutHelp drops HELP lines, whose wording may differ.
func withoutHelp(body string) string {
	var kept strings.Builder
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "# HELP ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// TestStatsdRelay compares the relayed lines.
func TestStatsdRelay(t *testing.T) {
	type target struct {
		net.PacketConn
		mu    sync.Mutex
		lines []string
		size  int
	}
	listen := func() *target {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		r := &target{PacketConn: conn}
		go func() {
			buffer := make([]byte, 65536)
			for {
				n, _, err := conn.ReadFrom(buffer)
				if err != nil {
					return
				}
				r.mu.Lock()
				r.size = max(r.size, n)
				r.lines = append(r.lines, strings.SplitAfter(string(buffer[:n]), "\n")...)
				r.lines = slices.DeleteFunc(r.lines, func(l string) bool { return l == "" })
				r.mu.Unlock()
			}
		}()
		return r
	}
	var received []*target
	for _, program := range []harness.Program{harness.StatsdExporter(t), harness.OurStatsdExporter(t)} {
		r := listen()
		received = append(received, r)
		side := harness.StartStatsd(t, program, "", "--statsd.relay.address="+r.LocalAddr().String(), "--statsd.relay.packet-length=100")
		side.SendUDP("a:1|c\n\nb:2|g\r\nbroken")
		for i := range 30 {
			side.SendUDP(fmt.Sprintf("series.%d:%d|c", i, i))
		}
		side.SendUDP("long." + strings.Repeat("x", 100) + ":1|c")
		side.SendTCP("t:1|c\r\nu:2|c\n")
		side.WaitOwn("statsd_exporter_lines_total", 37)
	}
	for i, r := range received {
		harness.Eventually(t, "the relayed lines", func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.size > 100 {
				t.Fatalf("side %d: a datagram has %d bytes", i, r.size)
			}
			got := slices.Sorted(slices.Values(r.lines))
			want := []string{"a:1|c\n", "b:2|g\r\n", "broken\n", "t:1|c\n", "u:2|c\n"}
			for i := range 30 {
				want = append(want, fmt.Sprintf("series.%d:%d|c\n", i, i))
			}
			slices.Sort(want)
			return harness.Difference(got, want)
		})
	}
}
