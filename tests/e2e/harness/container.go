package harness

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Network is a network namespace with its own loopback: programs in it can use the ports of manifests, whatever else
// runs on the machine.
type Network struct {
	t    testing.TB
	file *os.File
}

// NewNetwork creates an empty network. It needs root, like every container engine.
func NewNetwork(t testing.TB) *Network {
	t.Helper()
	name := fmt.Sprintf("kstatd-e2e-%d-%d", os.Getpid(), time.Now().UnixNano())
	for _, args := range [][]string{{"netns", "add", name}, {"-n", name, "link", "set", "lo", "up"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "delete", name).CombinedOutput(); err != nil {
			t.Errorf("ip netns delete: %v: %s", err, out)
		}
	})
	file, err := os.Open("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &Network{t: t, file: file}
}

// Inside runs f on a thread in the network; sockets opened and processes started there belong to it permanently.
func (n *Network) Inside(f func()) {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		n.t.Errorf("own network: %v", err)
		return
	}
	defer own.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		n.t.Errorf("enter network: %v", err)
		return
	}
	f()
	if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
		// The thread cannot be reused: it ends with its goroutine.
		n.t.Errorf("leave network: %v", err)
		return
	}
	runtime.UnlockOSThread()
}

// Dial connects inside the network. The address has an IP, not a name.
func (n *Network) Dial(_ context.Context, network, address string) (conn net.Conn, err error) {
	n.Inside(func() { conn, err = net.DialTimeout(network, address, Patience) })
	return conn, err
}

// Get fetches a URL inside the network.
func (n *Network) Get(url string) (Response, error) {
	client := &http.Client{Timeout: Patience, Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Response{resp.StatusCode, resp.Header, string(body)}, err
}

// GetTLS fetches a URL inside the network with a bearer token and without verifying the certificate. It returns the
// status.
func (n *Network) GetTLS(url, token string) (int, error) {
	client := &http.Client{Timeout: Patience, Transport: &http.Transport{
		DialContext: n.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// Image is a root folder like that of the Dockerfile, with the mounts of a pod.
type Image struct {
	t    testing.TB
	root string
}

// NewImage creates a root folder with the binary, the links of both personalities and CA roots.
func NewImage(t testing.TB) *Image {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "image")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	image := &Image{t: t, root: root}
	binary := Kstatd(t).Path
	image.copyFile(binary, "/kstatd")
	if err := os.Chmod(filepath.Join(root, "kstatd"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A development build is not static; its shared libraries are added.
	out, _ := exec.Command("ldd", binary).Output()
	for _, word := range strings.Fields(string(out)) {
		if strings.HasPrefix(word, "/") {
			image.copyFile(word, word)
			if err := os.Chmod(filepath.Join(root, word), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, link := range []string{"/kube-state-metrics", "/bin/statsd_exporter"} {
		path := filepath.Join(root, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/kstatd", path); err != nil {
			t.Fatal(err)
		}
	}
	return image
}

func (i *Image) copyFile(from, to string) {
	i.t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		i.t.Fatal(err)
	}
	i.Mount(to, string(text))
}

// MountProc mounts the host's /proc, as far as its user may read it.
func (i *Image) MountProc() {
	i.t.Helper()
	to := filepath.Join(i.root, "proc")
	if err := os.Mkdir(to, 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := unix.Mount("/proc", to, "", unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		i.t.Fatalf("mount /proc: %v", err)
	}
	i.t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			i.t.Errorf("unmount %s: %v", to, err)
		}
	})
}

// Mount creates a file at the path of a pod's mount.
func (i *Image) Mount(path, text string) {
	i.t.Helper()
	full := filepath.Join(i.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		i.t.Fatal(err)
	}
}

// Run starts the entry point with the image as its root and in the network, as user 65534 without write access and
// capabilities.
func (i *Image) Run(network *Network, entrypoint string, env []string, args ...string) *Process {
	i.t.Helper()
	return StartWith(i.t, Program{Name: entrypoint, Path: entrypoint}, StartOptions{Env: env, Root: i.root, Network: network, User: 65534}, args...)
}
