package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kstatd/e2e/harness"
)

// What kubelet and API server would say of one node, in their own types.
func nodeFixture() (stats.Summary, corev1.PodList) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	number := func(of uint64) *uint64 { return &of }
	used := func(bytes, inodes uint64) *stats.FsStats {
		return &stats.FsStats{
			Time: at, UsedBytes: number(bytes), InodesUsed: number(inodes),
			CapacityBytes: number(100000), AvailableBytes: number(60000), Inodes: number(1000), InodesFree: number(900),
		}
	}
	disk := func(capacity, available uint64) *stats.FsStats {
		return &stats.FsStats{Time: at, CapacityBytes: number(capacity), AvailableBytes: number(available), UsedBytes: number(capacity - available)}
	}
	cpu := &stats.CPUStats{Time: at, UsageNanoCores: number(5), UsageCoreNanoSeconds: number(6)}
	container := func(name string, rootfs, logs *stats.FsStats) stats.ContainerStats {
		return stats.ContainerStats{Name: name, StartTime: at, CPU: cpu, Rootfs: rootfs, Logs: logs}
	}
	volume := func(name string, of *stats.FsStats) stats.VolumeStats {
		return stats.VolumeStats{FsStats: *of, Name: name}
	}
	claim := volume("claim", used(1<<40, 5))
	claim.PVCRef = &stats.PVCReference{Name: "data", Namespace: "shop"}
	summary := stats.Summary{
		Node: stats.NodeStats{
			NodeName: "worker-1", StartTime: at, CPU: cpu, Fs: disk(100000, 60000),
			SystemContainers: []stats.ContainerStats{container("kubelet", nil, nil)},
			Runtime:          &stats.RuntimeStats{ImageFs: disk(50000, 10000), ContainerFs: disk(100000, 60000)},
		},
		Pods: []stats.PodStats{
			{
				PodRef: stats.PodReference{Name: "grow", Namespace: "shop", UID: "uid-grow"}, StartTime: at, CPU: cpu,
				Containers:       []stats.ContainerStats{container("main", used(4096, 7), used(1024, 2))},
				VolumeStats:      []stats.VolumeStats{volume("cache", used(8192, 4)), claim, volume("memory", used(12288, 3)), volume("kube-api-access", used(12288, 9))},
				EphemeralStorage: used(13312, 13),
			},
			{
				PodRef: stats.PodReference{Name: "quiet", Namespace: "other", UID: "uid-quiet"}, StartTime: at,
				Containers:       []stats.ContainerStats{container("main", used(0, 1), used(0, 1)), container("say \"}]\\", used(512, 1), used(0, 1))},
				EphemeralStorage: used(512, 4),
			},
		},
	}
	storage := func(of string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse(of), corev1.ResourceCPU: resource.MustParse("1")}
	}
	size, yes := resource.MustParse("16Ki"), true
	pods := corev1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items: []corev1.Pod{
			{
				ObjectMeta: metav1.ObjectMeta{
					Name: "grow", Namespace: "shop", UID: "uid-grow",
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "grow-1", UID: "r", Controller: &yes}},
				},
				Spec: corev1.PodSpec{
					NodeName: "worker-1",
					Containers: []corev1.Container{{
						Name:         "main",
						Resources:    corev1.ResourceRequirements{Limits: storage("10Ki"), Requests: storage("1k")},
						VolumeMounts: []corev1.VolumeMount{{Name: "cache", MountPath: "/cache"}, {Name: "claim", MountPath: "/data"}},
					}},
					Volumes: []corev1.Volume{
						{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}},
						{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
						{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
						{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
					},
				},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
					{Name: "main", ContainerID: "containerd://" + strings.Repeat("0123456789abcdef", 4)},
				}},
			},
			{
				ObjectMeta: metav1.ObjectMeta{Name: "quiet", Namespace: "other", UID: "uid-quiet"},
				Spec:       corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{Name: "main"}, {Name: "say \"}]\\"}}},
			},
		},
	}
	return summary, pods
}

// The files that tests of the program read are what the types of this version make.
func TestNodeFixture(t *testing.T) {
	summary, pods := nodeFixture()
	for name, of := range map[string]any{"summary.json": summary, "pods.json": pods} {
		want, err := json.MarshalIndent(of, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		path := filepath.Join("..", "data", "kubelet", name)
		if os.Getenv("E2E_UPDATE") != "" {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the types make: %v; write it with E2E_UPDATE=1", path, err)
		}
	}
}

// nodeDouble is a kubelet behind TLS that knows one token at a time, and an API server behind the same: what a pod of a
// DaemonSet has before it.
type nodeDouble struct {
	*httptest.Server
	// authority is what has signed its certificate.
	authority string
	lock      sync.Mutex
	token     string
	// paths are those that were asked for, and how often.
	paths map[string]int
}

// newNodeDouble starts one, at a listener if there is one.
func newNodeDouble(t *testing.T, listener net.Listener) *nodeDouble {
	t.Helper()
	summary, pods := nodeFixture()
	d := &nodeDouble{token: "first", paths: map[string]int{}}
	d.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.lock.Lock()
		defer d.lock.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+d.token {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		d.paths[r.URL.RequestURI()]++
		switch r.URL.Path {
		case "/stats/summary":
			json.NewEncoder(w).Encode(summary)
		case "/api/v1/pods":
			json.NewEncoder(w).Encode(pods)
		default:
			http.NotFound(w, r)
		}
	}))
	if listener != nil {
		d.Listener.Close()
		d.Listener = listener
	}
	signer := newAuthority(t)
	pair, err := tls.X509KeyPair(signer.sign(t, x509.ExtKeyUsageServerAuth))
	if err != nil {
		t.Fatal(err)
	}
	d.authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signer.certificate.Raw}))
	d.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	d.StartTLS()
	t.Cleanup(d.Close)
	return d
}

// The token is rotated under it, and refused before the file has the new one.
func TestNodeTokenIsRotated(t *testing.T) {
	double := newNodeDouble(t, nil)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority := write("ca.crt", double.authority)
	tokenFile := write("token", "first\n")
	kubeconfig := write("kubeconfig", fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],
		"users":[{"name":"u","user":{"tokenFile":%q}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
		"current-context":"x"}`, double.URL, authority, tokenFile))
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	port, telemetryPort := harness.FreePort(t), harness.FreePort(t)
	main, telemetry := url(port), url(telemetryPort)
	kstatd := harness.Start(t, harness.Kstatd(t), "node", strings.Replace(main, "http://", "--listen=", 1),
		strings.Replace(telemetry, "http://", "--telemetry-listen=", 1),
		"--kubelet="+double.URL, "--certificate-authority="+authority, "--token-file="+tokenFile,
		"--kubeconfig="+kubeconfig, "--interval=50ms")
	harness.WaitStatus(t, kstatd, main+"/healthz", 200)
	has := func(address, part string) {
		t.Helper()
		harness.Eventually(t, part, func() error {
			answer, err := harness.Get(address + "/metrics")
			if err == nil && !strings.Contains(answer.Body, part) {
				err = fmt.Errorf("not in %s", answer.Body)
			}
			return err
		})
	}
	has(main, `kstatd_node_pod_limit_ratio{namespace="shop",pod="grow"} 1.3`)
	double.lock.Lock()
	if want := "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-1&resourceVersion=0"; double.paths[want] != 1 {
		t.Errorf("the API server was asked for %v, not once for %s", double.paths, want)
	}
	double.token = "second"
	double.lock.Unlock()
	has(telemetry, `kstatd_node_polls_total{outcome="refused",server="kubelet"}`)
	// What there was stays, and is told to be old.
	has(main, `kstatd_node_pod_used_bytes{namespace="shop",pod="grow"} 13312`)
	replaceFile(t, tokenFile, "second\n")
	harness.Eventually(t, "the new token is taken", func() error {
		answer, err := harness.Get(main + "/status?format=text")
		if err == nil && !strings.HasPrefix(answer.Body, "OK") {
			err = fmt.Errorf("%s", answer.Body)
		}
		return err
	})
}

// The manifests are valid for a real API server, the account may do what the process needs and nothing else, and the
// pod is one that the pod security level of its namespace takes: the strictest one for that which asks the kubelet alone.
func TestDeployNode(t *testing.T) {
	for _, variant := range []struct {
		name, namespace string
		level           string
		capabilities    []corev1.Capability
		paths           []string
	}{
		{"node", "kstatd-node", "restricted", nil, nil},
		{"node-insecure", "kstatd-node", "restricted", nil, nil},
		{"node-processes", "kstatd-processes", "privileged", []corev1.Capability{"SYS_PTRACE"}, []string{"/proc"}},
		{"node-walk", "kstatd-walk", "privileged", []corev1.Capability{"DAC_READ_SEARCH"},
			[]string{"/proc/1/mountinfo", "/var/lib/containerd", "/var/lib/kubelet/pods", "/var/log/pods"}},
	} {
		t.Run(variant.name, func(t *testing.T) {
			c := loadVariant(t, variant.name)
			cluster := harness.StartCluster(t)
			var manifests []map[string]any
			for _, o := range c.objects {
				dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
				if _, err := cluster.Resource(resourceOfKind[o.GetKind()], o).Create(context.Background(), o, dry); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				cluster.Create(resourceOfKind[o.GetKind()], o)
				manifests = append(manifests, o.Object)
				if level := o.GetLabels()["pod-security.kubernetes.io/enforce"]; o.GetKind() == "Namespace" && (o.GetName() != variant.namespace || level != variant.level) {
					t.Errorf("namespace %s has level %s", o.GetName(), level)
				}
			}
			want := []right{{"", "nodes/stats", "get", ""}, {"", "pods", "list", ""}}
			if granted := rights(t, manifests); !slices.Equal(granted, want) {
				t.Errorf("the role has %v, needed is %v", granted, want)
			}
			review, err := cluster.Typed.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + variant.namespace + ":kstatd-node", ResourceAttributes: &authorizationv1.ResourceAttributes{
					Resource: "nodes", Subresource: "stats", Verb: "get", Name: "worker-1",
				}},
			}, metav1.CreateOptions{})
			if err != nil || !review.Status.Allowed {
				t.Errorf("the kubelet would refuse: %v", err)
			}
			workloads := c.workloads(t)
			if len(workloads) != 1 {
				t.Fatalf("%d workloads", len(workloads))
			}
			w := workloads[0]
			if w.pod.HostPID || w.pod.HostNetwork || w.pod.HostIPC || w.pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("the pod has more of the host than it needs: %+v", w.pod)
			}
			if insecure := slices.Contains(w.container.Args, "--insecure-skip-tls-verify"); insecure != (variant.name == "node-insecure") {
				t.Errorf("verification of the kubelet is off: %v", insecure)
			}
			of := w.container.SecurityContext
			if *of.AllowPrivilegeEscalation || !*of.ReadOnlyRootFilesystem || of.Privileged != nil ||
				!slices.Equal(of.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(of.Capabilities.Add, variant.capabilities) {
				t.Errorf("the container may do more than it needs: %+v", of)
			}
			var paths []string
			for _, path := range w.hostPaths(t) {
				paths = append(paths, path)
			}
			if slices.Sort(paths); !slices.Equal(paths, variant.paths) {
				t.Errorf("it has %v of the host", paths)
			}
			// Admission looks at pods, not at daemon sets.
			pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "try", Namespace: variant.namespace}, Spec: w.pod}
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
			if err != nil {
				t.Fatal(err)
			}
			cluster.Create("pods", &unstructured.Unstructured{Object: object})
		})
	}
}

// hostPaths are the paths of the host that the container has, by where it has them; it can write to none.
func (c chart) hostPaths(t *testing.T) map[string]string {
	t.Helper()
	paths := map[string]string{}
	for _, m := range c.container.VolumeMounts {
		for _, volume := range c.pod.Volumes {
			if volume.Name == m.Name && volume.HostPath != nil {
				paths[m.MountPath] = volume.HostPath.Path
				if !m.ReadOnly {
					t.Errorf("%s can be written to", m.MountPath)
				}
			}
		}
	}
	return paths
}

// What the manifests start runs as they say, in a user namespace: as their user, with their capabilities and no way to
// others, on a root that cannot be written to, with the system calls refused that container engines refuse. What this does
// not show: an engine's own seccomp profile, AppArmor and SELinux; and a capability in a user namespace is one over files
// of its users alone, which are all that there are here.
func TestDeployNodeStarts(t *testing.T) {
	harness.NeedUserNamespace(t)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	// A host: what one pod has written, which nobody else may look at.
	host := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		full := filepath.Join(host, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parts := map[string]string{
		"layer":  "var/lib/containerd/snapshots/7/fs",
		"logs":   "var/log/pods/shop_grow_uid-grow/main",
		"volume": "var/lib/kubelet/pods/uid-grow/volumes/kubernetes.io~empty-dir/cache",
	}
	for what, path := range parts {
		write(path+"/deep/file", strings.Repeat("x", 10000))
		private := filepath.Join(host, path, "deep")
		if err := os.Chmod(private, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(private, 12345, 12345); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	write("proc/1/mountinfo", "30 22 0:40 / /run/"+id+"/rootfs rw - overlay overlay rw,upperdir=/"+parts["layer"]+"\n")

	start := func(t *testing.T, variant string, capabilities []int, unrelatedAuthority bool) (*harness.Network, *nodeDouble) {
		t.Helper()
		c := loadVariant(t, variant).workloads(t)[0]
		network, image := harness.NewNetwork(t), harness.NewImage(t)
		var listener net.Listener
		network.Inside(func() {
			var err error
			if listener, err = net.Listen("tcp", "127.0.0.1:10250"); err != nil {
				t.Error(err)
			}
		})
		if t.Failed() {
			t.FailNow()
		}
		double := newNodeDouble(t, listener)
		const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
		authority := double.authority
		if unrelatedAuthority {
			authority = newNodeDouble(t, nil).authority
		}
		image.Mount(account+"ca.crt", authority)
		image.Mount(account+"token", double.token)
		args, env := c.expanded("kstatd-node-1", "kstatd-node")
		if slices.Contains(args, "--walk") {
			// The first pass is over before it knows of the pod.
			args = append(args, "--walk-interval=100ms")
		}
		env = append(env, "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=10250")
		binds := map[string]string{}
		for to, from := range c.hostPaths(t) {
			binds[to] = filepath.Join(host, from)
		}
		process := image.RunConfined(network, harness.Confinement{
			Binds: binds, User: int(*c.pod.SecurityContext.RunAsUser), Capabilities: capabilities,
			Args: append([]string{"/kstatd"}, args...), Env: env,
		})
		// Without an answer of the kubelet it never becomes ready.
		if !unrelatedAuthority || slices.Contains(args, "--insecure-skip-tls-verify") {
			c.waitProbes(t, network, process)
		} else {
			waitMetrics(t, network, "http://127.0.0.1:8081/metrics", func(harness.Exposition) error { return nil })
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Pid()))
		if err != nil {
			t.Fatal(err)
		}
		var kept uint64
		for _, capability := range capabilities {
			kept |= 1 << capability
		}
		for _, want := range []string{
			fmt.Sprintf("CapEff:\t%016x", kept), fmt.Sprintf("CapBnd:\t%016x", kept), "NoNewPrivs:\t1", "Seccomp:\t2",
		} {
			if !strings.Contains(string(status), want+"\n") {
				t.Errorf("it does not have %q:\n%s", want, status)
			}
		}
		return network, double
	}
	// How much of the parts was looked at, by what they are and who says so.
	coverage := func(e harness.Exposition, what, source string) string {
		for _, line := range e.Samples {
			if strings.HasPrefix(line, "kstatd_node_storage_coverage_ratio{") && strings.Contains(line, `pod="grow"`) &&
				strings.Contains(line, fmt.Sprintf("source=%q", source)) && strings.Contains(line, fmt.Sprintf("what=%q", what)) {
				return line[strings.LastIndexByte(line, ' ')+1:]
			}
		}
		return ""
	}
	shown := func(e harness.Exposition) error {
		if got := coverage(e, "layer", "kubelet"); got != "1" {
			return fmt.Errorf("the kubelet's figure of the layer is not shown: %q", got)
		}
		return nil
	}
	walked := func(t *testing.T, network *harness.Network, want string) {
		t.Helper()
		waitMetrics(t, network, "http://127.0.0.1:8080/metrics", func(e harness.Exposition) error {
			for what := range parts {
				if got := coverage(e, what, "walk"); got != want {
					return fmt.Errorf("of %s %q was looked at, not %s", what, got, want)
				}
			}
			return nil
		})
	}
	t.Run("node", func(t *testing.T) {
		network, _ := start(t, "node", nil, false)
		waitMetrics(t, network, "http://127.0.0.1:8080/metrics", shown)
	})
	// A kubelet whose certificate the cluster's authority has not signed gets no token, unless the overlay asks for it.
	t.Run("node, self-signed kubelet", func(t *testing.T) {
		network, double := start(t, "node", nil, true)
		waitMetrics(t, network, "http://127.0.0.1:8081/metrics", func(e harness.Exposition) error {
			for _, line := range e.Samples {
				if strings.HasPrefix(line, `kstatd_node_polls_total{`) && strings.Contains(line, `server="kubelet"`) && !strings.HasSuffix(line, " 0") {
					if strings.Contains(line, `outcome="ok"`) {
						t.Fatalf("the kubelet was trusted: %s", line)
					}
					return nil
				}
			}
			return errors.New("the kubelet was not polled")
		})
		double.lock.Lock()
		defer double.lock.Unlock()
		if len(double.paths) > 0 {
			t.Errorf("requests, and with them the token, were sent to an unverified server: %v", double.paths)
		}
	})
	t.Run("node-insecure, self-signed kubelet", func(t *testing.T) {
		network, _ := start(t, "node-insecure", nil, true)
		waitMetrics(t, network, "http://127.0.0.1:8080/metrics", shown)
	})
	t.Run("walk", func(t *testing.T) {
		network, _ := start(t, "node-walk", []int{unix.CAP_DAC_READ_SEARCH}, false)
		walked(t, network, "1")
	})
	// What it has is the least: without the capability half of the directories are closed to it.
	t.Run("walk without its capability", func(t *testing.T) {
		network, _ := start(t, "node-walk", nil, false)
		walked(t, network, "0.5")
	})
}
