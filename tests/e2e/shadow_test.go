package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"sigs.k8s.io/yaml"
)

// shadowed is the part of `kstatd shadow -o json` that the tests use.
type shadowed struct {
	Verdict     string
	Reason      string
	Differences compared
	Costs       []struct {
		Name             string
		Original, Kstatd *float64
	}
}

// shadow runs `kstatd shadow` next to the original with these flags and returns its exit code and report.
func shadow(t *testing.T, original *harness.KubeExporter, flags ...string) (int, shadowed) {
	t.Helper()
	p := harness.Kstatd(t)
	p.Prefix = []string{"shadow", "-o", "json", "--for=4s", "--every=1s", "--original=" + original.Base,
		"--original-telemetry=" + original.Telemetry, "--"}
	code, stdout, stderr := harness.Run(t, p, "", flags...)
	var report shadowed
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v in %.300s, %s", err, stdout, stderr)
	}
	return code, report
}

// unexplained lists the families with differences that are not documented.
func (s shadowed) unexplained() []string {
	found := map[string]bool{}
	for _, family := range s.Differences.Families {
		for _, d := range family.Differences {
			if d.Explained == nil {
				found[family.Family] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestShadow runs `kstatd shadow` next to the original on a real API server with objects of every kind: it reports no
// difference with the same flags, exactly three if three are planted by other flags, and the costs of both.
func TestShadow(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	kinds := servedKinds(t, cluster)
	for _, k := range kinds {
		cluster.Create(k.resource, k.object())
	}
	flags := append(everything(resourceNames(kinds)), "--kubeconfig="+cluster.Kubeconfig)
	pair := harness.StartPair(t, flags...)
	pair.Converge("")
	pair.Ours.Stop()
	code, report := shadow(t, pair.Theirs, flags...)
	if code != 0 || report.Verdict != "equal" || report.Differences.SeriesOfBoth < 500 {
		t.Fatalf("exit code %d, %s %s, %d series, %q", code, report.Verdict, report.Reason, report.Differences.SeriesOfBoth, report.unexplained())
	}
	ranges := map[string][2]float64{
		"memory, last": {2e6, 2e9}, "memory, highest": {2e6, 2e9}, "CPU": {0, 8},
		"scrape time, plain": {0, 60}, "scrape time, gzip": {0, 60},
		"scrape size, plain": {1e4, 1e8}, "scrape size, gzip": {1e3, 1e8},
		"API requests since the start": {10, 1e5}, "API requests while comparing": {0, 1e5},
	}
	for _, cost := range report.Costs {
		within, known := ranges[cost.Name]
		delete(ranges, cost.Name)
		for side, value := range map[string]*float64{"original": cost.Original, "kstatd": cost.Kstatd} {
			if known && (value == nil || *value < within[0] || *value > within[1]) {
				t.Errorf("%s of %s: %v", cost.Name, side, value)
			}
		}
		if cost.Name == "API bytes since the start" && (cost.Original != nil || cost.Kstatd == nil || *cost.Kstatd < 1e4) {
			t.Errorf("bytes of the original, which does not count them: %v, of kstatd: %v", cost.Original, cost.Kstatd)
		}
	}
	if len(ranges) > 0 {
		t.Errorf("missing costs: %v", ranges)
	}

	planted := []string{"kube_namespace_created", "kube_node_info", "kube_pod_info"}
	denied := append(slices.Clone(flags), "--metric-denylist=^("+strings.Join(planted, "|")+")$")
	code, report = shadow(t, pair.Theirs, denied...)
	if found := report.unexplained(); code != 1 || report.Verdict != "different" || !slices.Equal(found, planted) {
		t.Errorf("exit code %d, %s, found %q", code, report.Verdict, found)
	}
	code, report = shadow(t, pair.Theirs, append(slices.Clone(flags), "--total-shards=2", "--shard=0")...)
	if found := report.unexplained(); code != 1 || len(found) < 10 {
		t.Errorf("half of the objects: exit code %d, found %q", code, found)
	}
}

// TestShadowCustomResources runs `kstatd shadow` with the custom resource configuration of the original: it reports no
// difference, and exactly three after three changes of the configuration, a path, a name and a label.
func TestShadowCustomResources(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	cluster.Create(definitions, definition(t, "widgets", "Widget", "v1"))
	createResource(t, cluster, "widgets", widget(t, "w1", 3))
	createResource(t, cluster, "widgets", widget(t, "w2", 5))
	flags := func(config string) []string {
		return []string{"--kubeconfig=" + cluster.Kubeconfig, "--resources=namespaces", "--custom-resource-state-config-file=" + writeCustom(t, config)}
	}
	pair := harness.StartPair(t, flags(customConfig)...)
	pair.ConvergeAt(20, "")
	pair.Ours.Stop()
	code, report := shadow(t, pair.Theirs, flags(customConfig)...)
	if code != 0 || report.Verdict != "equal" || report.Differences.SeriesOfBoth < 20 {
		t.Errorf("exit code %d, %s %s, %d series, %q", code, report.Verdict, report.Reason, report.Differences.SeriesOfBoth, report.unexplained())
	}
	changed := customConfig
	for from, to := range map[string]string{
		"gauge: {path: [spec, replicas]}":    "gauge: {path: [state, sub, a, ready]}",
		"name: seventh,":                     "name: eighth,",
		"info: {labelsFromPath: {version: [": "info: {labelsFromPath: {release: [",
	} {
		if strings.Count(changed, from) != 1 {
			t.Fatalf("%s occurs %d times", from, strings.Count(changed, from))
		}
		changed = strings.Replace(changed, from, to, 1)
	}
	code, report = shadow(t, pair.Theirs, flags(changed)...)
	// A changed name is a family less and a family more.
	want := []string{"kube_customresource_about_info", "kube_customresource_eighth", "kube_customresource_replicas", "kube_customresource_seventh"}
	if found := report.unexplained(); code != 1 || report.Verdict != "different" || !slices.Equal(found, want) {
		t.Errorf("exit code %d, %s, found %q", code, report.Verdict, found)
	}
}

// TestDeployShadow builds the Job of deploy/shadow: a real API server accepts it, the roles are those of the flags of
// the original, and kstatd accepts its arguments.
func TestDeployShadow(t *testing.T) {
	harness.NotInSelfCheck(t)
	c := loadVariant(t, "shadow")
	cluster := harness.StartCluster(t)
	var manifests []map[string]any
	for _, o := range c.objects {
		manifests = append(manifests, o.Object)
	}
	c.apply(t, cluster)
	args := c.container.Args
	split := slices.Index(args, "--")
	if split < 1 || args[0] != "shadow" {
		t.Fatalf("arguments %q", args)
	}
	p := harness.Kstatd(t)
	var roles []map[string]any
	code, stdout, stderr := harness.Run(t, p, "", "rbac")
	if code != 0 {
		t.Fatal(stderr)
	}
	for document := range strings.SplitSeq(stdout, "---\n") {
		var role map[string]any
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		roles = append(roles, role)
	}
	granted, needed := rights(t, manifests), rights(t, roles)
	for _, r := range needed {
		if !slices.Contains(granted, r) {
			t.Errorf("%v is not granted", r)
		}
	}
	for _, r := range granted {
		if !slices.Contains(needed, r) {
			t.Errorf("nobody needs %v", r)
		}
	}
	// The addresses do not resolve here, so it cannot compare.
	here := slices.DeleteFunc(slices.Clone(args[:split]), func(arg string) bool { return strings.HasPrefix(arg, "--for=") })
	here = append(here, "--for=1s", "--every=100ms", "--", "--kubeconfig="+cluster.Kubeconfig)
	code, stdout, stderr = harness.Run(t, p, "", append(here, args[split+1:]...)...)
	if code != 2 || !strings.Contains(stdout, "could not compare: http://kube-state-metrics.kube-system.svc:8080/metrics") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
