package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// definition is a CustomResourceDefinition. Of its versions the first is stored, and those prefixed with ! are not
// served.
func definition(t *testing.T, plural, kind string, versions ...string) *unstructured.Unstructured {
	t.Helper()
	var list strings.Builder
	for i, version := range versions {
		name := strings.TrimPrefix(version, "!")
		fmt.Fprintf(&list, "  - {name: %s, served: %t, storage: %t, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n",
			name, name == version, i == 0)
	}
	return harness.Object(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.example.io}
spec:
  group: example.io
  scope: Namespaced
  names: {plural: %[1]s, singular: %[3]s, kind: %[2]s, listKind: %[2]sList}
  versions:
%[4]s`, plural, kind, strings.ToLower(kind), list.String()))
}

const definitions = "customresourcedefinitions"

// createResource creates an object of a kind that is being established.
func createResource(t *testing.T, cluster *harness.Cluster, resource string, o *unstructured.Unstructured) {
	t.Helper()
	harness.Eventually(t, "the API server takes "+resource, func() error {
		_, err := cluster.TryCreate(resource, o.DeepCopy())
		return err
	})
}

func widget(t *testing.T, name string, replicas int) *unstructured.Unstructured {
	t.Helper()
	return harness.Object(t, fmt.Sprintf(`
apiVersion: example.io/v1
kind: Widget
metadata: {name: %s, namespace: default, labels: {app: shop, "dotted.key/x": "1"}}
spec:
  replicas: %d
  paused: false
  version: v1.2.3
  mode: Auto
  order: [{id: 1, value: true}, {id: "7", value: "yes"}]
  limits: {cpu: 250m, memory: 1Gi}
state:
  phase: Pending
  sub: {a: {ready: 2}, b: {ready: 4}}
  conditions:
  - {type: Ready, status: "True", lastTransitionTime: "2024-01-01T00:00:00Z"}
  - {type: Synced, status: "False"}
`, name, replicas))
}

const customConfig = `
kind: CustomResourceStateMetrics
spec:
  resources:
  - groupVersionKind: {group: example.io, version: "*", kind: Widget}
    labelsFromPath: {name: [metadata, name], namespace: [metadata, namespace]}
    commonLabels: {team: a}
    metrics:
    - {name: replicas, help: "Replicas \"wanted\".", each: {type: Gauge, gauge: {path: [spec, replicas]}}}
    - {name: limit, help: Limits., each: {type: Gauge, gauge: {path: [spec, limits], labelFromKey: resource}}}
    - {name: ready, help: Ready., each: {type: Gauge, gauge: {path: [state, sub], labelFromKey: part, valueFrom: [ready]}}}
    - {name: seventh, help: Lookup., each: {type: Gauge, gauge: {path: [spec, order, "[id=7]", value]}}}
    - {name: absent, help: Nothing., each: {type: Gauge, gauge: {path: [spec, nope], nilIsZero: true}}}
    - {name: wrong, help: Wrong., each: {type: Gauge, gauge: {path: [spec, version]}}}
    - {name: about_info, help: About., labelsFromPath: {"*": [metadata, labels]}, each: {type: Info, info: {labelsFromPath: {version: [spec, version]}}}}
    - {name: phase, help: Phase., each: {type: StateSet, stateSet: {labelName: phase, path: [state, phase], list: [Pending, Running]}}}
    - {name: condition, help: Conditions., each: {type: StateSet, stateSet: {labelName: status, path: [state, conditions], valueFrom: [status], list: ["True", "False"], labelsFromPath: {type: [type]}}}}
  - groupVersionKind: {group: example.io, version: v1, kind: Service}
    metricNamePrefix: acme
    metrics:
    - {name: size, help: Size., labelsFromPath: {name: [metadata, name]}, each: {type: gauge, gauge: {path: [spec, size]}}}
`

// writeCustom writes a configuration and returns its path.
func writeCustom(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "custom.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCustomResourcesEqualTheOriginal compares all types of metrics while kinds appear, change their versions, disappear
// and reappear.
func TestCustomResourcesEqualTheOriginal(t *testing.T) {
	cluster := harness.StartCluster(t)
	pair := harness.StartRepeatingPair(t, "--kubeconfig="+cluster.Kubeconfig, "--resources=namespaces,services",
		"--custom-resource-state-config-file="+writeCustom(t, customConfig))
	pair.Converge("")
	widgets, services := definition(t, "widgets", "Widget", "v1", "v2"), definition(t, "services", "Service", "v1")
	cluster.Create(definitions, widgets)
	cluster.Create(definitions, services)
	createResource(t, cluster, "widgets", widget(t, "w1", 3))
	createResource(t, cluster, "widgets", widget(t, "w2", 5))
	createResource(t, cluster, "services", harness.Object(t, `
apiVersion: example.io/v1
kind: Service
metadata: {name: s1, namespace: default}
spec: {size: 4Mi}
`))
	pair.ConvergeAt(50, "")
	changed := pair.Changed("")
	cluster.Patch("widgets", widget(t, "w1", 0), map[string]any{"spec": map[string]any{"replicas": 7, "limits": map[string]any{"cpu": nil}}})
	cluster.Delete("widgets", widget(t, "w2", 0))
	pair.ConvergeWhen("", changed)
	changed = pair.Changed("")
	patch := definition(t, "widgets", "Widget", "v1", "!v2").Object["spec"]
	cluster.Patch(definitions, widgets, map[string]any{"spec": patch.(map[string]any)})
	pair.ConvergeWhen("", changed)
	changed = pair.Changed("")
	cluster.Delete(definitions, widgets)
	pair.ConvergeWhen("", changed)
	harness.Eventually(t, "the kind can be defined again", func() error {
		_, err := cluster.TryCreate(definitions, definition(t, "widgets", "Widget", "v1"))
		return err
	})
	createResource(t, cluster, "widgets", widget(t, "w3", 1))
	pair.ConvergeAt(20, "")
}

// exposes returns whether a family of this name exists.
func exposes(body harness.Exposition, family string) bool {
	return slices.Contains(body.Families, family)
}

// scrapeContinuously scrapes continuously until the returned function is called: the initial series must never be
// missing, and no series may be duplicated.
func scrapeContinuously(t *testing.T, exporter *harness.KubeExporter) (end func()) {
	t.Helper()
	steady := []string{"kube_namespace_created{", "kube_service_info{"}
	stop, ended := make(chan struct{}), make(chan struct{})
	scrapes := 0
	look := func() bool {
		body, err := harness.Scrape(exporter.Base+"/metrics", harness.Text)
		if err != nil {
			t.Error(err)
			return false
		}
		scrapes++
		seen := map[string]bool{}
		for _, sample := range body.Samples {
			series := sample[:strings.LastIndex(sample, " ")]
			if seen[series] {
				t.Errorf("%s is there twice", series)
				return false
			}
			seen[series] = true
		}
		for _, family := range steady {
			if !slices.ContainsFunc(body.Samples, func(sample string) bool { return strings.HasPrefix(sample, family) }) {
				t.Errorf("scrape %d has no %s", scrapes, family)
				return false
			}
		}
		return true
	}
	go func() {
		defer close(ended)
		for look() {
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
		t.Logf("%d scrapes", scrapes)
	}
}

// TestCustomResourcesAreIsolated scrapes while a kind is defined, removed and defined again: nothing else has a
// gap, and no series is duplicated.
func TestCustomResourcesAreIsolated(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	file := writeCustom(t, customConfig)
	ours := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig,
		"--resources=namespaces,services", "--custom-resource-state-config-file="+file)
	scrape := func(query string) (harness.Exposition, error) {
		return harness.Scrape(ours.Base+"/metrics"+query, harness.Text)
	}
	harness.Eventually(t, "built-in kinds are there", func() error {
		body, err := scrape("")
		if err == nil && !exposes(body, "kube_namespace_created") {
			err = fmt.Errorf("no namespaces")
		}
		return err
	})
	services := definition(t, "services", "Service", "v1")
	cluster.Create(definitions, services)
	createResource(t, cluster, "services", harness.Object(t, "{apiVersion: example.io/v1, kind: Service, metadata: {name: s1, namespace: default}, spec: {size: 1}}"))
	end := scrapeContinuously(t, ours)
	const rounds = 50
	var early int
	for round := range rounds {
		name := fmt.Sprintf("w%d", round)
		harness.Eventually(t, "the kind can be defined again", func() error {
			_, err := cluster.TryCreate(definitions, definition(t, "widgets", "Widget", "v1", "!v2"))
			return err
		})
		createResource(t, cluster, "widgets", widget(t, name, round))
		shows := func(version string) {
			t.Helper()
			harness.Eventually(t, name+" has its series of "+version, func() error {
				body, err := scrape("")
				if err != nil {
					return err
				}
				for _, series := range body.Samples {
					if strings.HasPrefix(series, "kube_customresource_replicas{") && strings.Contains(series, fmt.Sprintf("name=%q", name)) &&
						strings.Contains(series, fmt.Sprintf("customresource_version=%q", version)) {
						return nil
					}
				}
				return fmt.Errorf("no series of %s", name)
			})
		}
		shows("v1")
		if round%5 == 0 {
			spec := definition(t, "widgets", "Widget", "v1", "v2").Object["spec"]
			cluster.Patch(definitions, definition(t, "widgets", "Widget", "v1"), map[string]any{"spec": spec.(map[string]any)})
			shows("v2")
		}
		cluster.Delete(definitions, definition(t, "widgets", "Widget", "v1"))
		if round == rounds/5 {
			early = resident(t, ours.Pid())
		}
	}
	harness.Eventually(t, "the last one is gone", func() error {
		body, err := scrape("")
		if err == nil && exposes(body, "kube_customresource_replicas") {
			err = fmt.Errorf("still there")
		}
		return err
	})
	end()
	// The allocator returns free memory after a while.
	harness.Eventually(t, "memory does not grow", func() error {
		late := resident(t, ours.Pid())
		if late > early+early/4+1024 {
			return fmt.Errorf("%d KiB after %d rounds, %d after %d", early, rounds/5, late, rounds)
		}
		t.Logf("KiB after %d rounds %d, after %d %d", rounds/5, early, rounds, late)
		return nil
	})
	for query, families := range map[string][2]bool{
		"?resources=services":                              {true, true},
		"?resources=services.example.io":                   {false, true},
		"?resources=example.io/v1,%20Resource=services":    {false, true},
		"?resources=namespaces":                            {false, false},
		"?exclude_resources=services.v1.example.io":        {true, false},
		"?resources=services&exclude_resources=example.io": {true, true},
	} {
		body, err := scrape(query)
		if err != nil {
			t.Fatal(err)
		}
		got := [2]bool{exposes(body, "kube_service_info"), exposes(body, "acme_size")}
		if got != families {
			t.Errorf("%s: built-in and custom services are there: %v, expected %v", query, got, families)
		}
	}
	changed := strings.ReplaceAll(customConfig, "name: size", "name: extent")
	replaceFile(t, file, changed)
	harness.Eventually(t, "the changed file is followed", func() error {
		body, err := scrape("")
		if err == nil && (!exposes(body, "acme_extent") || exposes(body, "acme_size")) {
			err = fmt.Errorf("the old family")
		}
		return err
	})
	replaceFile(t, file, "spec: [")
	harness.Eventually(t, "a broken file is told of and changes nothing", func() error {
		own, err := harness.Get(ours.Telemetry + "/metrics")
		if err != nil {
			return err
		}
		gauge := fmt.Sprintf("kube_state_metrics_last_config_reload_successful{filename=%q,type=\"customresourceconfig\"} 0", file)
		if !strings.Contains(own.Body, gauge) {
			return fmt.Errorf("not told of")
		}
		body, err := scrape("")
		if err == nil && !exposes(body, "acme_extent") {
			t.Fatal("the metrics are gone")
		}
		return err
	})
}

const builtInConfig = `
spec:
  resources:
  - groupVersionKind: {group: "", version: v1, kind: Namespace}
    labelsFromPath: {namespace: [metadata, name]}
    metrics:
    - {name: finalizers, help: Finalizers., each: {type: Info, info: {path: [spec, finalizers], labelsFromPath: {finalizer: []}}}}
  - groupVersionKind: {group: apps, version: v1, kind: Deployment}
    labelsFromPath: {deployment: [metadata, name]}
    metrics:
    - {name: history_limit, help: History., each: {type: Gauge, gauge: {path: [spec, revisionHistoryLimit]}}}
`

// TestCustomFamiliesOfBuiltInKinds has an entry for a built-in kind: the original ignores it, kstatd exposes its
// families next to the built-in ones.
func TestCustomFamiliesOfBuiltInKinds(t *testing.T) {
	cluster := harness.StartCluster(t)
	args := []string{"--kubeconfig=" + cluster.Kubeconfig, "--resources=namespaces,deployments",
		"--custom-resource-state-config-file=" + writeCustom(t, builtInConfig)}
	pair := harness.StartRepeatingPair(t, args...)
	harness.NotInSelfCheck(t)
	ours := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), args...)
	deployment := harness.Object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: default}
spec:
  replicas: 0
  revisionHistoryLimit: 3
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}
`)
	cluster.Create("deployments", deployment)
	const limit = `kube_customresource_history_limit{customresource_group="apps",customresource_kind="Deployment",customresource_version="v1",deployment="d"} `
	has := func(query, line string, wanted bool) {
		t.Helper()
		harness.Eventually(t, line+query, func() error {
			body, err := harness.Scrape(ours.Base+"/metrics"+query, harness.Text)
			if err == nil && slices.Contains(body.Samples, line) != wanted {
				err = fmt.Errorf("there: %v, expected %v", !wanted, wanted)
			}
			return err
		})
	}
	const finalizer = `kube_customresource_finalizers{customresource_group="",customresource_kind="Namespace",customresource_version="v1",finalizer="kubernetes",namespace="default"} 1`
	has("", limit+"3", true)
	has("", finalizer, true)
	has("?resources=v1/namespaces", finalizer, true)
	has("?resources=deployments", limit+"3", true)
	has("?resources=namespaces", limit+"3", false)
	cluster.Patch("deployments", deployment, map[string]any{"spec": map[string]any{"revisionHistoryLimit": 5}})
	has("", limit+"5", true)
	cluster.Delete("deployments", deployment)
	has("", limit+"5", false)
	pair.Converge("")
	harness.Eventually(t, "the built-in families are those of the original", func() error {
		theirs, err := harness.Scrape(pair.Theirs.Base+"/metrics", harness.Text)
		if err != nil {
			return err
		}
		body, err := harness.Scrape(ours.Base+"/metrics", harness.Text)
		body.Samples = slices.DeleteFunc(body.Samples, func(sample string) bool {
			return strings.HasPrefix(sample, "kube_customresource_")
		})
		if err == nil && !slices.Equal(body.Samples, theirs.Samples) {
			err = fmt.Errorf("%d and %d samples", len(body.Samples), len(theirs.Samples))
		}
		return err
	})
}

const countConfig = `
spec:
  resources:
  - groupVersionKind: {group: example.io, version: v1, kind: Widget}
    labelsFromPath: {name: [metadata, name]}
    metrics:
    - {name: widgets, each: {type: Count, count: {labelsFromPath: {phase: [state, phase]}}}}
    - {name: conditions, each: {type: Count, count: {path: [state, conditions], labelsFromPath: {type: [type], status: [status]}}}}
`

// TestCountsFollowObjects counts objects while they are created, changed and deleted, and with two shards, each of
// which counts its own.
func TestCountsFollowObjects(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	args := []string{"--kubeconfig=" + cluster.Kubeconfig, "--resources=namespaces", "--custom-resource-state-config-file=" + writeCustom(t, countConfig)}
	whole := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), args...)
	shards := []*harness.KubeExporter{
		harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), append([]string{"--shard=0", "--total-shards=2"}, args...)...),
		harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), append([]string{"--shard=1", "--total-shards=2"}, args...)...),
	}
	counts := func(exporters ...*harness.KubeExporter) (map[string]int, error) {
		sums := map[string]int{}
		for _, exporter := range exporters {
			body, err := harness.Scrape(exporter.Base+"/metrics", harness.Text)
			if err != nil {
				return nil, err
			}
			for _, sample := range body.Samples {
				family, labels, _ := strings.Cut(sample, "{")
				family, custom := strings.CutPrefix(family, "kube_customresource_")
				labels, value, _ := strings.Cut(labels, "} ")
				if !custom {
					continue
				}
				number, err := strconv.Atoi(value)
				if err != nil {
					return nil, err
				}
				_, own, _ := strings.Cut(labels, "customresource_version=\"v1\"")
				sums[family+own] += number
			}
		}
		return sums, nil
	}
	shows := func(what string, want map[string]int) {
		t.Helper()
		for _, exporters := range [][]*harness.KubeExporter{{whole}, shards} {
			harness.Eventually(t, what, func() error {
				got, err := counts(exporters...)
				if err == nil && !maps.Equal(got, want) {
					err = fmt.Errorf("%v, expected %v", got, want)
				}
				return err
			})
		}
	}
	const pending, running = "widgets,phase=\"Pending\"", "widgets,phase=\"Running\""
	const ready, synced = "conditions,status=\"True\",type=\"Ready\"", "conditions,status=\"False\",type=\"Synced\""
	cluster.Create(definitions, definition(t, "widgets", "Widget", "v1"))
	for i := range 12 {
		createResource(t, cluster, "widgets", widget(t, fmt.Sprintf("w%d", i), i))
	}
	shows("all of them", map[string]int{pending: 12, ready: 12, synced: 12})
	for i := range 3 {
		cluster.Patch("widgets", widget(t, fmt.Sprintf("w%d", i), 0), map[string]any{"state": map[string]any{"phase": "Running", "conditions": nil}})
	}
	shows("changed", map[string]int{pending: 9, running: 3, ready: 9, synced: 9})
	cluster.Stop()
	cluster.Start()
	for i := range 2 {
		cluster.Delete("widgets", widget(t, fmt.Sprintf("w%d", i), 0))
	}
	shows("listed anew", map[string]int{pending: 9, running: 1, ready: 9, synced: 9})
	cluster.Delete(definitions, definition(t, "widgets", "Widget", "v1"))
	shows("gone", map[string]int{})
}
