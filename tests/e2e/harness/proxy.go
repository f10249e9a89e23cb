package harness

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// Fault is what a proxy does instead of its work. The zero value is none.
type Fault struct {
	// Refuse takes no connections and cuts those there are.
	Refuse bool
	// Freeze forwards nothing any more on the connections that there are when it
	// begins; with FreezeNew on new ones neither. All stay open.
	Freeze, FreezeNew bool
	// Status answers requests with it, with RetryAfter seconds if not 0.
	Status, RetryAfter int
	// Share of the requests that Status, Torn and Body concern, 0 for all.
	Share float64
	// Torn cuts an answer after so many bytes of its body.
	Torn int
	// Body is answered with status 200 and this content type.
	Body, ContentType string
	// BytesPerSecond is the speed of every body, 0 for no limit.
	BytesPerSecond int
	// Delay is waited before a request is forwarded.
	Delay time.Duration
}

// Proxy stands between the programs and the API server and misbehaves on
// command. It ends TLS, so that what happens behind it cannot be seen from the
// connection.
type Proxy struct {
	// URL is where it answers, without TLS.
	URL string

	t      testing.TB
	addr   string
	server *http.Transport
	target string

	mu       sync.Mutex
	fault    Fault
	listener net.Listener
	conns    map[*proxyConn]bool
	lifted   chan struct{}
	requests int
}

// proxyConn is a connection of a client; frozen, it neither reads nor writes.
type proxyConn struct {
	net.Conn
	proxy  *Proxy
	frozen chan struct{} // closed while it is not
	mu     sync.Mutex
}

func (c *proxyConn) wait() {
	c.mu.Lock()
	gate := c.frozen
	c.mu.Unlock()
	<-gate
}

func (c *proxyConn) Read(b []byte) (int, error) {
	c.wait()
	n, err := c.Conn.Read(b)
	c.wait()
	return n, err
}

func (c *proxyConn) Write(b []byte) (int, error) {
	c.wait()
	return c.Conn.Write(b)
}

func (c *proxyConn) Close() error {
	c.proxy.mu.Lock()
	delete(c.proxy.conns, c)
	c.proxy.mu.Unlock()
	return c.Conn.Close()
}

func (c *proxyConn) freeze(frozen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.frozen:
		if frozen {
			c.frozen = make(chan struct{})
		}
	default:
		if !frozen {
			close(c.frozen)
		}
	}
}

type proxyListener struct {
	net.Listener
	proxy *Proxy
}

func (l proxyListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	open := make(chan struct{})
	close(open)
	c := &proxyConn{Conn: conn, proxy: l.proxy, frozen: open}
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.proxy.conns[c] = true
	if l.proxy.fault.FreezeNew {
		c.freeze(true)
	}
	return c, nil
}

// StartProxy starts a proxy in front of the cluster.
func StartProxy(t testing.TB, c *Cluster) *Proxy {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca := config.CAData
	if len(ca) > 0 && !roots.AppendCertsFromPEM(ca) {
		t.Fatal("the cluster's certificate cannot be read")
	}
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots, InsecureSkipVerify: len(ca) == 0},
		DisableCompression: true, ForceAttemptHTTP2: true,
	}
	p := &Proxy{
		t: t, server: transport, target: fmt.Sprintf("127.0.0.1:%d", c.Port), addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)),
		conns: map[*proxyConn]bool{}, lifted: make(chan struct{}),
	}
	p.URL = "http://" + p.addr
	p.listen()
	t.Cleanup(func() {
		p.Set(Fault{Refuse: true})
		transport.CloseIdleConnections()
	})
	return p
}

func (p *Proxy) listen() {
	var err error
	err = Poll(Patience, func() error {
		p.listener, err = net.Listen("tcp", p.addr)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(p.serve)}
	go func(l net.Listener) { _ = server.Serve(proxyListener{l, p}) }(p.listener)
}

// Set begins a fault, or ends it with the zero value.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	before := p.fault
	p.fault = f
	close(p.lifted)
	p.lifted = make(chan struct{})
	var conns []*proxyConn
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	if f.Refuse && p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for _, c := range conns {
		c.freeze(f.Freeze)
		if f.Refuse {
			c.Close()
		}
	}
	if before.Refuse && !f.Refuse {
		p.listen()
	}
}

// CutAll breaks every connection once.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	var conns []*proxyConn
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Close()
	}
}

// Requests is how many requests have come so far.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

func (p *Proxy) state() (Fault, <-chan struct{}, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.lifted, p.requests
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests++
	fault, number := p.fault, p.requests
	p.mu.Unlock()
	// Which requests a share concerns follows from their number alone.
	concerned := fault.Share == 0 || float64(number*37%100) < fault.Share*100
	if concerned && fault.Status != 0 {
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(fault.Status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"scripted","code":%d}`, fault.Status)
		return
	}
	if concerned && fault.Body != "" {
		w.Header().Set("Content-Type", fault.ContentType)
		_, _ = io.Copy(w, bytes.NewReader([]byte(fault.Body)))
		return
	}
	if fault.Delay > 0 {
		select {
		case <-time.After(fault.Delay):
		case <-r.Context().Done():
			return
		}
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "https", p.target, ""
	out.Host = p.target
	if out.Header.Get("Authorization") == "" {
		// Go's client sends no token without TLS.
		out.Header.Set("Authorization", "Bearer "+AdminToken)
	}
	resp, err := p.server.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		if !strings.EqualFold(name, "Content-Length") {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	sent := 0
	buffer := make([]byte, 32*1024)
	for {
		n, err := resp.Body.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			now, lifted, _ := p.state()
			part := rest
			if now.BytesPerSecond > 0 {
				part = rest[:min(len(rest), max(1, now.BytesPerSecond/10))]
			}
			if now.Torn > 0 && concerned {
				part = rest[:min(len(rest), max(0, now.Torn-sent))]
			}
			if _, err := w.Write(part); err != nil {
				return
			}
			_ = flush.Flush()
			sent += len(part)
			rest = rest[len(part):]
			if now.Torn > 0 && concerned && sent >= now.Torn {
				panic(http.ErrAbortHandler)
			}
			if now.BytesPerSecond > 0 {
				select {
				case <-time.After(time.Duration(float64(len(part)) / float64(now.BytesPerSecond) * float64(time.Second))):
				case <-lifted:
				}
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}
