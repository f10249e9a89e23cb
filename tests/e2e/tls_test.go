package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// authority signs certificates for one test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{serial: 1}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test-ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// sign returns a certificate for localhost and its key, as PEM.
func (a *authority) sign(t *testing.T, usage x509.ExtKeyUsage) (certificate, key []byte) {
	t.Helper()
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: "localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// replace replaces a file atomically.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestCertificatesRotateUnderScrapes repeatedly replaces certificate and key, as one file, during scrapes on new
// connections: none of them fails, and the newest certificate is served.
func TestCertificatesRotateUnderScrapes(t *testing.T) {
	cluster := harness.StartCluster(t)
	ca := newAuthority(t)
	dir := t.TempDir()
	pair := func() []byte {
		certificate, key := ca.sign(t, x509.ExtKeyUsageServerAuth)
		return append(certificate, key...)
	}
	identity, web := filepath.Join(dir, "tls.pem"), filepath.Join(dir, "web.yml")
	replace(t, identity, pair())
	replace(t, web, fmt.Appendf(nil, "tls_server_config: {cert_file: tls.pem, key_file: tls.pem, client_auth_type: RequireAndVerifyClientCert, client_ca: %q}\n",
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.certificate.Raw})))
	port, telemetry := harness.FreePort(t), harness.FreePort(t)
	process := harness.Start(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig, "--resources=pods", "--tls-config="+web,
		"--host=127.0.0.1", fmt.Sprintf("--port=%d", port), "--telemetry-host=127.0.0.1", fmt.Sprintf("--telemetry-port=%d", telemetry))
	process.WaitOutput("Started self metrics server")

	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	certificate, key := ca.sign(t, x509.ExtKeyUsageClientAuth)
	own, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	scrape := func(port int) (serial int64, err error) {
		config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
		client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config, ForceAttemptHTTP2: port%2 == 0}}
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/metrics", port))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode != 200 {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64(), err
	}
	var stop atomic.Bool
	var scrapes atomic.Int64
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			for !stop.Load() {
				if _, err := scrape([]int{port, telemetry}[i%2]); err != nil {
					t.Errorf("scrape: %v", err)
					return
				}
				scrapes.Add(1)
			}
		})
	}
	for range 20 {
		replace(t, identity, pair())
		want := ca.serial
		if serial, err := scrape(port); err != nil || serial != want {
			t.Errorf("certificate %d is served, not %d: %v", serial, want, err)
		}
		// Scrapes continue between two changes.
		seen := scrapes.Load()
		harness.Eventually(t, "more scrapes", func() error {
			if t.Failed() || scrapes.Load() >= seen+4 {
				return nil
			}
			return fmt.Errorf("%d scrapes", scrapes.Load())
		})
	}
	stop.Store(true)
	wait.Wait()
	t.Logf("%d scrapes while the certificate changed 20 times", scrapes.Load())
}
