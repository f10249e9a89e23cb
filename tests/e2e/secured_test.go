package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// secured is a running exporter with a web configuration, and the files of its clients.
type secured struct {
	t               *testing.T
	dir             string
	port, telemetry int
}

// startSecured starts it with a server certificate; more are additional lines of the web configuration, where ca.crt
// is the CA of all certificates.
func startSecured(t *testing.T, cluster *harness.Cluster, more string, args ...string) *secured {
	t.Helper()
	s := &secured{t: t, dir: t.TempDir(), port: harness.FreePort(t), telemetry: harness.FreePort(t)}
	ca := newAuthority(t)
	write := func(name string, content []byte) {
		if err := os.WriteFile(s.file(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.certificate.Raw}))
	for name, usage := range map[string]x509.ExtKeyUsage{"server": x509.ExtKeyUsageServerAuth, "client": x509.ExtKeyUsageClientAuth} {
		certificate, key := ca.sign(t, usage)
		write(name+".crt", certificate)
		write(name+".key", key)
	}
	foreign, key := newAuthority(t).sign(t, x509.ExtKeyUsageClientAuth)
	write("foreign.crt", foreign)
	write("foreign.key", key)
	write("web.yml", []byte("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"+more))
	process := harness.Start(t, harness.OurKubeStateMetrics(t), append([]string{
		"--kubeconfig=" + cluster.Kubeconfig, "--tls-config=" + s.file("web.yml"),
		"--host=127.0.0.1", fmt.Sprintf("--port=%d", s.port), "--telemetry-host=127.0.0.1", fmt.Sprintf("--telemetry-port=%d", s.telemetry),
	}, args...)...)
	process.WaitOutput("Started self metrics server")
	return s
}

func (s *secured) file(name string) string { return filepath.Join(s.dir, name) }

// run runs a client program; its output includes the exit code.
func (s *secured) run(stdin, program string, args ...string) (out string, code int) {
	s.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatalf("%s: %v", program, err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// curl requests metrics; the status is 000 without a response.
func (s *secured) curl(port int, args ...string) string {
	s.t.Helper()
	out, _ := s.run("", "curl", append([]string{"--silent", "--output", os.DevNull, "--write-out", "%{http_code} %{ssl_verify_result} %{http_version}",
		"--cacert", s.file("ca.crt"), fmt.Sprintf("https://localhost:%d/metrics", port)}, args...)...)
	return out
}

// TestCurlAndOpensslWithClientCertificates: only clients with a certificate of the CA are served.
func TestCurlAndOpensslWithClientCertificates(t *testing.T) {
	cluster := harness.StartCluster(t)
	s := startSecured(t, cluster, "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n", "--resources=pods")
	own := []string{"--cert", s.file("client.crt"), "--key", s.file("client.key")}
	foreign := []string{"--cert", s.file("foreign.crt"), "--key", s.file("foreign.key")}
	for _, port := range []int{s.port, s.telemetry} {
		for _, test := range []struct {
			name, want string
			args       []string
		}{
			{"HTTP/2", "200 0 2", own},
			{"HTTP/1.1", "200 0 1.1", append([]string{"--http1.1"}, own...)},
			{"TLS 1.2", "200 0 2", append([]string{"--tlsv1.2", "--tls-max", "1.2"}, own...)},
			{"TLS 1.3", "200 0 2", append([]string{"--tlsv1.3"}, own...)},
			{"no certificate", "000 0 ", nil},
			{"another authority's", "000 0 ", foreign},
		} {
			if got := s.curl(port, test.args...); !strings.HasPrefix(got, test.want) {
				t.Errorf("%s: %q, it should be %q", test.name, got, test.want)
			}
		}
		connect := []string{"s_client", "-connect", fmt.Sprintf("localhost:%d", port), "-servername", "localhost", "-CAfile", s.file("ca.crt"), "-verify_return_error", "-ign_eof"}
		request := "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
		out, code := s.run(request, "openssl", append(connect, "-cert", s.file("client.crt"), "-key", s.file("client.key"))...)
		for _, part := range []string{"Verify return code: 0 (ok)", "TLSv1.3", "HTTP/1.1 200 OK", "Acceptable client certificate CA names"} {
			if code != 0 || !strings.Contains(out, part) {
				t.Errorf("exit code %d, no %q in\n%s", code, part, out)
			}
		}
		for name, args := range map[string][]string{
			"no certificate":      nil,
			"another authority's": {"-cert", s.file("foreign.crt"), "-key", s.file("foreign.key")},
			"TLS 1.1":             {"-tls1_1", "-cipher", "ALL:@SECLEVEL=0", "-cert", s.file("client.crt"), "-key", s.file("client.key")},
		} {
			out, _ := s.run(request, "openssl", append(connect, args...)...)
			if strings.Contains(out, "HTTP/1.1 ") || !strings.Contains(out, "alert") {
				t.Errorf("%s: answered, or no alert\n%s", name, out)
			}
		}
	}
}

// TestCurlWithPasswords: basic auth with the users of the web configuration, over TLS.
func TestCurlWithPasswords(t *testing.T) {
	cluster := harness.StartCluster(t)
	// The hash of the password pw.
	const hash = "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW"
	s := startSecured(t, cluster, fmt.Sprintf("basic_auth_users: {somebody: %q}\n", hash), "--resources=pods")
	for _, port := range []int{s.port, s.telemetry} {
		for _, test := range []struct {
			want string
			args []string
		}{
			{"200 0 2", []string{"--user", "somebody:pw"}},
			{"401 0 2", []string{"--user", "somebody:wp"}},
			{"401 0 2", []string{"--user", "nobody:pw"}},
			{"401 0 2", nil},
		} {
			if got := s.curl(port, test.args...); got != test.want {
				t.Errorf("%v: %q, it should be %q", test.args, got, test.want)
			}
		}
		out, _ := s.run("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic c29tZWJvZHk6cHc=\r\nConnection: close\r\n\r\n",
			"openssl", "s_client", "-connect", fmt.Sprintf("localhost:%d", port), "-CAfile", s.file("ca.crt"), "-verify_return_error", "-ign_eof", "-quiet")
		if !strings.Contains(out, "HTTP/1.1 200 OK") {
			t.Errorf("openssl with a password:\n%s", out)
		}
	}
}

// TestPrometheusOverTLSWithToken has a real Prometheus scrape both listeners over TLS with the token of a service
// account, and with one without permission.
func TestPrometheusOverTLSWithToken(t *testing.T) {
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	s := startSecured(t, cluster, "", "--resources=configmaps,namespaces", "--auth-filter")
	for name, rules := range map[string]string{"scraper": `[{nonResourceURLs: ["/metrics"], verbs: [get]}]`, "stranger": `[]`} {
		if err := os.WriteFile(s.file(name), []byte(cluster.ServiceAccountToken(name, rules)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	jobs := ""
	for job, of := range map[string]struct {
		port  int
		token string
	}{"main": {s.port, "scraper"}, "telemetry": {s.telemetry, "scraper"}, "stranger": {s.port, "stranger"}} {
		jobs += fmt.Sprintf("- {job_name: %s, scheme: https, honor_labels: true, tls_config: {ca_file: %q}, authorization: {credentials_file: %q}, static_configs: [{targets: ['localhost:%d']}]}\n",
			job, s.file("ca.crt"), s.file(of.token), of.port)
	}
	p := startPrometheusWith(t, "2s", jobs)
	p.waitQuery(`up{job="main"}`, "1")
	p.waitQuery(`up{job="telemetry"}`, "1")
	p.waitQuery(`up{job="stranger"}`, "0")
	p.waitQuery(`count(kube_configmap_info{job="main",configmap="one"})`, "1")
	p.waitQuery(`kube_state_metrics_total_shards{job="telemetry"}`, "1")
	harness.Eventually(t, "the stranger alone is refused", func() error {
		if err := p.targetErrors(); err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "main") {
			return fmt.Errorf("errors of targets: %w", err)
		}
		return nil
	})
}
