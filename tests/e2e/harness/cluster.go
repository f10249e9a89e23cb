package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// AdminToken is the bearer token of every cluster's administrator.
const AdminToken = "e2e-admin-token"

// Cluster is a real API server with client-go clients to it.
type Cluster struct {
	t       testing.TB
	program Program
	network *Network
	args    []string
	process *Process

	// Dir holds its state and certificates, which survive a restart.
	Dir string
	// Port is on 127.0.0.1.
	Port int
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Typed and Dynamic act as the administrator.
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
}

// StartCluster starts an empty cluster; args are flags of kube-apiserver.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	return StartClusterIn(t, nil, args...)
}

// StartClusterIn starts it in a separate network.
func StartClusterIn(t testing.TB, network *Network, args ...string) *Cluster {
	t.Helper()
	// It contains etcd's unix sockets, whose paths must be short.
	dir, err := os.MkdirTemp("/tmp", "kapi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Cluster{t: t, network: network, program: APIServer(t), args: args, Dir: dir, Port: FreePort(t), Kubeconfig: filepath.Join(dir, "kubeconfig")}
	c.Start()
	c.connect()
	return c
}

// connect creates the administrator's clients.
func (c *Cluster) connect() {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	// The client must not throttle the tests.
	config.QPS, config.Burst = 1000, 1000
	config.WarningHandler = rest.NoWarnings{}
	if c.network != nil {
		config.Dial = c.network.Dial
	}
	if c.Typed, err = kubernetes.NewForConfig(config); err != nil {
		c.t.Fatal(err)
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		c.t.Fatal(err)
	}
}

// NewAuthority gives a stopped server a new CA; its state stays.
func (c *Cluster) NewAuthority() {
	c.t.Helper()
	for _, file := range []string{"ca.crt", "ca.key"} {
		if err := os.Remove(filepath.Join(c.Dir, file)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.Start()
	c.connect()
}

// With is the same cluster for a subtest, which then fails on errors.
func (c *Cluster) With(t testing.TB) *Cluster {
	copied := *c
	copied.t = t
	return &copied
}

// Start starts or restarts the server: the same cluster on the same port.
func (c *Cluster) Start() {
	c.t.Helper()
	c.StartWithToken(AdminToken)
}

// StartWithToken starts it with another administrator token.
func (c *Cluster) StartWithToken(token string) {
	c.t.Helper()
	args := []string{"--dir", c.Dir, "--port", fmt.Sprint(c.Port), "--token", token, "--"}
	c.process = StartWith(c.t, c.program, StartOptions{Network: c.network}, append(args, c.args...)...)
	// At the end of the test a graceful shutdown would only take time.
	c.t.Cleanup(c.Crash)
	c.process.WaitOutput("READY ")
}

// Stop ends the server; its state stays.
func (c *Cluster) Stop() { c.process.Stop() }

// Crash kills the server: confirmed state stays, clients are not notified.
func (c *Cluster) Crash() {
	c.process.Signal(syscall.SIGKILL)
	<-c.process.Done()
}

// Backup copies the state of a stopped server, and returns the copy's folder.
func (c *Cluster) Backup() string {
	c.t.Helper()
	backup := filepath.Join(c.t.TempDir(), "etcd")
	if err := os.CopyFS(backup, os.DirFS(filepath.Join(c.Dir, "etcd"))); err != nil {
		c.t.Fatal(err)
	}
	return backup
}

// Restore replaces the state of a stopped server by a copy.
func (c *Cluster) Restore(backup string) {
	c.t.Helper()
	state := filepath.Join(c.Dir, "etcd")
	if err := errors.Join(os.RemoveAll(state), os.CopyFS(state, os.DirFS(backup))); err != nil {
		c.t.Fatal(err)
	}
}

// Process is the running server.
func (c *Cluster) Process() *Process { return c.process }

// URL is where the server answers.
func (c *Cluster) URL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.Port) }

// KubeconfigWith writes a kubeconfig with another bearer token, server or both.
func (c *Cluster) KubeconfigWith(server, token string) string {
	c.t.Helper()
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	context := config.Contexts[config.CurrentContext]
	if server != "" {
		config.Clusters[context.Cluster].Server = server
	}
	config.AuthInfos[context.AuthInfo].Token = token
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// Object parses YAML; an error is a bug in the test.
func Object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// Resource is the client of a resource in the object's namespace.
func (c *Cluster) Resource(resource string, o *unstructured.Unstructured) dynamic.ResourceInterface {
	version := o.GroupVersionKind().GroupVersion()
	client := c.Dynamic.Resource(schema.GroupVersionResource{Group: version.Group, Version: version.Version, Resource: resource})
	if o.GetNamespace() != "" {
		return client.Namespace(o.GetNamespace())
	}
	return client
}

// TryCreate creates the object and then writes its status, which a server drops on creation if the status is a
// subresource.
//
// # Errors
//
// The API server's response.
func (c *Cluster) TryCreate(resource string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx := context.Background()
	if namespace := o.GetNamespace(); namespace != "" {
		if err := c.ensureNamespace(namespace); err != nil {
			return nil, err
		}
	}
	created, err := c.Resource(resource, o).Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	status, found := o.Object["status"]
	if !found {
		return created, nil
	}
	created.Object["status"] = status
	updated, err := c.UpdateStatus(resource, created)
	if err != nil {
		// A half-created object would disturb later tests.
		return nil, errors.Join(err, c.TryDelete(resource, o))
	}
	return updated, nil
}

// UpdateStatus writes the status; kinds without a status subresource had it in their creation.
//
// # Errors
//
// The API server's response.
func (c *Cluster) UpdateStatus(resource string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	updated, err := c.Resource(resource, o).UpdateStatus(context.Background(), o, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return o, nil
	}
	return updated, err
}

func (c *Cluster) ensureNamespace(name string) error {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	_, err := c.Resource("namespaces", o).Create(context.Background(), o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// allKindsSince is the minor version of the first release that serves all kinds of kube-state-metrics.
const allKindsSince = 36

// Version is the server's release without its patch level, such as 1.36.
func (c *Cluster) Version() string {
	c.t.Helper()
	version, err := c.Typed.Discovery().ServerVersion()
	if err != nil {
		c.t.Fatal(err)
	}
	return version.Major + "." + version.Minor
}

// IsOld returns whether the server is of a release without some kinds of kube-state-metrics.
func (c *Cluster) IsOld() bool {
	c.t.Helper()
	var minor int
	if _, err := fmt.Sscanf(c.Version(), "1.%d", &minor); err != nil {
		c.t.Fatal(err)
	}
	return minor < allKindsSince
}

// Lacks returns whether the server, an old release, does not serve the kind of the object.
func (c *Cluster) Lacks(resource string, o *unstructured.Unstructured) bool {
	c.t.Helper()
	if !c.IsOld() {
		return false
	}
	served, err := c.Typed.Discovery().ServerResourcesForGroupVersion(o.GetAPIVersion())
	if err != nil {
		c.t.Fatal(err)
	}
	return !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
}

// Create is TryCreate for an object that the server must accept.
func (c *Cluster) Create(resource string, o *unstructured.Unstructured) *unstructured.Unstructured {
	c.t.Helper()
	created, err := c.TryCreate(resource, o)
	if err != nil {
		c.t.Fatalf("create %s %s: %v", resource, o.GetName(), err)
	}
	return created
}

// Patch merges a patch into an object, or into its status.
func (c *Cluster) Patch(resource string, o *unstructured.Unstructured, patch map[string]any, subresource ...string) *unstructured.Unstructured {
	c.t.Helper()
	text, err := yaml.Marshal(patch)
	if err != nil {
		c.t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		c.t.Fatal(err)
	}
	patched, err := c.Resource(resource, o).Patch(context.Background(), o.GetName(), types.MergePatchType, text, metav1.PatchOptions{}, subresource...)
	if err != nil {
		c.t.Fatalf("patch %s %s %s: %v", resource, o.GetName(), strings.Join(subresource, "/"), err)
	}
	return patched
}

// Bind puts a pod on a node, as a scheduler would.
func (c *Cluster) Bind(namespace, pod, node string) {
	c.t.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := c.Typed.CoreV1().Pods(namespace).Bind(context.Background(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatalf("bind pod %s to %s: %v", pod, node, err)
	}
}

// Delete removes an object immediately, without finalizers and grace period.
func (c *Cluster) Delete(resource string, o *unstructured.Unstructured) {
	c.t.Helper()
	if err := c.TryDelete(resource, o); err != nil {
		c.t.Fatalf("delete %s %s: %v", resource, o.GetName(), err)
	}
}

// TryDelete is Delete with the server's response.
//
// # Errors
//
// The API server's response, except "not found".
func (c *Cluster) TryDelete(resource string, o *unstructured.Unstructured) error {
	ctx := context.Background()
	client := c.Resource(resource, o)
	live, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(live.GetFinalizers()) > 0 {
		if _, err := client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	background := metav1.DeletePropagationBackground
	err = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64), PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if o.GetKind() == "Namespace" {
		return c.finalizeNamespace(o.GetName())
	}
	return nil
}

// finalizeNamespace does the namespace controller's work, because no controller runs in this cluster.
func (c *Cluster) finalizeNamespace(name string) error {
	namespaces := c.Typed.CoreV1().Namespaces()
	live, err := namespaces.Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	live.Spec.Finalizers = nil
	_, err = namespaces.Finalize(context.Background(), live, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ServiceAccountToken creates a service account with cluster-wide permissions, and returns a token for it.
func (c *Cluster) ServiceAccountToken(name, rules string) string {
	c.t.Helper()
	c.Create("serviceaccounts", Object(c.t, fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: e2e-access}}", name)))
	c.Create("clusterroles", Object(c.t, fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: %s}", name, rules)))
	c.Create("clusterrolebindings", Object(c.t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: e2e-access}]
`, name)))
	return c.Token("e2e-access", name)
}

// Token is a fresh token of a service account.
func (c *Cluster) Token(namespace, serviceAccount string) string {
	c.t.Helper()
	token, err := c.Typed.CoreV1().ServiceAccounts(namespace).CreateToken(context.Background(), serviceAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return token.Status.Token
}
