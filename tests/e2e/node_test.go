package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// A kubelet behind TLS that knows one token at a time, and an API server behind the same: what a pod of a DaemonSet has
// before it. The token is rotated under it, and refused before the file has the new one.
func TestNodeTokenIsRotated(t *testing.T) {
	summary, pods := nodeFixture()
	var lock sync.Mutex
	token, refused, paths := "first", 0, map[string]int{}
	servant := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+token {
			refused++
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		paths[r.URL.RequestURI()]++
		switch r.URL.Path {
		case "/stats/summary":
			json.NewEncoder(w).Encode(summary)
		case "/api/v1/pods":
			json.NewEncoder(w).Encode(pods)
		default:
			http.NotFound(w, r)
		}
	}))
	signer := newAuthority(t)
	pair, err := tls.X509KeyPair(signer.sign(t, x509.ExtKeyUsageServerAuth))
	if err != nil {
		t.Fatal(err)
	}
	servant.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	servant.StartTLS()
	defer servant.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority := write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signer.certificate.Raw})))
	tokenFile := write("token", "first\n")
	kubeconfig := write("kubeconfig", fmt.Sprintf(`{"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority":%q}}],
		"users":[{"name":"u","user":{"tokenFile":%q}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
		"current-context":"x"}`, servant.URL, authority, tokenFile))
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	port, telemetryPort := harness.FreePort(t), harness.FreePort(t)
	main, telemetry := url(port), url(telemetryPort)
	kstatd := harness.Start(t, harness.Kstatd(t), "node", strings.Replace(main, "http://", "--listen=", 1),
		strings.Replace(telemetry, "http://", "--telemetry-listen=", 1),
		"--kubelet="+servant.URL, "--certificate-authority="+authority, "--token-file="+tokenFile,
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
	lock.Lock()
	if want := "/api/v1/pods?fieldSelector=spec.nodeName%3Dworker-1&resourceVersion=0"; paths[want] != 1 {
		t.Errorf("the API server was asked for %v, not once for %s", paths, want)
	}
	token = "second"
	lock.Unlock()
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
// pod is one that the strictest pod security level takes.
func TestDeployNode(t *testing.T) {
	c := loadVariant(t, "node")
	cluster := harness.StartCluster(t)
	var manifests []map[string]any
	for _, o := range c.objects {
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		if _, err := cluster.Resource(resourceOfKind[o.GetKind()], o).Create(context.Background(), o, dry); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		cluster.Create(resourceOfKind[o.GetKind()], o)
		manifests = append(manifests, o.Object)
	}
	want := []right{{"", "nodes/stats", "get", ""}, {"", "pods", "list", ""}}
	if granted := rights(t, manifests); !slices.Equal(granted, want) {
		t.Errorf("the role has %v, needed is %v", granted, want)
	}
	review, err := cluster.Typed.AuthorizationV1().SubjectAccessReviews().Create(context.Background(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:kstatd:kstatd-node", ResourceAttributes: &authorizationv1.ResourceAttributes{
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
	// Admission looks at pods, not at daemon sets.
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "try", Namespace: "kstatd"}, Spec: workloads[0].pod}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Create("pods", &unstructured.Unstructured{Object: object})
}
