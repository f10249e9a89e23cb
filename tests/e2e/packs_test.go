package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// packDashboards matches the dashboards of deploy/custom-resources from deploy/mixin.
const packDashboards = "../custom-resources/*/dashboard.json"

// packFile is a file of a pack of deploy/custom-resources.
func packFile(parts ...string) string {
	return harness.RepoFile(append([]string{"deploy", "custom-resources"}, parts...)...)
}

// packs are the names of the packs.
func packs(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, path := range glob(t, packDashboards) {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	return names
}

// TestPacksAreRendered renders the packs anew: the files in git are what their source gives.
func TestPacksAreRendered(t *testing.T) {
	harness.NotInSelfCheck(t)
	out := t.TempDir()
	command(t, harness.Tool(t, "jsonnet"), "--string", "--create-output-dirs", "--multi", out, packFile("rendered.jsonnet"))
	want := tree(t, out)
	if len(want) != 2*len(packs(t)) {
		t.Errorf("%d files of %d packs", len(want), len(packs(t)))
	}
	for name, text := range want {
		if readFile(t, packFile(name)) != text {
			t.Errorf("deploy/custom-resources%s is not what the source gives: run deploy/mixin/render.sh", name)
		}
	}
	sources := append(glob(t, "../custom-resources/*sonnet"), glob(t, "../custom-resources/*/*.libsonnet")...)
	command(t, harness.Tool(t, "jsonnetfmt"), append([]string{"--test"}, sources...)...)
}

// TestPacksOnDeployments adds the component of the packs to each deployment: one workload gets the configuration, and all
// workloads keep their arguments.
func TestPacksOnDeployments(t *testing.T) {
	harness.NotInSelfCheck(t)
	for name, exposes := range map[string]string{".": "kstatd", "standby": "kstatd", "autosharding": "kstatd", "daemonset": "kstatd-others", "daemonset-statsd": "kstatd-others"} {
		overlay := t.TempDir()
		deploy, err := filepath.Rel(overlay, harness.RepoFile("deploy"))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", filepath.Join(deploy, name), filepath.Join(deploy, "custom-resources"))
		if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		before := map[string][]string{}
		for _, w := range loadVariant(t, name).workloads(t) {
			before[w.workload] = w.container.Args
		}
		for _, w := range loadFolder(t, overlay).workloads(t) {
			want := before[w.workload]
			mounts := 0
			if w.workload == exposes {
				want, mounts = append(want, "--custom-resource-state-config-file=/etc/kstatd/custom-resources/config.yaml"), 1
			}
			if !slices.Equal(w.container.Args, want) {
				t.Errorf("deploy/%s: %s has the arguments %v, it should have %v", name, w.workload, w.container.Args, want)
			}
			if len(w.container.VolumeMounts) != mounts || len(w.pod.Volumes) != mounts {
				t.Errorf("deploy/%s: %s mounts %v of %v", name, w.workload, w.container.VolumeMounts, w.pod.Volumes)
			}
			delete(before, w.workload)
		}
		if len(before) > 0 {
			t.Errorf("deploy/%s: not there: %v", name, before)
		}
	}
}

// TestPackAlertsFireAndClear runs the tests of the packs' alerts, and checks that each alert has one.
func TestPackAlertsFireAndClear(t *testing.T) {
	harness.NotInSelfCheck(t)
	for _, pack := range packs(t) {
		rules, tests := packFile(pack, "alerts.yaml"), packFile(pack, "alerts-test.yaml")
		command(t, "promtool", "check", "rules", rules)
		command(t, "promtool", "test", "rules", tests)
		text := readFile(t, tests)
		for _, alert := range alerts(t, []byte(readFile(t, rules))) {
			if !strings.Contains(text, "\n- name: "+alert+"\n") || !strings.Contains(text, fmt.Sprintf("{alertname=%q,", alert)) {
				t.Errorf("%s: no test fires %s", pack, alert)
			}
		}
	}
}

// TestPacksOnAnAPIServer creates the definitions and samples of each pack on a real API server. With the access of the pack's role,
// kstatd exposes the same as kube-state-metrics, and everything that the dashboard of the pack shows has data.
func TestPacksOnAnAPIServer(t *testing.T) {
	for _, pack := range packs(t) {
		t.Run(pack, func(t *testing.T) {
			cluster := harness.StartCluster(t)
			role, _, _ := strings.Cut(readFile(t, packFile(pack, "role.yaml")), "---\n")
			rules, err := yaml.YAMLToJSON([]byte(role[strings.Index(role, "\nrules:\n")+len("\nrules:\n"):]))
			if err != nil {
				t.Fatal(err)
			}
			kubeconfig := cluster.KubeconfigWith(cluster.URL(), cluster.ServiceAccountToken("pack", string(rules)))
			pair := harness.StartRepeatingPair(t, "--kubeconfig="+kubeconfig, "--custom-resource-state-only",
				"--custom-resource-state-config-file="+packFile(pack, "config.yaml"))

			plurals := map[string]string{}
			for _, path := range glob(t, "../../tests/data/crds/"+pack+"/*.json") {
				definition := harness.Object(t, readFile(t, path))
				cluster.Create(definitions, definition)
				kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
				plurals[kind], _, _ = unstructured.NestedString(definition.Object, "spec", "names", "plural")
			}
			for document := range strings.SplitSeq(readFile(t, harness.RepoFile("tests", "data", "packs", pack+".yaml")), "\n---\n") {
				sample := harness.Object(t, document)
				createResource(t, cluster, plurals[sample.GetKind()], sample)
			}
			series := 0
			for line := range strings.Lines(readFile(t, harness.RepoFile("tests", "data", "packs", pack+".prom"))) {
				// Nothing is being deleted here.
				if !strings.HasPrefix(line, "#") && !strings.Contains(line, "_deleted{") {
					series++
				}
			}
			pair.ConvergeAt(series, "")

			if os.Getenv("E2E_SELF_CHECK") == "1" {
				return
			}
			p := startPrometheus(t, map[string]string{"kstatd": strings.TrimPrefix(pair.Ours.Base, "http://")})
			variable := regexp.MustCompile(`\$[a-z]+`)
			for _, d := range dashboards(t, "../custom-resources/"+pack+"/dashboard.json") {
				for _, panel := range d.Panels {
					for _, target := range panel.Targets {
						query := variable.ReplaceAllString(strings.ReplaceAll(target.Expr, "$cluster", ".*"), ".+")
						harness.Eventually(t, fmt.Sprintf("%q: %s has data", panel.Title, query), func() error {
							found, err := p.series(query)
							if err != nil || found > 0 {
								return err
							}
							return errors.Join(errors.New("no series"), p.targetErrors())
						})
					}
				}
			}
		})
	}
}

// TestDraftsOnAnAPIServer drafts a configuration from all definitions. kube-state-metrics takes it, and exposes the same for the
// samples of the packs.
func TestDraftsOnAnAPIServer(t *testing.T) {
	files := glob(t, "../../tests/data/crds/*/*.json")
	code, draft, stderr := harness.Run(t, harness.Kstatd(t), "", append([]string{"custom", "draft"}, files...)...)
	if code != 0 || len(files) < 34 {
		t.Fatalf("%d definitions: %d: %s", len(files), code, stderr)
	}
	cluster := harness.StartCluster(t)
	plurals := map[string]string{}
	for _, path := range files {
		definition := harness.Object(t, readFile(t, path))
		cluster.Create(definitions, definition)
		kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
		plurals[kind], _, _ = unstructured.NestedString(definition.Object, "spec", "names", "plural")
	}
	objects := 0
	for _, pack := range packs(t) {
		for document := range strings.SplitSeq(readFile(t, harness.RepoFile("tests", "data", "packs", pack+".yaml")), "\n---\n") {
			sample := harness.Object(t, document)
			createResource(t, cluster, plurals[sample.GetKind()], sample)
			objects++
		}
	}
	pair := harness.StartRepeatingPair(t, "--kubeconfig="+cluster.Kubeconfig, "--custom-resource-state-only",
		"--custom-resource-state-config-file="+writeCustom(t, draft))
	// Each object has an Info metric and a time of creation.
	pair.ConvergeAt(2*objects, "")
}
