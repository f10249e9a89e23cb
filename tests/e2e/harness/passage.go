package harness

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
)

// Passage forwards connections to a server unchanged, including TLS: it breaks connections, not responses.
type Passage struct {
	// Port is its port, at the address that it was started with.
	Port int

	t        testing.TB
	address  string
	target   string
	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
}

// StartPassage starts one to a cluster, at an address of this host.
func StartPassage(t testing.TB, c *Cluster, ip string, port int) *Passage {
	t.Helper()
	return StartPassageTo(t, fmt.Sprintf("127.0.0.1:%d", c.Port), ip, port)
}

// StartPassageTo starts one to any server, at an address of this host.
func StartPassageTo(t testing.TB, target, ip string, port int) *Passage {
	t.Helper()
	p := &Passage{
		Port: port, t: t, address: net.JoinHostPort(ip, fmt.Sprint(port)),
		target: target, conns: map[net.Conn]bool{},
	}
	p.Open()
	t.Cleanup(p.Close)
	return p
}

// Open starts or resumes accepting connections.
func (p *Passage) Open() {
	p.t.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener = listener
	p.mu.Unlock()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.lead(conn)
		}
	}()
}

func (p *Passage) lead(conn net.Conn) {
	defer conn.Close()
	upstream, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer upstream.Close()
	p.mu.Lock()
	if p.listener == nil {
		p.mu.Unlock()
		return
	}
	p.conns[conn] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, conn)
		p.mu.Unlock()
	}()
	go func() {
		_, _ = io.Copy(upstream, conn)
		upstream.Close()
	}()
	_, _ = io.Copy(conn, upstream)
}

// Cut breaks every connection once (RST); new ones are accepted.
func (p *Passage) Cut() {
	p.mu.Lock()
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, conn := range conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		conn.Close()
	}
}

// Close stops accepting connections and cuts existing ones.
func (p *Passage) Close() {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut()
}
