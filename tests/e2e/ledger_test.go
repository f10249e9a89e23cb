package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// TestLossLedger sends datagrams faster than they can be received: sent = received + dropped by the kernel, exactly,
// and each received line is accounted for.
func TestLossLedger(t *testing.T) {
	harness.NotInSelfCheck(t)
	server := harness.StartStatsd(t, harness.OurStatsdExporter(t), "", "--statsd.read-buffer=4096")
	const senders, each, lines = 4, 25_000, 5
	packet := strings.Repeat("hits:1|c\n", lines-1) + "malformed"
	done := make(chan error, senders)
	for range senders {
		go func() {
			conn, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", server.UDPPort))
			if err != nil {
				done <- err
				return
			}
			defer conn.Close()
			for range each {
				if _, err := conn.Write([]byte(packet)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range senders {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	// The kernel reports drops with the next datagram of the socket.
	sent := float64(senders * each)
	harness.Eventually(t, "the ledger balances", func() error {
		server.SendUDP(packet)
		sent++
		received := server.Own("statsd_exporter_udp_packets_total")
		dropped := server.Own("statsd_exporter_udp_packet_drops_total")
		if received+dropped != sent {
			return fmt.Errorf("%v sent, %v received, %v dropped", sent, received, dropped)
		}
		t.Logf("%v sent, %v received, %v dropped", sent, received, dropped)
		seen := server.Own("statsd_exporter_lines_total")
		bad := server.Own(`statsd_exporter_sample_errors_total{reason="malformed_line"}`)
		good := server.Own(`statsd_exporter_events_total{type="counter"}`)
		if seen != received*lines || bad != received || good != received*(lines-1) {
			t.Fatalf("%v datagrams of %d lines: %v lines, of which %v are malformed and %v counted", received, lines, seen, bad, good)
		}
		server.WaitSeries(fmt.Sprintf("hits %s", harness.GoFloat(good)))
		return nil
	})
}
