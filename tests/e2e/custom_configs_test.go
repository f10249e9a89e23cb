package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// openDefinition creates a definition whose objects may have any fields.
func openDefinition(t *testing.T, cluster *harness.Cluster, group, version, plural, kind string) {
	t.Helper()
	cluster.Create(definitions, harness.Object(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[3]s.%[1]s
  annotations: {api-approved.kubernetes.io: "unapproved, a test"}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: %[3]s, singular: %[4]s, kind: %[5]s, listKind: %[5]sList}
  versions:
  - {name: %[2]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, group, version, plural, strings.ToLower(kind), kind)))
}

// Examples of the kinds shown in the documentation of kube-state-metrics: values at several depths, a series for each
// member of a map, copied labels and annotations, states, a recommender's lists, conditions as states.
const exampleConfig = `
kind: CustomResourceStateMetrics
spec:
  resources:
  - groupVersionKind: {group: myteam.io, kind: "Foo", version: "v1"}
    labelsFromPath:
      name: [metadata, name]
    metrics:
    - name: "uptime"
      help: "Foo uptime"
      each: {type: Gauge, gauge: {path: [status, uptime]}}
    - name: "active_count"
      help: "Number of active of each type"
      labelsFromPath: {"*": [metadata, labels]}
      each:
        type: Gauge
        gauge:
          path: [status, active]
          labelFromKey: type
          labelsFromPath: {bar: [bar]}
          value: [count]
    - name: "active_of_type"
      help: "The same by value"
      commonLabels: {custom_metric: "yes"}
      labelsFromPath: {"*": [metadata, labels], "lorem_*": [metadata, annotations], "**": [metadata, annotations]}
      each: {type: Gauge, gauge: {path: [status, sub], labelFromKey: type, labelsFromPath: {active: [active]}, valueFrom: [ready]}}
    - name: "ref_info"
      help: "Reference to other objects"
      each: {type: Info, info: {path: [spec, refs], labelsFromPath: {ref_name: [name], ref_kind: [kind]}}}
    - name: "versions"
      help: "Versions"
      each: {type: Info, info: {labelsFromPath: {version: [spec, version], first: [spec, order, "0", value], last: [spec, order, "-1", value], one: [spec, order, "[id=1]", value]}}}
    - name: "status_phase"
      help: "Phase"
      labelsFromPath: {name: [metadata, name]}
      each: {type: StateSet, stateSet: {labelName: phase, path: [status, phase], list: [Pending, Bar, Baz]}}
    - name: "condition"
      help: "Conditions"
      each: {type: Gauge, gauge: {path: [status, conditions], labelsFromPath: {type: ["type"], reason: [reason]}, valueFrom: ["status"]}}
    - name: "since"
      help: "Time of the change"
      each: {type: Gauge, gauge: {path: [status, conditions, "[type=Ready]", lastTransitionTime]}}
  - groupVersionKind: {group: autoscaling.example.io, kind: "*", version: "*"}
    metricNamePrefix: kube_verticalpodautoscaler
    labelsFromPath:
      verticalpodautoscaler: [metadata, name]
      namespace: [metadata, namespace]
      target_api_version: [spec, targetRef, apiVersion]
      target_kind: [spec, targetRef, kind]
      target_name: [spec, targetRef, name]
    metrics:
    - name: "status_recommendation_containerrecommendations_target"
      help: "Target of the recommender"
      commonLabels: {unit: core, resource: cpu}
      each: {type: Gauge, gauge: {path: [status, recommendation, containerRecommendations], valueFrom: [target, cpu], labelsFromPath: {container: [containerName]}}}
    - name: "status_recommendation_containerrecommendations_target_memory"
      help: "Target of the recommender"
      commonLabels: {unit: byte, resource: memory}
      each: {type: Gauge, gauge: {path: [status, recommendation, containerRecommendations], valueFrom: [target, memory], labelsFromPath: {container: [containerName]}}}
    - name: "spec_updatepolicy_updatemode"
      help: "Update mode"
      each: {type: StateSet, stateSet: {labelName: update_mode, path: [spec, updatePolicy, updateMode], list: ["Auto", "Initial", "Off", "Recreate"]}}
`

func exampleObjects(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	openDefinition(t, cluster, "myteam.io", "v1", "foos", "Foo")
	openDefinition(t, cluster, "autoscaling.example.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
	createResource(t, cluster, "foos", harness.Object(t, `
apiVersion: myteam.io/v1
kind: Foo
metadata: {name: foo, namespace: default, labels: {foo: bar, qux/quxx: "1"}, annotations: {foo: bar, "bar.baz": quxx}}
spec:
  version: v1.2.3
  order: [{id: 1, value: true}, {id: 3, value: false}]
  replicas: 1
  refs: [{name: a, kind: A}, {name: b, kind: B}, {}]
status:
  phase: Pending
  active: {type-a: 1, type-b: 3}
  conditions:
  - {name: a, type: Ready, status: "True", lastTransitionTime: "2024-02-01T10:00:00Z"}
  - {name: b, type: Synced, status: "Unknown", reason: Waits}
  sub:
    type-a: {active: 1, ready: 2}
    type-b: {active: 3, ready: 4}
  uptime: 43.21
`))
	createResource(t, cluster, "foos", harness.Object(t, "{apiVersion: myteam.io/v1, kind: Foo, metadata: {name: empty, namespace: default}}"))
	createResource(t, cluster, "verticalpodautoscalers", harness.Object(t, `
apiVersion: autoscaling.example.io/v1
kind: VerticalPodAutoscaler
metadata: {name: v, namespace: default}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: d}, updatePolicy: {updateMode: "Off"}}
status:
  recommendation:
    containerRecommendations:
    - {containerName: c1, target: {cpu: 25m, memory: 262144k}}
    - {containerName: c2, target: {cpu: "1", memory: 1Gi}}
`))
}

// TestPublishedExamples compares configurations like those in the original's documentation.
func TestPublishedExamples(t *testing.T) {
	cluster := harness.StartCluster(t)
	exampleObjects(t, cluster)
	pair := harness.StartRepeatingPair(t, "--kubeconfig="+cluster.Kubeconfig, "--custom-resource-state-only=true",
		"--custom-resource-state-config-file="+writeCustom(t, exampleConfig))
	pair.ConvergeAt(22, "")
}

var words = regexp.MustCompile(`"[^"]*"|[A-Za-z0-9_]+|\[[^\[\]]*\]`)

// corrupted replaces, removes or repeats a word or mark of the text.
func corrupted(random *rand.Rand, text string) string {
	places := words.FindAllStringIndex(text, -1)
	place := places[random.IntN(len(places))]
	others := []string{"null", "true", "5", `""`, "[]", "{}", "[a]", "{a: b}", `"*"`, "gauge", "Info", "stateset", "path", "metadata", "status", `"[a=b]"`, `"[x]"`, "-1"}
	other := others[random.IntN(len(others))]
	switch random.IntN(5) {
	case 0:
		other = ""
	case 1:
		other = text[place[0]:place[1]] + text[place[0]:place[1]]
	case 2:
		from := places[random.IntN(len(places))]
		other = text[from[0]:from[1]]
	}
	return text[:place[0]] + other + text[place[1]:]
}

// TestCorruptedConfigurations corrupts the examples and compares the results: both sides reject the file, or both expose
// the same series.
func TestCorruptedConfigurations(t *testing.T) {
	cluster := harness.StartCluster(t)
	exampleObjects(t, cluster)
	random := rand.New(rand.NewPCG(11, 1))
	var refused, shown int
	for range 24 {
		text := corrupted(random, exampleConfig)
		args := []string{"--kubeconfig=" + cluster.Kubeconfig, "--custom-resource-state-only=true",
			"--custom-resource-state-config-file=" + writeCustom(t, text)}
		t.Run("", func(t *testing.T) {
			ours, theirs := startCorrupted(t, args)
			if ours == nil || theirs == nil {
				if (ours == nil) != (theirs == nil) {
					t.Errorf("refused by us: %v, by the original: %v:\n%s", ours == nil, theirs == nil, difference(text))
				}
				refused++
				return
			}
			shown++
			// The original resolves kinds every 3 seconds.
			harness.Eventually(t, "both show the same", func() error {
				left, err := harness.Scrape(theirs.Base+"/metrics", harness.Text)
				if err != nil {
					return err
				}
				right, err := harness.Scrape(ours.Base+"/metrics", harness.Text)
				if err != nil {
					return err
				}
				// A configuration that fails to compile once the kinds are known exposes nothing on either side.
				compiles := !strings.Contains(ours.Output(), "No custom resource metrics")
				if compiles && len(left.Samples) == 0 {
					return fmt.Errorf("the original has nothing yet, we have %d samples", len(right.Samples))
				}
				if err := harness.Difference(right.Samples, left.Samples); err != nil {
					return fmt.Errorf("%w\n%s", err, difference(text))
				}
				return nil
			})
		})
	}
	t.Logf("%d refused, %d shown", refused, shown)
}

// difference is the corrupted line of the examples.
func difference(text string) string {
	lines := strings.Split(exampleConfig, "\n")
	for i, line := range strings.Split(text, "\n") {
		if i >= len(lines) || lines[i] != line {
			return line
		}
	}
	return ""
}

// startCorrupted starts both sides; nil is a side that rejects the file.
func startCorrupted(t *testing.T, args []string) (ours, theirs *harness.KubeExporter) {
	t.Helper()
	start := func(p harness.Program, args []string) *harness.KubeExporter {
		port, telemetry := harness.FreePort(t), harness.FreePort(t)
		all := slices.Concat([]string{"--host=127.0.0.1", fmt.Sprintf("--port=%d", port), "--telemetry-host=127.0.0.1", fmt.Sprintf("--telemetry-port=%d", telemetry)}, args)
		e := &harness.KubeExporter{
			Process: harness.Start(t, p, all...),
			Base:    fmt.Sprintf("http://127.0.0.1:%d", port), Telemetry: fmt.Sprintf("http://127.0.0.1:%d", telemetry),
		}
		serves := func() error {
			if !e.Running() {
				return nil
			}
			resp, err := harness.Get(e.Base + "/healthz")
			if err == nil && resp.Status != 200 {
				err = fmt.Errorf("status %d", resp.Status)
			}
			return err
		}
		if err := harness.Poll(harness.Patience, serves); err != nil {
			t.Fatal(err)
		}
		if !e.Running() {
			if !strings.Contains(e.Output(), "Custom Resource State") && !strings.Contains(e.Output(), "Custom resource") {
				t.Errorf("it ended without naming the reason:\n%s", e.Output())
			}
			return nil
		}
		return e
	}
	theirs = start(harness.KubeStateMetrics(t), args)
	if theirs == nil {
		ours = start(harness.OurKubeStateMetrics(t), args)
		return ours, nil
	}
	return start(harness.OurKubeStateMetrics(t), append([]string{"--compat.duplicate-series"}, args...)), theirs
}
