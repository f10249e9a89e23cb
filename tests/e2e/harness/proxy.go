package harness

import (
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// Fault describes a misbehaviour of a proxy. The zero value is none.
type Fault struct {
	// Refuse accepts no connections and cuts existing ones.
	Refuse bool
	// Freeze stops forwarding on the existing connections, with FreezeNew also on new ones. All stay open.
	Freeze, FreezeNew bool
	// Status is the response status, with RetryAfter seconds unless 0.
	Status, RetryAfter int
	// Share is the share of the requests that Status, Torn and Body affect, 0 for all.
	Share float64
	// Only selects the requests that everything except Refuse, Freeze and BytesPerSecond affects, nil for all.
	Only func(*http.Request) bool
	// Torn truncates a body after this many bytes: the connection breaks or, if Clean is set, the response ends as if it
	// were complete.
	Torn  int
	Clean bool
	// Garbage replaces the bytes of a body after this many by others.
	Garbage int
	// Gzip compresses bodies, requested or not.
	Gzip bool
	// Body is sent with status 200 and this content type.
	Body, ContentType string
	// BytesPerSecond is the speed of every body, 0 for no limit.
	BytesPerSecond int
	// Delay is the time before a request is forwarded.
	Delay time.Duration
	// Hold keeps requests waiting until the faults change.
	Hold bool
}

// Proxy is between the programs and the API server and misbehaves on command. It terminates TLS, so the state of the
// connection behind it is hidden.
type Proxy struct {
	// URL is its address, without TLS.
	URL string

	t      testing.TB
	addr   string
	server *http.Transport
	target string

	mu       sync.Mutex
	faults   []Fault
	listener net.Listener
	conns    map[*proxyConn]bool
	lifted   chan struct{}
	requests int
}

// proxyConn is a client connection; a frozen one neither reads nor writes.
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
	if slices.ContainsFunc(l.proxy.faults, func(f Fault) bool { return f.FreezeNew }) {
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

// Set sets the faults; the first one that affects a request applies. Without arguments it ends all faults.
func (p *Proxy) Set(faults ...Fault) {
	any := func(faults []Fault, has func(Fault) bool) bool { return slices.ContainsFunc(faults, has) }
	refuse := func(f Fault) bool { return f.Refuse }
	p.mu.Lock()
	refused, refuses := any(p.faults, refuse), any(faults, refuse)
	p.faults = faults
	close(p.lifted)
	p.lifted = make(chan struct{})
	p.mu.Unlock()
	if refuses && p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	frozen := any(faults, func(f Fault) bool { return f.Freeze })
	for _, c := range p.all() {
		c.freeze(frozen)
		if refuses {
			c.Close()
		}
	}
	if refused && !refuses {
		p.listen()
	}
}

func (p *Proxy) all() []*proxyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.conns))
}

// CutAll breaks every connection once (RST).
func (p *Proxy) CutAll() {
	for _, c := range p.all() {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.Close()
	}
}

// EndAll ends every connection once (FIN), at any point of its response; remaining input is read.
func (p *Proxy) EndAll() {
	for _, c := range p.all() {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}
}

// Requests is the number of requests so far.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// about combines the faults for a request, whose number decides whether it is in their share, and returns a channel
// that is closed when they change.
func (p *Proxy) about(r *http.Request, number int) (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all Fault
	for _, f := range p.faults {
		// The speed affects every body, and one fault alone is applied unchanged.
		all.BytesPerSecond = max(all.BytesPerSecond, f.BytesPerSecond)
		if f.Only != nil && !f.Only(r) || f.Share > 0 && float64(number*37%100) >= f.Share*100 {
			continue
		}
		if all.Status == 0 {
			all.Status, all.RetryAfter = f.Status, f.RetryAfter
		}
		if all.Body == "" {
			all.Body, all.ContentType = f.Body, f.ContentType
		}
		if all.Torn == 0 {
			all.Torn, all.Clean = f.Torn, f.Clean
		}
		all.Garbage = max(all.Garbage, f.Garbage)
		all.Gzip, all.Hold = all.Gzip || f.Gzip, all.Hold || f.Hold
		all.Delay = max(all.Delay, f.Delay)
	}
	return all, p.lifted
}

// reasons are the reasons of a status that clients check.
var reasons = map[int]string{403: "Forbidden", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.requests++
	number := p.requests
	p.mu.Unlock()
	fault, lifted := p.about(r, number)
	for fault.Hold {
		select {
		case <-lifted:
		case <-r.Context().Done():
			return
		}
		fault, lifted = p.about(r, number)
	}
	if fault.Status != 0 {
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(fault.Status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"scripted","reason":%q,"code":%d}`, reasons[fault.Status], fault.Status)
		return
	}
	if fault.Body != "" {
		w.Header().Set("Content-Type", fault.ContentType)
		_, _ = io.Copy(w, strings.NewReader(fault.Body))
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
	if fault.Gzip {
		out.Header.Del("Accept-Encoding")
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
	body := io.Writer(w)
	flush := func() { _ = http.NewResponseController(w).Flush() }
	if fault.Gzip {
		w.Header().Set("Content-Encoding", "gzip")
		compressed := gzip.NewWriter(w)
		defer compressed.Close()
		body = compressed
		flush = func() {
			_ = compressed.Flush()
			_ = http.NewResponseController(w).Flush()
		}
	}
	w.WriteHeader(resp.StatusCode)
	flush()
	sent := 0
	buffer := make([]byte, 32*1024)
	for {
		n, err := resp.Body.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			now, lifted := p.about(r, number)
			part := rest
			if now.BytesPerSecond > 0 {
				part = rest[:min(len(rest), max(1, now.BytesPerSecond/10))]
			}
			if now.Torn > 0 {
				part = part[:min(len(part), max(0, now.Torn-sent))]
			}
			if now.Garbage > 0 {
				for i := range part {
					if sent+i >= now.Garbage {
						part[i] = byte((sent + i) * 2654435761 >> 7)
					}
				}
			}
			if _, err := body.Write(part); err != nil {
				return
			}
			flush()
			sent += len(part)
			rest = rest[len(part):]
			if now.Torn > 0 && sent >= now.Torn {
				if now.Clean {
					return
				}
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
