package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kstatd/e2e/harness"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// kind is one file of testdata/kinds: an object with a status, and the changes made to it. NAME.golden has the series
// after each step.
type kind struct {
	resource      string
	Object        map[string]any `json:"object"`
	Patch         map[string]any `json:"patch"`
	StatusPatch   map[string]any `json:"statusPatch"`
	ApprovalPatch map[string]any `json:"approvalPatch"`
}

func loadKinds(t *testing.T) []kind {
	t.Helper()
	files, err := filepath.Glob("testdata/kinds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []kind
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		k := kind{resource: strings.TrimSuffix(filepath.Base(file), ".yaml")}
		if err := yaml.UnmarshalStrict(text, &k); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		kinds = append(kinds, k)
	}
	for _, resource := range recordedResources(t) {
		if !slices.ContainsFunc(kinds, func(k kind) bool { return k.resource == resource }) {
			t.Fatalf("testdata/kinds has no %s.yaml, and kube-state-metrics has the kind", resource)
		}
	}
	return kinds
}

// servedKinds are the kinds that the server has: all, unless it is an old release.
func servedKinds(t *testing.T, cluster *harness.Cluster) []kind {
	t.Helper()
	return slices.DeleteFunc(loadKinds(t), func(k kind) bool { return cluster.Lacks(k.resource, k.object()) })
}

// recordedResources are the kinds of kube-state-metrics, according to its recorded families.
func recordedResources(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(harness.RepoFile("tests", "conformance", "ksm", "families.json"))
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		Families []struct {
			Resource string `json:"resource"`
		} `json:"families"`
	}
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatal(err)
	}
	var resources []string
	for _, family := range data.Families {
		if !slices.Contains(resources, family.Resource) {
			resources = append(resources, family.Resource)
		}
	}
	return resources
}

// object is the kind's object, not created yet.
func (k kind) object() *unstructured.Unstructured {
	return (&unstructured.Unstructured{Object: k.Object}).DeepCopy()
}

func resourceNames(kinds []kind) string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.resource)
	}
	return strings.Join(names, ",")
}

// mainKinds are processed first.
var mainKinds = []string{"deployments", "namespaces", "nodes", "pods", "replicasets", "services"}

// everything exposes all series of every kind.
func everything(resources string) []string {
	return []string{
		"--resources=" + resources,
		"--metric-labels-allowlist=*=[*]",
		"--metric-annotations-allowlist=*=[*]",
		"--metric-opt-in-list=.*",
	}
}

// TestKinds creates, patches and deletes an object of each kind with a real client on a real API server. After each
// step the object's series equal the golden file, and the whole exposition equals that of kube-state-metrics, in text
// and in OpenMetrics.
//
// E2E_UPDATE=1 writes the golden files from the output of kube-state-metrics. Where an old release drops fields of an object,
// testdata/kinds/VERSION has the golden file; an empty one is filled.
func TestKinds(t *testing.T) {
	kinds := loadKinds(t)
	if only := os.Getenv("E2E_KINDS"); only != "" {
		kinds = slices.DeleteFunc(kinds, func(k kind) bool { return !slices.Contains(strings.Split(only, ","), k.resource) })
	}
	cluster := harness.StartCluster(t)
	pair := harness.StartPair(t, append(everything(resourceNames(kinds)), "--kubeconfig="+cluster.Kubeconfig)...)
	pair.Converge("")
	for _, k := range kinds {
		if cluster.Lacks(k.resource, k.object()) {
			continue
		}
		t.Run(k.resource, func(t *testing.T) { k.live(t, cluster.With(t), pair.With(t)) })
	}
	pair.Converge("")
}

func (k kind) live(t *testing.T, cluster *harness.Cluster, pair *harness.Pair) {
	golden := loadGolden(t, cluster, k.resource)
	object := cluster.Create(k.resource, k.object())
	golden.check(t, "created", pair, object)

	object = cluster.Patch(k.resource, object, k.Patch)
	if k.StatusPatch != nil {
		object = cluster.Patch(k.resource, object, k.StatusPatch, "status")
	}
	if k.ApprovalPatch != nil {
		object = cluster.Patch(k.resource, object, k.ApprovalPatch, "approval")
	}
	golden.check(t, "patched", pair, object)

	cluster.Delete(k.resource, object)
	golden.check(t, "deleted", pair, object)
	golden.save(t)
}

// golden are the series of one object after each step. Values that the server generates are replaced: $uid, $version,
// $created.
type golden struct {
	resource string
	path     string
	steps    map[string][]string
	update   bool
}

var steps = []string{"created", "patched", "deleted"}

func loadGolden(t *testing.T, cluster *harness.Cluster, resource string) *golden {
	t.Helper()
	g := &golden{resource: resource, steps: map[string][]string{}, update: os.Getenv("E2E_UPDATE") == "1"}
	g.path = filepath.Join("testdata", "kinds", cluster.Version(), resource+".golden")
	if _, err := os.Stat(g.path); err != nil {
		g.path = filepath.Join("testdata", "kinds", resource+".golden")
	}
	if g.update {
		return g
	}
	text, err := os.ReadFile(g.path)
	if err != nil {
		t.Fatal(err)
	}
	step := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if name, found := strings.CutPrefix(line, "== "); found {
			step = name
		} else {
			g.steps[step] = append(g.steps[step], line)
		}
	}
	if len(g.steps["created"]) == 0 || len(g.steps["patched"]) == 0 || slices.Equal(g.steps["created"], g.steps["patched"]) {
		t.Fatalf("%s shows no series or no change: it would prove nothing", g.path)
	}
	return g
}

func (g *golden) save(t *testing.T) {
	t.Helper()
	if !g.update {
		return
	}
	var text strings.Builder
	for _, step := range steps {
		fmt.Fprintf(&text, "== %s\n", step)
		for _, line := range g.steps[step] {
			fmt.Fprintln(&text, line)
		}
	}
	if err := os.WriteFile(g.path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// check waits until both sides expose the step, then compares everything.
func (g *golden) check(t *testing.T, step string, pair *harness.Pair, object *unstructured.Unstructured) {
	t.Helper()
	show := func(side *harness.KubeExporter) ([]string, error) {
		e, err := harness.Scrape(side.Base+"/metrics?resources="+g.resource, harness.Text)
		if err != nil {
			return nil, err
		}
		return objectSeries(e, object), nil
	}
	if g.update {
		g.record(t, step, func() ([]string, error) { return show(pair.Theirs) })
	}
	for _, side := range []*harness.KubeExporter{pair.Theirs, pair.Ours} {
		harness.Eventually(t, "the series of the object when "+step, func() error {
			lines, err := show(side)
			if err != nil {
				return err
			}
			return harness.Difference(lines, g.steps[step])
		})
	}
	pair.Converge("")
}

// record stores the output of kube-state-metrics once it has been stable for two seconds: without a golden file
// nothing else shows that a step has arrived.
func (g *golden) record(t *testing.T, step string, show func() ([]string, error)) {
	t.Helper()
	var last []string
	since := time.Now()
	harness.Eventually(t, "kube-state-metrics settles", func() error {
		lines, err := show()
		if err != nil {
			return err
		}
		if !slices.Equal(lines, last) {
			last, since = lines, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("still changing")
		}
		return nil
	})
	g.steps[step] = last
}

// objectSeries are the series that name the object, with values that differ between runs replaced.
func objectSeries(e harness.Exposition, object *unstructured.Unstructured) []string {
	created := strconv.FormatFloat(float64(object.GetCreationTimestamp().Unix()), 'g', -1, 64)
	quoted := `"` + object.GetName() + `"`
	var lines []string
	for _, line := range e.Samples {
		if !strings.Contains(line, quoted) {
			continue
		}
		line = strings.ReplaceAll(line, string(object.GetUID()), "$uid")
		space := strings.LastIndexByte(line, ' ')
		family, _, _ := strings.Cut(line, "{")
		switch value := line[space+1:]; {
		case strings.HasSuffix(family, "_metadata_resource_version") && sameNumber(value, object.GetResourceVersion()):
			line = line[:space] + " $version"
		case value == created && strings.Contains(family, "creat"):
			line = line[:space] + " $created"
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}
