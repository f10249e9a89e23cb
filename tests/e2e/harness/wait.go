package harness

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is the time limit for a condition. It is far longer than any of them needs, so that a slow machine fails
// no test; E2E_PATIENCE shortens it for failing tests.
var Patience = patience()

func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("E2E_PATIENCE")); err == nil {
		return d
	}
	return 120 * time.Second
}

// Eventually repeats check until it returns nil, and fails the test with its last error at the deadline.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	EventuallyWithin(t, Patience, what, check)
}

// EventuallyWithin is Eventually with a different deadline.
func EventuallyWithin(t testing.TB, patience time.Duration, what string, check func() error) {
	t.Helper()
	if err := Poll(patience, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, patience, err)
	}
}

// Poll repeats check until it returns nil, or returns its last error at the deadline.
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

// FreePort is a port that is free for TCP and UDP on every address. Until the end of the test a socket is bound to it
// that does not listen: a listener with SO_REUSEADDR can still use it, and the system assigns the port to nothing
// else.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		held, port, err := hold()
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			unix.Close(held)
			continue
		}
		udp.Close()
		t.Cleanup(func() { unix.Close(held) })
		return port
	}
	t.Fatal("no port is free for both TCP and UDP")
	return 0
}

// hold binds a TCP socket to a port that is free on every address.
func hold() (socket, port int, err error) {
	var any unix.Sockaddr = &unix.SockaddrInet6{}
	socket, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		// A host without IPv6.
		any = &unix.SockaddrInet4{}
		if socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return 0, 0, err
		}
	} else if err = unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
		unix.Close(socket)
		return 0, 0, err
	}
	if err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.Bind(socket, any)
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(socket)
	}
	if err != nil {
		unix.Close(socket)
		return 0, 0, err
	}
	switch name := name.(type) {
	case *unix.SockaddrInet6:
		port = name.Port
	case *unix.SockaddrInet4:
		port = name.Port
	}
	return socket, port, nil
}
