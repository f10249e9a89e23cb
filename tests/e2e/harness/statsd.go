package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// StatsdServer is a running statsd_exporter, kstatd's or the original.
type StatsdServer struct {
	*Process
	t testing.TB
	// Base is the web listener.
	Base string
	// about is the path of kstatd's additional own metrics.
	about string
	// UDPPort and TCPPort are on 127.0.0.1, Socket is a unix datagram socket.
	UDPPort, TCPPort int
	Socket           string

	udp, unixgram net.Conn
	tcp           net.Conn
}

// StartStatsd starts it with all three listeners on free ports, and waits until it is ready. An empty mapping means
// none.
func StartStatsd(t testing.TB, p Program, mapping string, args ...string) *StatsdServer {
	t.Helper()
	// The path of a unix socket must be short.
	dir, err := os.MkdirTemp("/tmp", "statsd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &StatsdServer{t: t, UDPPort: FreePort(t), TCPPort: FreePort(t), Socket: filepath.Join(dir, "s")}
	web := FreePort(t)
	s.Base = fmt.Sprintf("http://127.0.0.1:%d", web)
	address, ready := fmt.Sprintf("--web.listen-address=127.0.0.1:%d", web), "/-/ready"
	s.about = s.Base + "/kstatd/metrics"
	if p.native {
		telemetry := FreePort(t)
		s.about = fmt.Sprintf("http://127.0.0.1:%d/metrics", telemetry)
		address, ready = fmt.Sprintf("--listen=127.0.0.1:%d", web), "/readyz"
		args = append(args, fmt.Sprintf("--telemetry-listen=127.0.0.1:%d", telemetry))
	}
	all := []string{
		address,
		fmt.Sprintf("--statsd.listen-udp=127.0.0.1:%d", s.UDPPort),
		fmt.Sprintf("--statsd.listen-tcp=127.0.0.1:%d", s.TCPPort),
		"--statsd.listen-unixgram=" + s.Socket,
		"--statsd.event-flush-interval=5ms",
	}
	if mapping != "" {
		path := filepath.Join(dir, "mapping.yaml")
		if err := os.WriteFile(path, []byte(mapping), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, "--statsd.mapping-config="+path)
	}
	s.Process = Start(t, p, append(all, args...)...)
	WaitStatus(t, s.Process, s.Base+ready, 200)
	s.udp = s.dial("udp", fmt.Sprintf("127.0.0.1:%d", s.UDPPort))
	s.tcp = s.dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.TCPPort))
	s.unixgram = s.dial("unixgram", s.Socket)
	return s
}

// With is the same server for a subtest, which then fails on errors.
func (s *StatsdServer) With(t testing.TB) *StatsdServer {
	copied := *s
	copied.t = t
	return &copied
}

func (s *StatsdServer) dial(network, address string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// MappingFile is the path of the mapping.
func (s *StatsdServer) MappingFile() string {
	return filepath.Join(filepath.Dir(s.Socket), "mapping.yaml")
}

// SendUDP sends one datagram.
func (s *StatsdServer) SendUDP(packet string) { s.write(s.udp, packet) }

// SendUnixgram sends one datagram over the unix socket.
func (s *StatsdServer) SendUnixgram(packet string) { s.write(s.unixgram, packet) }

// SendTCP writes to a persistent connection; the text includes its line feeds.
func (s *StatsdServer) SendTCP(text string) { s.write(s.tcp, text) }

func (s *StatsdServer) write(conn net.Conn, text string) {
	s.t.Helper()
	// The kernel queues ten datagrams of a unix socket and refuses the next.
	Eventually(s.t, s.name+" takes what is sent", func() error {
		_, err := conn.Write([]byte(text))
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			s.t.Fatalf("%s: %v", s.name, err)
		}
		return err
	})
}

// ownPrefixes are families of the exporter itself and of its runtime.
var ownPrefixes = []string{"statsd_exporter_", "statsd_metric_mapper_", "go_", "process_", "promhttp_"}

// User is the exposition without the exporter's own families.
func (s *StatsdServer) User(accept string) (Exposition, error) {
	e, err := Scrape(s.Base+"/metrics", accept)
	return e.Without(append(ownPrefixes, "kstatd_")...), err
}

// Own is the value of one of the exporter's own series, 0 if it is absent.
func (s *StatsdServer) Own(series string) float64 {
	s.t.Helper()
	e, err := Scrape(s.Base+"/metrics", Text)
	if err != nil {
		s.t.Fatal(err)
	}
	text, found := e.Value(series)
	if !found {
		return 0
	}
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatalf("%s: %v", series, err)
	}
	return value
}

// WaitOwn waits until one of the exporter's own series has this value.
func (s *StatsdServer) WaitOwn(series string, want float64) {
	s.t.Helper()
	Eventually(s.t, s.name+" "+series, func() error {
		if got := s.Own(series); got != want {
			return fmt.Errorf("it is %v, it should be %v", got, want)
		}
		return nil
	})
}

// WaitSeries waits until the exposition has these sample lines.
func (s *StatsdServer) WaitSeries(lines ...string) {
	s.t.Helper()
	Eventually(s.t, s.name+" exposes the series", func() error {
		e, err := Scrape(s.Base+"/metrics", Text)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if !slices.Contains(e.Samples, line) {
				user := e.Without(ownPrefixes...)
				return fmt.Errorf("%s is not in\n%s", line, strings.Join(user.Samples, "\n"))
			}
		}
		return nil
	})
}

// AboutSum is the sum of all series of one of kstatd's additional own families.
func (s *StatsdServer) AboutSum(family string) (sum float64) {
	s.t.Helper()
	e, err := Scrape(s.about, Text)
	if err != nil {
		s.t.Fatal(err)
	}
	found := false
	for _, line := range e.Samples {
		if !strings.HasPrefix(line, family+"{") && !strings.HasPrefix(line, family+" ") {
			continue
		}
		found = true
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		sum += value
	}
	if !found {
		s.t.Fatalf("%s has no series %s", s.about, family)
	}
	return sum
}

// GoFloat is a number as the exposition has it.
func GoFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
