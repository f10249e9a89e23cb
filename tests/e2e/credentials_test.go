package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// kubeconfig writes a kubeconfig for the cluster with these user and cluster fields.
func kubeconfig(t *testing.T, cluster *harness.Cluster, server, moreCluster, user string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, path, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q%s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, server, filepath.Join(cluster.Dir, "ca.crt"), moreCluster, user))
	return path
}

// replaceFile replaces a file atomically, as the kubelet does.
func replaceFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestTokenFile: whitespace around the token is ignored, a changed token is used as soon as the server rejects the
// old one, and an empty file is a startup error, as in the original.
func TestTokenFile(t *testing.T) {
	t.Parallel() // it waits for the outage to end
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	token := filepath.Join(t.TempDir(), "token")
	replaceFile(t, token, "  "+harness.AdminToken+"\r\n\n")
	config := kubeconfig(t, cluster, cluster.URL(), "", fmt.Sprintf("tokenFile: %q", token))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), mainSlice, "--kubeconfig="+config)
	waitNames(t, exporter, "one")

	cluster.Stop()
	cluster.StartWithToken("another-token")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 503)
	replaceFile(t, token, "another-token\n")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 200)
	// From a new list: the test's own client has the old token.
	waitNames(t, exporter, "one")

	replaceFile(t, token, " \n")
	for _, program := range []harness.Program{harness.KubeStateMetrics(t), harness.OurKubeStateMetrics(t)} {
		code, _, stderr := harness.Run(t, program, "", "--kubeconfig="+config, fmt.Sprintf("--port=%d", harness.FreePort(t)), fmt.Sprintf("--telemetry-port=%d", harness.FreePort(t)))
		if code != 1 {
			t.Errorf("%s: exit code %d with an empty token file:\n%s", program.Name, code, stderr)
		}
	}
}

// TestClientCertificateRotates: a rotated client certificate is used for the next requests.
func TestClientCertificateRotates(t *testing.T) {
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	dir := t.TempDir()
	crt, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(subject pkix.Name) {
		c, k := issue(t, cluster, subject)
		replaceFile(t, crt, c)
		replaceFile(t, key, k)
	}
	put(pkix.Name{CommonName: "nobody"})
	config := kubeconfig(t, cluster, cluster.URL(), "", fmt.Sprintf("client-certificate: %q, client-key: %q", crt, key))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), mainSlice, "--kubeconfig="+config)
	exporter.WaitOutput("forbidden")
	waitNames(t, exporter)
	put(pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}})
	waitNames(t, exporter, "one")
}

// issue returns a client certificate signed by the cluster's CA, with its key.
func issue(t *testing.T, cluster *harness.Cluster, subject pkix.Name) (cert, key string) {
	t.Helper()
	block := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(cluster.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := pem.Decode(text)
		return b.Bytes
	}
	authority, err := x509.ParseCertificate(block("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := x509.ParseECPrivateKey(block("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, own.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	ownDER, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", ownDER)
}

// TestExecCredentials: a plugin runs again when the server rejects its credentials, and its error output is reported.
func TestExecCredentials(t *testing.T) {
	t.Parallel() // it waits for the outage to end
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	dir := t.TempDir()
	token, program := filepath.Join(dir, "token"), filepath.Join(dir, "plugin")
	replaceFile(t, token, harness.AdminToken)
	replaceFile(t, program, `#!/bin/sh
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$(cat "$1")"
`)
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	user := func(command string) string {
		return fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: %q, args: [%q]}", command, token)
	}
	config := kubeconfig(t, cluster, cluster.URL(), "", user(program))
	exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), mainSlice, "--kubeconfig="+config)
	waitNames(t, exporter, "one")
	cluster.Stop()
	cluster.StartWithToken("another-token")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 503)
	replaceFile(t, token, "another-token")
	harness.WaitStatus(t, exporter.Process, exporter.Base+"/livez", 200)

	broken := filepath.Join(dir, "broken")
	replaceFile(t, broken, "#!/bin/sh\necho the vault is locked >&2\nexit 3\n")
	if err := os.Chmod(broken, 0o700); err != nil {
		t.Fatal(err)
	}
	config = kubeconfig(t, cluster, cluster.URL(), "", user(broken))
	code, _, stderr := harness.Run(t, harness.OurKubeStateMetrics(t), "", "--kubeconfig="+config, fmt.Sprintf("--port=%d", harness.FreePort(t)), fmt.Sprintf("--telemetry-port=%d", harness.FreePort(t)))
	harness.NotInSelfCheck(t)
	if code != 1 || !strings.Contains(stderr, "the vault is locked") {
		t.Errorf("exit code %d, and the message does not say why:\n%s", code, stderr)
	}
}

// connectProxy is an HTTP proxy that forwards every connection to one target.
type connectProxy struct {
	net.Listener
	mu    sync.Mutex
	asked []string
}

const proxyUser, proxyPassword = "us%40er", "very-secret"

// startProxy starts a proxy that requires user and password.
func startProxy(t *testing.T, target string) *connectProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &connectProxy{Listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(conn, target)
		}
	}()
	return p
}

func (p *connectProxy) serve(conn net.Conn, target string) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("us@er:"+proxyPassword))
	if request.Method != http.MethodConnect || request.Header.Get("Proxy-Authorization") != want {
		fmt.Fprint(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, request.Host)
	p.mu.Unlock()
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer upstream.Close()
	fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(upstream, reader)
		upstream.Close()
	}()
	_, _ = io.Copy(conn, upstream)
}

// startSocks starts a SOCKS 5 proxy that requires user and password.
func startSocks(t *testing.T, target string) *connectProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &connectProxy{Listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serveSocks(conn, target)
		}
	}()
	return p
}

func (p *connectProxy) serveSocks(conn net.Conn, target string) {
	defer conn.Close()
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(conn, b); err != nil {
			return make([]byte, n)
		}
		return b
	}
	read(int(read(2)[1]))
	_, _ = conn.Write([]byte{5, 2})
	user := read(int(read(2)[1]))
	password := read(int(read(1)[0]))
	if string(user) != "us@er" || string(password) != proxyPassword {
		_, _ = conn.Write([]byte{1, 1})
		return
	}
	_, _ = conn.Write([]byte{1, 0})
	// Version, command, reserved, address type: a name.
	if head := read(4); head[3] != 3 {
		return
	}
	name := read(int(read(1)[0]))
	port := read(2)
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprintf("%s:%d", name, int(port[0])<<8|int(port[1])))
	p.mu.Unlock()
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer upstream.Close()
	_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	go func() {
		_, _ = io.Copy(upstream, conn)
		upstream.Close()
	}()
	_, _ = io.Copy(conn, upstream)
}

// places are the requested targets.
func (p *connectProxy) places() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.asked...)
}

// startWithEnv starts an exporter with environment variables.
func startWithEnv(t *testing.T, env []string, args ...string) *harness.KubeExporter {
	t.Helper()
	program := harness.OurKubeStateMetrics(t)
	program.Prefix = append([]string{"-i", "PATH=" + os.Getenv("PATH")}, append(append(env, program.Path), program.Prefix...)...)
	program.Path = "/usr/bin/env"
	return harness.StartKubeExporter(t, program, args...)
}

// TestProxies: proxies of the environment and of the kubeconfig are used, with the rules of Go's clients, and their
// passwords are never printed.
func TestProxies(t *testing.T) {
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	token := fmt.Sprintf("token: %q", harness.AdminToken)
	target := strings.TrimPrefix(cluster.URL(), "https://")
	// A name in the server's certificate that only the proxy can resolve.
	const inside = "kubernetes.default.svc:7443"
	named := kubeconfig(t, cluster, "https://"+inside, "", token)
	direct := kubeconfig(t, cluster, cluster.URL(), "", token)
	url := func(p *connectProxy) string {
		return fmt.Sprintf("http://%s:%s@%s", proxyUser, proxyPassword, p.Addr())
	}
	check := func(t *testing.T, exporter *harness.KubeExporter, proxy *connectProxy, place string) {
		t.Helper()
		waitNames(t, exporter, "one")
		for _, asked := range proxy.places() {
			if asked != place {
				t.Errorf("the proxy was asked for %q", asked)
			}
		}
		if used := len(proxy.places()) > 0; used != (place != "") {
			t.Errorf("the proxy was used: %v", used)
		}
		if strings.Contains(exporter.Output(), proxyPassword) {
			t.Error("the password is in the log")
		}
	}
	t.Run("environment", func(t *testing.T) {
		proxy := startProxy(t, target)
		exporter := startWithEnv(t, []string{"https_proxy=" + url(proxy)}, mainSlice, "--kubeconfig="+named)
		check(t, exporter, proxy, inside)
	})
	t.Run("kubeconfig", func(t *testing.T) {
		proxy := startProxy(t, target)
		config := kubeconfig(t, cluster, "https://"+inside, fmt.Sprintf(", proxy-url: %q", url(proxy)), token)
		check(t, startWithEnv(t, []string{"HTTPS_PROXY=http://127.0.0.1:1", "NO_PROXY=*"}, mainSlice, "--kubeconfig="+config), proxy, inside)
	})
	t.Run("SOCKS", func(t *testing.T) {
		proxy := startSocks(t, target)
		config := kubeconfig(t, cluster, "https://"+inside, fmt.Sprintf(", proxy-url: %q", strings.Replace(url(proxy), "http", "socks5", 1)), token)
		check(t, startWithEnv(t, nil, mainSlice, "--kubeconfig="+config), proxy, inside)
	})
	t.Run("plain HTTP", func(t *testing.T) {
		var asked atomic.Int64
		upstream, err := neturl.Parse(cluster.URL())
		if err != nil {
			t.Fatal(err)
		}
		forward := httputil.NewSingleHostReverseProxy(upstream)
		forward.FlushInterval = -1
		forward.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// A proxy receives the whole URL.
			if r.URL.Host != "inside.example:8001" || r.Header.Get("Proxy-Authorization") == "" {
				w.WriteHeader(http.StatusProxyAuthRequired)
				return
			}
			asked.Add(1)
			r.Host = upstream.Host
			r.Header.Set("Authorization", "Bearer "+harness.AdminToken)
			forward.ServeHTTP(w, r)
		}))
		t.Cleanup(server.CloseClientConnections)
		env := fmt.Sprintf("HTTP_PROXY=http://%s:%s@%s", proxyUser, proxyPassword, strings.TrimPrefix(server.URL, "http://"))
		exporter := startWithEnv(t, []string{env}, mainSlice, "--apiserver=http://inside.example:8001")
		waitNames(t, exporter, "one")
		if asked.Load() == 0 || strings.Contains(exporter.Output(), proxyPassword) {
			t.Error("the proxy was not used, or its password is in the log")
		}
	})
	t.Run("excepted", func(t *testing.T) {
		proxy := startProxy(t, target)
		check(t, startWithEnv(t, []string{"HTTPS_PROXY=" + url(proxy), "NO_PROXY=*"}, mainSlice, "--kubeconfig="+direct), proxy, "")
		check(t, startWithEnv(t, []string{"HTTPS_PROXY=" + url(proxy)}, mainSlice, "--kubeconfig="+direct), proxy, "")
	})
	t.Run("refusing", func(t *testing.T) {
		proxy := startProxy(t, target)
		wrong := strings.Replace(url(proxy), proxyUser, "someone", 1)
		for _, proxyURL := range []string{wrong, "gopher://" + proxyUser + ":" + proxyPassword + "@x"} {
			config := kubeconfig(t, cluster, "https://"+inside, fmt.Sprintf(", proxy-url: %q", proxyURL), token)
			code, _, stderr := harness.Run(t, harness.OurKubeStateMetrics(t), "", "--kubeconfig="+config, fmt.Sprintf("--port=%d", harness.FreePort(t)), fmt.Sprintf("--telemetry-port=%d", harness.FreePort(t)))
			if code != 1 || strings.Contains(stderr, proxyPassword) {
				t.Errorf("exit code %d:\n%s", code, stderr)
			}
		}
	})
}
