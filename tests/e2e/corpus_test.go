package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// clusterWide returns whether the objects of a kind have no namespace, according to the kind's page of the reference.
func clusterWide(resource string) bool {
	page, err := os.ReadFile(harness.RepoFile("docs", "metrics", resource+".md"))
	if err != nil {
		panic(err)
	}
	return strings.Contains(string(page), ", cluster-wide, ")
}

// placed is an object in the cluster.
type placed struct {
	resource string
	object   *unstructured.Unstructured
}

// fillCluster creates the objects of the conformance data on a real API server. Rejected fields are dropped, because
// they cannot exist; the number of accepted objects is checked, so that tests cannot become empty.
func fillCluster(t *testing.T, cluster *harness.Cluster) []placed {
	t.Helper()
	bases := map[string]map[string]any{}
	kinds := servedKinds(t, cluster)
	for _, k := range kinds {
		bases[k.resource] = k.Object
	}
	// Only one service can have it.
	unstructured.RemoveNestedField(bases["services"], "spec", "clusterIP")
	var all []placed
	tried := 0
	perResource := map[string]int{}
	for _, group := range []string{"unit", "fuzz"} {
		files, err := filepath.Glob(harness.RepoFile("tests", "conformance", "ksm", group, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var data struct {
				Resource string `json:"resource"`
				Cases    []struct {
					Object map[string]any `json:"object"`
				} `json:"cases"`
			}
			if err := json.Unmarshal(text, &data); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, c := range data.Cases {
				tried++
				object := isolated(data.Resource, tried, c.Object)
				if created := createRepaired(cluster, data.Resource, object, bases[data.Resource]); created != nil {
					perResource[data.Resource]++
					all = append(all, placed{data.Resource, created})
				}
			}
		}
	}
	t.Logf("the API server took %d of %d objects: %v", len(all), tried, perResource)
	if len(all) < 41*len(kinds) || len(perResource) < len(kinds) {
		t.Fatalf("%d objects of %d kinds are too few to prove anything", len(all), len(perResource))
	}
	return all
}

// createRepaired creates an object, replacing each field that the server rejects by that of a valid object of the
// kind. Nil means that no variant was accepted.
func createRepaired(cluster *harness.Cluster, resource string, object *unstructured.Unstructured, base map[string]any) *unstructured.Unstructured {
	status := object.Object["status"]
	delete(object.Object, "status")
	var created *unstructured.Unstructured
	repairing(object, base, func() (err error) {
		created, err = cluster.TryCreate(resource, object)
		return err
	})
	if created == nil || status == nil {
		return created
	}
	created.Object["status"] = status
	repairing(created, base, func() error {
		updated, err := cluster.UpdateStatus(resource, created)
		if err == nil {
			created = updated
		}
		return err
	})
	return created
}

// repairing retries until the attempt succeeds or nothing is left to repair: first the rejected fields are replaced,
// then their top-level fields.
func repairing(object *unstructured.Unstructured, base map[string]any, attempt func() error) {
	repaired := map[string]bool{}
	repair := func(steps []string) (progress bool) {
		path := strings.Join(steps, ".")
		if path == "" || path == "metadata" || path == "metadata.name" || repaired[path] {
			return false
		}
		repaired[path] = true
		if value, found, _ := unstructured.NestedFieldCopy(base, steps...); found {
			_ = unstructured.SetNestedField(object.Object, value, steps...)
		} else {
			unstructured.RemoveNestedField(object.Object, steps...)
		}
		return true
	}
	for {
		err := attempt()
		var answer apierrors.APIStatus
		if err == nil || !errors.As(err, &answer) || answer.Status().Details == nil {
			return
		}
		progress := false
		for depth := 2; depth > 0 && !progress; depth-- {
			for _, cause := range answer.Status().Details.Causes {
				// A path such as spec.template.spec.containers[0].name.
				steps := strings.FieldsFunc(cause.Field, func(r rune) bool { return r == '.' || r == '[' })
				if repair(steps[:min(len(steps), depth)]) {
					progress = true
				}
			}
		}
		if !progress && !repair([]string{"spec"}) {
			return
		}
	}
}

// isolated gives the object a unique name and namespace, and removes fields that only a server may set or that would
// change other objects of the test.
func isolated(resource string, n int, object map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: object}
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "generateName", "managedFields", "finalizers"} {
		delete(metadata, field)
	}
	metadata["name"] = fmt.Sprintf("c%d", n)
	delete(metadata, "namespace")
	if !clusterWide(resource) {
		metadata["namespace"] = fmt.Sprintf("corpus-%d", n%3)
		if resource == "limitranges" || resource == "resourcequotas" {
			metadata["namespace"] = "corpus-limits"
		}
	}
	if owners, ok := metadata["ownerReferences"].([]any); ok {
		for _, owner := range owners {
			if owner, ok := owner.(map[string]any); ok && owner["uid"] == nil {
				owner["uid"] = "11111111-2222-3333-4444-555555555555"
			}
		}
	}
	// An unreachable webhook would block the creation of later objects.
	if webhooks, ok := object["webhooks"].([]any); ok {
		for _, webhook := range webhooks {
			if webhook, ok := webhook.(map[string]any); ok {
				delete(webhook, "rules")
			}
		}
	}
	return u
}

// TestCorpus fills a cluster with the objects of the conformance data, and compares the whole exposition with the
// original's: after the watch events of the creations, after a fresh list for every set of flags, and while the
// objects are deleted.
func TestCorpus(t *testing.T) {
	cluster := harness.StartCluster(t)
	kubeconfig := "--kubeconfig=" + cluster.Kubeconfig
	var kinds []string
	for _, k := range loadKinds(t) {
		kinds = append(kinds, k.resource)
	}
	// An old release has fewer kinds, so fewer samples.
	served := len(servedKinds(t, cluster))
	atLeast := func(samples int) int { return samples * served / len(kinds) }
	all := append(everything(strings.Join(kinds, ",")), kubeconfig)
	watching, repeating := harness.StartPair(t, all...), harness.StartRepeatingPair(t, all...)
	objects := fillCluster(t, cluster)
	watching.ConvergeAt(atLeast(17_500), "")
	repeating.ConvergeAt(atLeast(17_500), "")

	options := filepath.Join(t.TempDir(), "options.yaml")
	if err := os.WriteFile(options, []byte(`
resources: {pods: {}, nodes: {}, ingresses: {}}
labels_allow_list: {pods: ["*"], nodes: [kubernetes.io/hostname, "node-role*"]}
annotations_allow_list: {ingresses: ["*"]}
metric_denylist: {".*_created$": {}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	// Each exposition has a minimum number of samples once the lists are complete, because two empty ones would be equal
	// too.
	for _, flags := range []struct {
		name    string
		atLeast int
		args    []string
	}{
		{"defaults", 13000, nil},
		{"labels", 13300, []string{"--metric-labels-allowlist=pods=[app,*name,foo],nodes=[*],namespaces=[kubernetes.io/metadata.name],deployments=[]", "--metric-annotations-allowlist=pods=[*],services=[a*]"}},
		{"allowlist", 4300, []string{"--metric-allowlist=kube_pod_.*,^kube_node_info$", "--metric-allowlist", "deployment"}},
		{"denylist", 11500, []string{`--metric-denylist=_created$,^kube_(?!pod).*_labels,kube_secret.*`}},
		{"opt in", 13100, []string{"--metric-opt-in-list=.*"}},
		{"some resources", 4200, []string{"--resources=pods, services,\nroles,endpoints", "--resources", "serviceaccounts"}},
		{"namespaces", 9400, []string{"--namespaces=corpus-0,corpus-1"}},
		{"namespaces denied", 9900, []string{"--namespaces-denylist=corpus-2,kube-system"}},
		{"namespaces both", 6200, []string{"--namespaces=corpus-0,corpus-1", "--namespaces-denylist=corpus-1"}},
		{"shard 0 of 3", 3000, []string{"--shard=0", "--total-shards=3"}},
		{"shard 1 of 3", 3000, []string{"--shard=1", "--total-shards=3"}},
		{"shard 2 of 3", 3000, []string{"--shard=0x2", "--total-shards=3"}},
		{"node", 40, []string{"--resources=pods", "--node=node1"}},
		{"unscheduled", 1300, []string{"--resources=pods", "--track-unscheduled-pods"}},
		{"server cache", 13000, []string{"--use-apiserver-cache=true"}},
		{"options file", 4800, []string{"--config=" + options}},
	} {
		t.Run(flags.name, func(t *testing.T) {
			pair := harness.StartPair(t, append(slices.Clone(flags.args), kubeconfig)...)
			pair.ConvergeAt(atLeast(flags.atLeast), "")
			for _, query := range []string{"?resources=pods", "?resources=pods,services&exclude_resources=pods", "?exclude_resources=pods&exclude_resources=secrets,nodes", "?resources=", "?resources=nothing", "?exclude_resources="} {
				pair.Converge(query)
			}
		})
	}

	changed := []func(harness.Exposition) error{watching.Changed(""), repeating.Changed("")}
	for i, o := range objects {
		if i%2 == 0 && o.resource != "namespaces" {
			if err := cluster.TryDelete(o.resource, o.object); err != nil {
				t.Fatalf("delete %s %s: %v", o.resource, o.object.GetName(), err)
			}
		}
	}
	watching.ConvergeWhen("", changed[0])
	repeating.ConvergeWhen("", changed[1])
}
