package harness

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// Patience is how long a condition may take to come true. It is far above what
// any of them needs, so that a slow machine fails no test; E2E_PATIENCE shortens
// it for whoever waits for a test that fails.
var Patience = patience()

func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("E2E_PATIENCE")); err == nil {
		return d
	}
	return 120 * time.Second
}

// Eventually asks until check answers nil, and fails the test with its last
// answer when the deadline has passed.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	EventuallyWithin(t, Patience, what, check)
}

// EventuallyWithin is Eventually with a deadline of its own.
func EventuallyWithin(t testing.TB, patience time.Duration, what string, check func() error) {
	t.Helper()
	if err := Poll(patience, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, patience, err)
	}
}

// Poll asks until check answers nil, or gives its last answer at the deadline.
func Poll(patience time.Duration, check func() error) error {
	deadline := time.Now().Add(patience)
	pause := 5 * time.Millisecond
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(pause)
		pause = min(pause*3/2, 200*time.Millisecond)
	}
}

// FreePort is a port that neither TCP nor UDP has in use, on any address.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		tcp, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		port := tcp.Addr().(*net.TCPAddr).Port
		udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		tcp.Close()
		if err != nil {
			continue
		}
		udp.Close()
		return port
	}
	t.Fatal("no port is free for both TCP and UDP")
	return 0
}
