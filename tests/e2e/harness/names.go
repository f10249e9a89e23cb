package harness

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// NameServer knows one name, and misbehaves on command.
type NameServer struct {
	t    testing.TB
	conn net.PacketConn
	// file is the resolv.conf that refers to it.
	file string

	mu      sync.Mutex
	address netip.Addr
	code    dnsmessage.RCode
	silent  bool
	asked   int
}

// StartNameServer starts a server that answers each name with this address.
func StartNameServer(t testing.TB, address string) *NameServer {
	t.Helper()
	n := &NameServer{t: t, file: filepath.Join(t.TempDir(), "resolv.conf")}
	n.Is(address)
	// resolv.conf has no ports, but a host has many loopback addresses.
	var err error
	for last := 2; last < 250; last++ {
		ip := fmt.Sprintf("127.53.%d.%d", os.Getpid()%250, last)
		if n.conn, err = net.ListenPacket("udp", ip+":53"); err == nil {
			err = os.WriteFile(n.file, []byte("nameserver "+ip+"\n"), 0o644)
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.conn.Close() })
	go n.serve()
	return n
}

// For is a program that uses this name server. It needs root, for a separate mount namespace.
func (n *NameServer) For(p Program) Program {
	inside := `mount --bind "$0" /etc/resolv.conf && exec "$@"`
	p.Prefix = append([]string{"--mount", "--propagation=private", "sh", "-c", inside, n.file, p.Path}, p.Prefix...)
	p.Path = "/usr/bin/unshare"
	return p
}

// Is makes it answer with this address.
func (n *NameServer) Is(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.address, n.code, n.silent = netip.MustParseAddr(address), dnsmessage.RCodeSuccess, false
}

// Unknown makes it answer NXDOMAIN.
func (n *NameServer) Unknown() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.code, n.silent = dnsmessage.RCodeNameError, false
}

// Fails makes it answer SERVFAIL.
func (n *NameServer) Fails() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.code, n.silent = dnsmessage.RCodeServerFailure, false
}

// Silent makes it answer nothing.
func (n *NameServer) Silent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent = true
}

// Asked is the number of queries so far.
func (n *NameServer) Asked() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (n *NameServer) serve() {
	packet := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(packet)
		if err != nil {
			return
		}
		if answer := n.answer(packet[:size]); answer != nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

// answer is the response to a query, nil for none.
func (n *NameServer) answer(packet []byte) []byte {
	var question dnsmessage.Message
	if err := question.Unpack(packet); err != nil || len(question.Questions) != 1 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.silent {
		return nil
	}
	asked := question.Questions[0]
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: question.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: n.code},
		Questions: question.Questions,
	}
	if n.code == dnsmessage.RCodeSuccess && asked.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: asked.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: n.address.As4()},
		}}
	}
	answer, err := m.Pack()
	if err != nil {
		n.t.Errorf("the name server cannot answer: %v", err)
	}
	return answer
}
