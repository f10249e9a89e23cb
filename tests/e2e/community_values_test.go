package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"sigs.k8s.io/yaml"
)

// communityCase is a set of values for a community chart and the manifests that the chart renders from it.
type communityCase struct {
	Chart, Name string
	Values      map[string]any
	Manifests   []map[string]any
}

// deviation is an intended difference between a community chart and kstatd's.
type deviation struct {
	chart, name, path *regexp.Regexp
	reason            string
}

var (
	anyText    = regexp.MustCompile("")
	statsdOnly = regexp.MustCompile("^prometheus-statsd-exporter$")
	exactly    = func(text string) *regexp.Regexp { return regexp.MustCompile("^" + regexp.QuoteMeta(text) + "$") }
)

// personalities are those that take the values of a community chart.
var personalities = map[string]string{"kube-state-metrics": "kube-state-metrics", "prometheus-statsd-exporter": "statsd_exporter"}

var deviations = []deviation{
	{statsdOnly, anyText, regexp.MustCompile(`^Deployment\.spec\.template\.spec\.(securityContext|containers\[0\]\.securityContext)\b`),
		"without a securityContext in the values, the pod is as the level `restricted` asks for"},
	{statsdOnly, anyText, exactly("Deployment.spec.template.spec.automountServiceAccountToken"), "StatsD has nothing to ask the API server"},
	{statsdOnly, anyText, regexp.MustCompile(`^Pod\.spec`), "`helm test` runs kstatd's own client instead of busybox"},
	{statsdOnly, anyText, regexp.MustCompile(`^Pod\.metadata\.labels\.app\.kubernetes\.io/name$`), "no selector of the release selects the pod of `helm test`"},
	{exactly("kube-state-metrics"), exactly("image-global"), exactly("Deployment.spec.template.spec.containers[0].image"), "the registry precedes kstatd's image"},
	{exactly("kube-state-metrics"), exactly("rbac-proxy"), regexp.MustCompile(`^(ConfigMap\.data|Secret$|Deployment\.spec\.template\.spec\.(containers|volumes|containers\[0\]\.(args|ports|volumeMounts)))`),
		"kstatd authenticates, authorises and serves TLS itself (TestHelmRBACProxy)"},
}

// meaning normalises a manifest: Kubernetes' defaults are filled in, and names with the chart's version are removed.
func meaning(t *testing.T, manifest map[string]any, ownImage bool) map[string]any {
	t.Helper()
	text, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	at := func(m map[string]any, path ...string) map[string]any {
		for _, key := range path {
			next, _ := m[key].(map[string]any)
			if next == nil {
				return map[string]any{}
			}
			m = next
		}
		return m
	}
	kind, metadata := o["kind"].(string), at(o, "metadata")
	template := at(o, "spec", "template")
	for _, labels := range []map[string]any{at(metadata, "labels"), at(template, "metadata", "labels")} {
		delete(labels, "helm.sh/chart")
		delete(labels, "app.kubernetes.io/version")
	}
	if !strings.HasPrefix(kind, "Cluster") && metadata["namespace"] == nil {
		metadata["namespace"] = "ns"
	}
	switch kind {
	case "ClusterRole", "Role":
		var rules []string
		list, _ := o["rules"].([]any)
		for _, entry := range list {
			rule := entry.(map[string]any)
			for _, group := range rule["apiGroups"].([]any) {
				for _, resource := range rule["resources"].([]any) {
					for _, verb := range rule["verbs"].([]any) {
						rules = append(rules, fmt.Sprint(verb, " ", resource, ".", group, " ", rule["resourceNames"]))
					}
				}
			}
		}
		sort.Strings(rules)
		o["rules"] = strings.Join(rules, "\n")
	case "ConfigMap":
		data := at(o, "data")
		for key, value := range data {
			var parsed any
			if err := yaml.Unmarshal([]byte(value.(string)), &parsed); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			data[key] = parsed
		}
	case "Deployment", "StatefulSet":
		spec := at(o, "spec")
		if spec["revisionHistoryLimit"] == nil {
			spec["revisionHistoryLimit"] = 10.0
		}
		// The digest of the mapping's text, whose whitespace differs.
		delete(at(template, "metadata", "annotations"), "checksum/config")
		container := at(template, "spec")["containers"].([]any)[0].(map[string]any)
		delete(container, "command")
		if !ownImage {
			delete(container, "image")
		}
	}
	return o
}

// compareMeaning calls report with each path whose values differ.
func compareMeaning(path string, want, got any, report func(path string, want, got any)) {
	empty := func(value any) bool {
		switch v := value.(type) {
		case nil:
			return true
		case map[string]any:
			return len(v) == 0
		case []any:
			return len(v) == 0
		}
		return false
	}
	if empty(want) && empty(got) {
		return
	}
	wantMap, isMap := want.(map[string]any)
	gotMap, bothMaps := got.(map[string]any)
	if isMap && bothMaps {
		keys := map[string]bool{}
		for key := range wantMap {
			keys[key] = true
		}
		for key := range gotMap {
			keys[key] = true
		}
		for key := range keys {
			compareMeaning(path+"."+key, wantMap[key], gotMap[key], report)
		}
		return
	}
	wantList, isList := want.([]any)
	gotList, bothLists := got.([]any)
	if isList && bothLists && len(wantList) == len(gotList) {
		for i := range wantList {
			compareMeaning(fmt.Sprintf("%s[%d]", path, i), wantList[i], gotList[i], report)
		}
		return
	}
	// The recording parsed `y` as YAML 1.1 does.
	if fmt.Sprint(want) != fmt.Sprint(got) && !(want == true && got == "y") {
		report(path, want, got)
	}
}

// TestHelmAcceptsCommunityValues renders the recorded values of the community charts, with only the personality added,
// and compares the meaning of each object with that of the community chart.
func TestHelmAcceptsCommunityValues(t *testing.T) {
	harness.NotInSelfCheck(t)
	text, err := os.ReadFile(harness.RepoFile("tests", "conformance", "charts", "values.json"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct{ Cases []communityCase }
	if err := json.Unmarshal(text, &recorded); err != nil {
		t.Fatal(err)
	}
	used := make([]bool, len(deviations))
	equal := 0
	for _, c := range recorded.Cases {
		ok := t.Run(c.Chart+"/"+c.Name, func(t *testing.T) {
			c.Values["personality"] = personalities[c.Chart]
			values, err := yaml.Marshal(c.Values)
			if err != nil {
				t.Fatal(err)
			}
			rendered, err := helm(t, string(values), "template", "rel", "--namespace=ns")
			if err != nil {
				t.Fatal(err)
			}
			_, imageGiven := c.Values["image"]
			_, globalGiven := c.Values["global"]
			index := func(manifests []map[string]any) map[string]map[string]any {
				found := map[string]map[string]any{}
				for _, m := range manifests {
					found[fmt.Sprint(m["kind"], "/", m["metadata"].(map[string]any)["name"])] = meaning(t, m, imageGiven || globalGiven)
				}
				return found
			}
			var objects []map[string]any
			for _, o := range parseRoles(t, rendered) {
				objects = append(objects, o.Object)
			}
			want, got := index(c.Manifests), index(objects)
			report := func(path string, want, got any) {
				for i, d := range deviations {
					if d.chart.MatchString(c.Chart) && d.name.MatchString(c.Name) && d.path.MatchString(path) {
						used[i] = true
						return
					}
				}
				t.Errorf("%s\n  community chart: %v\n  kstatd:          %v", path, want, got)
			}
			for name, object := range want {
				if got[name] == nil {
					t.Errorf("%s is missing", name)
					continue
				}
				kind, _, _ := strings.Cut(name, "/")
				compareMeaning(kind, object, got[name], report)
			}
			for name := range got {
				if want[name] == nil {
					kind, _, _ := strings.Cut(name, "/")
					report(kind, "no such object", name)
				}
			}
		})
		if ok {
			equal++
		}
	}
	for i, d := range deviations {
		if !used[i] {
			t.Errorf("no case has the deviation: %s", d.reason)
		}
	}
	t.Logf("%d of %d sets of values mean the same", equal, len(recorded.Cases))
	if len(recorded.Cases) < 50 {
		t.Errorf("there are only %d cases", len(recorded.Cases))
	}
}

// lacks lists the parts of an object that another lacks. A list must have an element with the parts of each given element.
func lacks(path string, want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		got, isMap := got.(map[string]any)
		if !isMap {
			return []string{path + " is no object"}
		}
		var missing []string
		for key, value := range want {
			if got[key] == nil && value != nil {
				missing = append(missing, path+"."+key+" is absent")
			} else {
				missing = append(missing, lacks(path+"."+key, value, got[key])...)
			}
		}
		return missing
	case []any:
		list, _ := got.([]any)
		var missing []string
		for i, value := range want {
			missing = append(missing, fewest(fmt.Sprintf("%s[%d]", path, i), value, list)...)
		}
		return missing
	default:
		if fmt.Sprint(want) == fmt.Sprint(got) {
			return nil
		}
		return []string{fmt.Sprintf("%s is %v, it should be %v", path, got, want)}
	}
}

// fewest lists what the most similar of some objects lacks.
func fewest(path string, want any, candidates []any) []string {
	best := []string{path + " is absent"}
	for i, candidate := range candidates {
		if missing := lacks(path, want, candidate); i == 0 || len(missing) < len(best) {
			best = missing
		}
	}
	return best
}

// TestHelmRealisticValues renders sets of values with keys of the community charts that no recorded set has, and compares
// the parts of the objects that they affect.
func TestHelmRealisticValues(t *testing.T) {
	harness.NotInSelfCheck(t)
	text, err := os.ReadFile(filepath.Join("testdata", "realistic_values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		communityCase
		Objects []map[string]any
		Absent  []string
	}
	if err := yaml.Unmarshal(text, &cases); err != nil || len(cases) < 12 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		c.Values["personality"] = personalities[c.Chart]
		values, err := yaml.Marshal(c.Values)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := helm(t, string(values), "template", "rel", "--namespace=ns")
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		byKind := map[string][]any{}
		for _, o := range parseRoles(t, rendered) {
			byKind[o.GetKind()] = append(byKind[o.GetKind()], o.Object)
		}
		for _, want := range c.Objects {
			kind := want["kind"].(string)
			for _, missing := range fewest(kind, want, byKind[kind]) {
				t.Errorf("%s: %s", c.Name, missing)
			}
		}
		for _, kind := range c.Absent {
			if len(byKind[kind]) > 0 {
				t.Errorf("%s: there is a %s", c.Name, kind)
			}
		}
	}
}

// TestHelmUnknownValues checks that an unknown key is rejected with a suggestion, and that the notes list values of
// the community charts without an effect.
func TestHelmUnknownValues(t *testing.T) {
	harness.NotInSelfCheck(t)
	for values, message := range map[string]string{
		"personality: kube-state-metrics\nmetricAllowList: [a]":                                         "metricAllowList: unknown value of personality kube-state-metrics; did you mean metricAllowlist?",
		"personality: kube-state-metrics\nprometheus: {monitor: {metricRelabeling: []}}":                "prometheus.monitor.metricRelabeling: unknown value of personality kube-state-metrics; did you mean prometheus.monitor.metricRelabelings?",
		"personality: kube-state-metrics\nreplicaCount: 2":                                              "replicaCount: unknown value of personality kube-state-metrics; it belongs to statsd_exporter",
		"personality: kube-state-metrics\nlivenessProbe: {httpGet: {path: /x}}":                         "livenessProbe.httpGet.path: unknown value of personality kube-state-metrics",
		"personality: statsd_exporter\nstatsd: {udpport: 1}":                                            "did you mean statsd.udpPort?",
		"personality: statsd_exporter\ncollectors: [pods]":                                              "it belongs to run and kube-state-metrics",
		"selfMonitoring: {enabled: true}":                                                               "did you mean selfMonitor?",
		"tolerationz: []\nfoo: 1":                                                                       "did you mean tolerations?",
		"personality: kube-state-metrics\nxyzzy: 1":                                                     "xyzzy: unknown value of personality kube-state-metrics",
		"personality: kube-state-metrics\nimage: nginx":                                                 "image: a string, where the keys",
		"personality: kube-state-metrics\nkubeRBACProxy: {enabled: true, extraArgs: [--allow-paths=/]}": "--allow-paths=/ affects authorisation",
	} {
		if _, err := helm(t, values, "template", "r"); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: the message should say %q: %v", values, message, err)
		}
	}
	notes := func(values string) string { return renderNotes(t, values) }
	for values, wants := range map[string][]string{
		"personality: kube-state-metrics\npodSecurityPolicy: {enabled: true}\nkubeTargetVersionOverride: '1.30'\nimage: {tag: v2.15.0}\nkubeRBACProxy: {enabled: true, image: {tag: v1}, extraArgs: [--v=5]}": {
			"podSecurityPolicy.enabled", "kubeTargetVersionOverride", "image.tag", "kubeRBACProxy.image.tag", "kubeRBACProxy.extraArgs", "nonResourceURL",
		},
		"personality: statsd_exporter\nstatsd: {eventQueueSize: 5}":            {"statsd.eventQueueSize"},
		"personality: kube-state-metrics\nnetworkPolicy: {enabled: true}":      {"from every address", "all outgoing traffic is denied"},
		"networkPolicy: {enabled: true}":                                       {"from every address"},
		"personality: kube-state-metrics\ncollectorsExtra: [widgets]":          {"widgets"},
		"personality: kube-state-metrics\nprometheus: {rule: {enabled: true}}": {"selfMonitor.enabled"},
	} {
		text := notes(values)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the notes do not name %s:\n%s", values, want, text)
			}
		}
	}
	if text := notes("personality: kube-state-metrics\n"); strings.Contains(text, "no effect") {
		t.Errorf("nothing is set, and the notes say:\n%s", text)
	}
}

// renderNotes renders the notes of an installation; helm itself needs a cluster for that.
func renderNotes(t *testing.T, values string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(harness.RepoFile("deploy", "helm", "kstatd"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "templates", "NOTES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	wrapped := fmt.Sprintf("{{ define \"notes\" }}%s{{ end }}\nkind: Notes\nnotes: {{ include \"notes\" . | toJson }}\n", text)
	for name, text := range map[string]string{"templates/notes.yaml": wrapped, "given.yaml": values} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := command(t, harness.Tool(t, "helm"), "template", "r", dir, "--namespace=ns", "--kube-version="+helmVersion,
		"--show-only=templates/notes.yaml", "--values="+filepath.Join(dir, "given.yaml"))
	var object struct{ Notes string }
	if err := yaml.Unmarshal([]byte(out), &object); err != nil {
		t.Fatal(err)
	}
	return object.Notes
}

// TestHelmValuesDocument checks that values.yaml shows the defaults of `run`, and that the chart's README explains
// each additional key of the other personalities.
func TestHelmValuesDocument(t *testing.T) {
	harness.NotInSelfCheck(t)
	read := func(parts ...string) string {
		text, err := os.ReadFile(harness.RepoFile(append([]string{"deploy", "helm", "kstatd"}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, shown, found := strings.Cut(read("values.yaml"), "\npersonality: run\n")
	if !found {
		t.Fatal("values.yaml sets no personality")
	}
	var lines []string
	for line := range strings.Lines(shown) {
		if rest, comment := strings.CutPrefix(line, "# "); comment {
			lines = append(lines, rest)
		}
	}
	var uncommented, defaults map[string]any
	// The first line describes the file.
	if err := yaml.Unmarshal([]byte(strings.Join(lines[1:], "")), &uncommented); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read("defaults", "run.yaml")), &defaults); err != nil {
		t.Fatal(err)
	}
	compareMeaning("values.yaml", defaults, uncommented, func(path string, want, got any) {
		t.Errorf("%s: defaults/run.yaml has %v, values.yaml %v", path, want, got)
	})
	readme := read("README.md")
	for _, personality := range []string{"kube-state-metrics", "statsd_exporter"} {
		var values map[string]any
		if err := yaml.Unmarshal([]byte(read("defaults", personality+".yaml")), &values); err != nil {
			t.Fatal(err)
		}
		for key := range values {
			if defaults[key] == nil && defaults[key] != values[key] && !strings.Contains(readme, "`"+key) {
				t.Errorf("README.md does not explain %s of %s", key, personality)
			}
		}
	}
}

// TestHelmRBACProxy checks the equivalent of kubeRBACProxy: the same port, HTTPS and a permission for scrapes, but
// not for probes.
func TestHelmRBACProxy(t *testing.T) {
	harness.NotInSelfCheck(t)
	c := renderChart(t, "personality: kube-state-metrics\nkubeRBACProxy: {enabled: true}\nselfMonitor: {enabled: true}\n")
	for _, arg := range []string{"--port=8080", "--auth-filter", "--tls-config=/etc/kube-rbac-proxy-config/web-config.yaml"} {
		if !slices.Contains(c.container.Args, arg) {
			t.Errorf("%s is not among %v", arg, c.container.Args)
		}
	}
	if len(c.pod.Containers) != 1 {
		t.Errorf("there are %d containers", len(c.pod.Containers))
	}
	network, image := harness.NewNetwork(t), harness.NewImage(t)
	cluster := harness.StartClusterIn(t, network)
	var secret struct{ Data map[string][]byte }
	for _, o := range c.ofKind("Secret") {
		text, err := yaml.Marshal(o.Object)
		if err == nil {
			err = yaml.Unmarshal(text, &secret)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		image.Mount(filepath.Join("/etc/kube-rbac-proxy-tls", name), string(secret.Data[name]))
	}
	c.apply(t, cluster)
	c.mount(t, image)
	env := inCluster(t, image, cluster, "monitoring", c.pod.ServiceAccountName)
	process := c.start(t, image, network, c.container.Command[0], "r-0", "monitoring", env...)
	get := func(path, token string) int {
		t.Helper()
		status := 0
		harness.Eventually(t, path+" answers", func() error {
			if !process.Running() {
				t.Fatalf("it has ended:\n%s", process.Output())
			}
			code, err := network.GetTLS("https://127.0.0.1:8080"+path, token)
			status = code
			return err
		})
		return status
	}
	for _, probe := range []string{"/livez", "/healthz"} {
		if status := get(probe, ""); status != 200 {
			t.Errorf("%s: status %d", probe, status)
		}
	}
	if status := get("/metrics", ""); status != 401 {
		t.Errorf("without a token: status %d", status)
	}
	cluster.Create("serviceaccounts", harness.Object(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: scraper, namespace: monitoring}}"))
	token := cluster.Token("monitoring", "scraper")
	if status := get("/metrics", token); status != 403 {
		t.Errorf("without the right: status %d", status)
	}
	cluster.Create("clusterroles", harness.Object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: scraper}, rules: [{nonResourceURLs: [/metrics], verbs: [get]}]}"))
	cluster.Create("clusterrolebindings", harness.Object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: scraper}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scraper}, subjects: [{kind: ServiceAccount, name: scraper, namespace: monitoring}]}"))
	harness.Eventually(t, "the right is granted", func() error {
		status, err := network.GetTLS("https://127.0.0.1:8080/metrics", token)
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
}
