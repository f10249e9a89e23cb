package harness

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// APIGate is a proxy in front of a cluster's API server whose rule decides on each request.
type APIGate struct {
	// URL is its address, in plain HTTP.
	URL string

	mu      sync.Mutex
	rule    func(*http.Request) int
	changed chan struct{}
}

// Hold as the result of a rule keeps the request waiting for another rule.
const Hold = -1

// StartAPIGate starts a gate that forwards everything.
func (c *Cluster) StartAPIGate(t testing.TB) *APIGate {
	t.Helper()
	target, err := url.Parse(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	g := &APIGate{changed: make(chan struct{})}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			g.mu.Lock()
			rule, changed := g.rule, g.changed
			g.mu.Unlock()
			switch code := decide(rule, r); code {
			case 0:
				proxy.ServeHTTP(w, r)
				return
			case Hold:
				select {
				case <-changed:
				case <-r.Context().Done():
					return
				}
			default:
				http.Error(w, http.StatusText(code), code)
				return
			}
		}
	}))
	t.Cleanup(func() {
		g.Rule(nil)
		server.CloseClientConnections()
		server.Close()
	})
	g.URL = server.URL
	return g
}

func decide(rule func(*http.Request) int, r *http.Request) int {
	if rule == nil {
		return 0
	}
	return rule(r)
}

// Rule sets the rule for all requests, including waiting ones: 0 forwards a request, Hold keeps it waiting, any other
// value is the status of the response. Without a rule everything is forwarded.
func (g *APIGate) Rule(rule func(*http.Request) int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rule = rule
	close(g.changed)
	g.changed = make(chan struct{})
}

// IsList returns whether a request asks for a complete state, as a list or as initial events of a watch.
func IsList(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/api/") && !strings.HasPrefix(r.URL.Path, "/apis/") {
		return false
	}
	query := r.URL.Query()
	return query.Get("watch") == "" || query.Get("sendInitialEvents") != ""
}
