package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kstatd/e2e/harness"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// kubectl stands in for kubectl, which needs kubelets to forward a port: it forwards the port of an existing object to the
// process that the test runs for it, and applies and deletes objects through the API.
const kubectl = `#!/usr/bin/env python3
import json, os, re, socket, ssl, sys, threading, urllib.request
words = [word for word in sys.argv[1:] if word not in ("-f", "-")]
place = words.index("-n")
namespace, words = words[place + 1], words[:place] + words[place + 2:]
def api(method, path, content=None):
    request = urllib.request.Request(os.environ["API"] + path, content, method=method, headers={"Content-Type": "application/yaml", "Authorization": "Bearer " + os.environ["TOKEN"]})
    return json.load(urllib.request.urlopen(request, context=ssl._create_unverified_context()))
core = f"/api/v1/namespaces/{namespace}/services"
def pump(a, b):
    while chunk := a.recv(65536): b.sendall(chunk)
    b.shutdown(socket.SHUT_WR)
def forward(listener, target):
    while True:
        a, b = listener.accept()[0], socket.create_connection(("127.0.0.1", target))
        for pair in ((a, b), (b, a)): threading.Thread(target=pump, args=pair, daemon=True).start()
match words:
    case ["port-forward", object, *ports]:
        kind, name = object.split("/")
        found = api("GET", {"svc": core, "deploy": f"/apis/apps/v1/namespaces/{namespace}/deployments"}[kind] + "/" + name)
        for port in ports:
            local, _, remote = port.partition(":")
            remote = int(remote or local)
            if kind == "svc" and remote not in [port["port"] for port in found["spec"]["ports"]]:
                sys.exit(f"the Service {name} has no port {remote}")
            listener = socket.create_server(("127.0.0.1", int(local)))
            threading.Thread(target=forward, args=(listener, json.loads(os.environ["PODS"])[f"{name}:{remote}"])).start()
        open("forwarding", "a").write("x")
    case ["apply"]:
        content = sys.stdin.read()
        assert "kind: Service" in content
        api("POST", core, content.encode())
    case ["delete", "service", name]:
        api("DELETE", f"{core}/{name}")
    case _:
        sys.exit(f"kubectl {words} is not known here")
`

// helmOnPage runs helm with the chart of this repository in place of the community charts, which it accepts the values of.
const helmOnPage = `#!/usr/bin/env bash
args=()
for arg in "$@"; do
  case $arg in
  prometheus-community/kube-state-metrics) args+=("$CHART" --set personality=kube-state-metrics) ;;
  prometheus-community/prometheus-statsd-exporter) args+=("$CHART" --set personality=statsd_exporter) ;;
  deploy/helm/kstatd) args+=("$CHART") ;;
  *) args+=("$arg") ;;
  esac
done
exec "$HELM" "${args[@]}"
`

// kstatdOnPage shortens what takes minutes or hours on the page.
const kstatdOnPage = `#!/usr/bin/env bash
args=("$@")
case "$*" in
shadow*) args=(shadow --for=2s --every=1s "${@:2}") ;;
*--watch\ 1h*) args=("${@/1h/3s}") ;;
esac
exec "$KSTATD" "${args[@]}"
`

// page runs the commands of a documentation page.
type page struct {
	t      *testing.T
	dir    string
	env    []string
	net    *harness.Network
	blocks []string
	used   map[string]bool
}

// readPage extracts the blocks of commands of a page, in its order.
func readPage(t *testing.T, parts ...string) []string {
	t.Helper()
	text, err := os.ReadFile(harness.RepoFile(parts...))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	block, indentation, before := "", "", ""
	for line := range strings.Lines(string(text) + "\nend\n") {
		blank := strings.TrimSpace(line) == ""
		inside := block != "" && (blank || strings.HasPrefix(line, indentation))
		starts := block == "" && before == "" && regexp.MustCompile(`^ {4,}\S`).MatchString(line)
		switch {
		case starts:
			indentation = line[:len(line)-len(strings.TrimLeft(line, " "))]
			block = strings.TrimPrefix(line, indentation)
		case inside:
			block += strings.TrimPrefix(line, indentation)
		case block != "":
			blocks = append(blocks, strings.TrimRight(block, "\n")+"\n")
			block = ""
		}
		before = strings.TrimSpace(line)
	}
	return blocks
}

// block returns the only block that contains a text.
func (p *page) block(text string) string {
	p.t.Helper()
	var found []string
	for _, block := range p.blocks {
		if strings.Contains(block, text) {
			found = append(found, block)
		}
	}
	if len(found) != 1 {
		p.t.Fatalf("%d blocks contain %q: %q", len(found), text, found)
	}
	p.used[found[0]] = true
	return found[0]
}

// run runs commands as they are on the page. After a command in the background it waits until ports are forwarded, as
// a reader does. It returns the exit code and the output.
func (p *page) run(commands string) (int, string) {
	p.t.Helper()
	// Programs in the background end with their block.
	script := "trap 'kill $(jobs -p) 2>/dev/null || :; wait || :' EXIT\nrm -rf forwarding compare.data\n"
	forwarded := 0
	for line := range strings.Lines(commands) {
		script += line
		if strings.HasPrefix(line, "kubectl port-forward") {
			forwarded++
			script += fmt.Sprintf("for i in {1..600}; do [ \"$(cat forwarding 2>/dev/null | wc -c)\" = %d ] && break; sleep 0.1; done\n", forwarded)
		}
	}
	cmd := exec.Command("bash", "-e", "-c", script)
	cmd.Dir, cmd.Env = p.dir, p.env
	file, err := os.CreateTemp(p.t.TempDir(), "output")
	if err != nil {
		p.t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	p.net.Inside(func() { err = cmd.Start() })
	if err != nil {
		p.t.Fatal(err)
	}
	_ = cmd.Wait()
	output, err := os.ReadFile(file.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(output)
}

// succeeds is run for commands that must succeed.
func (p *page) succeeds(commands string) string {
	p.t.Helper()
	code, output := p.run(commands)
	if code != 0 {
		p.t.Fatalf("exit code %d of\n%s\n%s", code, commands, output)
	}
	return output
}

// write puts a file into the folder of the commands.
func (p *page) write(name, text string, mode os.FileMode) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// deploymentClient is the client of the Deployments in the namespace of the page.
func deploymentClient(cluster *harness.Cluster) dynamic.ResourceInterface {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	o.SetNamespace("monitoring")
	return cluster.Resource("deployments", o)
}

// deployedArgs returns the arguments of a Deployment's container.
func deployedArgs(t *testing.T, cluster *harness.Cluster, name string) []string {
	t.Helper()
	found, err := deploymentClient(cluster).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return as[appsv1.Deployment](t, found).Spec.Template.Spec.Containers[0].Args
}

// original gives a Deployment the image of an original, which needs no command.
func original(t *testing.T, cluster *harness.Cluster, name, image string) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": %q}, {"op": "remove", "path": "/spec/template/spec/containers/0/command"}]`, image)
	if _, err := deploymentClient(cluster).Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestMigrationPage follows docs/migration.md: it runs the commands of the page, in its order, with a real API server,
// Prometheus, promtool and helm, and the original. The releases are those of the commands; the processes of their pods
// run here, with the arguments of the Deployments.
func TestMigrationPage(t *testing.T) {
	harness.NotInSelfCheck(t)
	network := harness.NewNetwork(t)
	cluster := harness.StartClusterIn(t, network)
	kinds := loadKinds(t)
	for _, k := range kinds {
		if slices.Contains([]string{"namespaces", "nodes", "pods", "services", "deployments"}, k.resource) {
			cluster.Create(k.resource, k.object())
		}
	}
	dir := t.TempDir()
	pods, err := json.Marshal(map[string]int{
		"ksm-kube-state-metrics:8080": 18080, "ksm-kube-state-metrics:8081": 18081, "ksm-next-kstatd:8080": 28080,
		"se-prometheus-statsd-exporter:9102": 19102, "kstatd-statsd:9102": 29102,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, dir: dir, net: network, used: map[string]bool{}, blocks: readPage(t, "docs", "migration.md"), env: []string{
		"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "HOME=" + dir, "TZ=UTC", "PODS=" + string(pods),
		"API=" + cluster.URL(), "TOKEN=" + harness.AdminToken, "HELM=" + harness.Tool(t, "helm"),
		"CHART=" + harness.RepoFile("deploy", "helm", "kstatd"), "KSTATD=" + harness.Kstatd(t).Path,
	}}
	for name, text := range map[string]string{"kubectl": kubectl, "helm": helmOnPage, "kstatd": kstatdOnPage} {
		p.write("bin/"+name, text, 0o755)
	}
	config, err := os.ReadFile(cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p.write(".kube/config", string(config), 0o600)

	// The originals.
	p.write("given.yaml", "collectors: [pods, nodes, namespaces, services, deployments]\nimage: {tag: v2.15.0}\n", 0o600)
	p.succeeds("helm install ksm prometheus-community/kube-state-metrics -n monitoring --create-namespace -f given.yaml")
	original(t, cluster, "ksm-kube-state-metrics", "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.20.0")
	p.write("given-se.yaml", "statsd: {mappingConfig: 'mappings: [{match: a.*, name: a, labels: {part: $1}}]'}\n", 0o600)
	p.succeeds("helm install se prometheus-community/prometheus-statsd-exporter -n monitoring -f given-se.yaml")
	original(t, cluster, "se-prometheus-statsd-exporter", "prom/statsd-exporter:v0.31.0")
	start := func(program harness.Program, base, health string, args ...string) *harness.Process {
		t.Helper()
		process := harness.StartWith(t, program, harness.StartOptions{Network: network}, args...)
		harness.Eventually(t, program.Name+" serves", func() error {
			if !process.Running() {
				t.Fatalf("it has ended: %s", process.Output())
			}
			response, err := network.Get(base + health)
			if err == nil && response.Status != 200 {
				err = fmt.Errorf("status %d", response.Status)
			}
			return err
		})
		return process
	}
	kubeExporter := func(program harness.Program, deployment string, port int, more ...string) *harness.Process {
		t.Helper()
		args := slices.DeleteFunc(deployedArgs(t, cluster, deployment), func(arg string) bool { return strings.HasPrefix(arg, "--port=") })
		args = append(args, fmt.Sprintf("--port=%d", port), fmt.Sprintf("--telemetry-port=%d", port+1), "--kubeconfig="+cluster.Kubeconfig)
		return start(program, fmt.Sprintf("http://127.0.0.1:%d", port), "/healthz", append(args, more...)...)
	}
	kubeExporter(harness.KubeStateMetrics(t), "ksm-kube-state-metrics", 18080)

	// Before.
	check := p.block("kstatd check --pre")
	manifests := p.succeeds("helm get manifest ksm -n monitoring")
	p.write("manifests.yaml", regexp.MustCompile(`(?m)^ +command: .*\n`).ReplaceAllString(strings.Replace(manifests, "image: kstatd:", "image: kube-state-metrics:", 1), ""), 0o600)
	if code, output := p.run(check); code != 0 || strings.Count(output, "√") < 10 {
		t.Errorf("exit code %d of\n%s\n%s", code, check, output)
	}
	p.write("options.yaml", "resources: {pods: {}}\n", 0o600)
	p.write("crs.yaml", "kind: CustomResourceStateMetrics\nspec: {resources: []}\n", 0o600)
	p.write("mapping.yml", "mappings: [{match: a.*, name: a}]\n", 0o600)
	files := strings.NewReplacer("--resources=…", "--resources=pods", "NAMESPACE/NAME", "monitoring/ksm").Replace(p.block("kstatd check-config"))
	if output := p.succeeds(files); !strings.Contains(output, "kind: ClusterRoleBinding") {
		t.Errorf("%s\n%s", files, output)
	}

	// Shadow: the flags on the page are those of its original.
	flags := strings.Join(deployedArgs(t, cluster, "ksm-kube-state-metrics"), " ")
	shadow := strings.Replace(p.block("kstatd shadow --original http://localhost:8080"), "--resources=pods,nodes", flags, 1)
	if output := p.succeeds(shadow); !strings.Contains(output, "equal") {
		t.Errorf("%s\n%s", shadow, output)
	}

	// Side by side.
	p.succeeds(p.block("helm install ksm-next"))
	ours := kubeExporter(harness.OurKubeStateMetrics(t), "ksm-next-kstatd", 28080)
	p.succeeds(p.block("kind: Service"))
	p.succeeds(p.block("helm install se-next"))
	relay := deployedArgs(t, cluster, "kstatd-statsd")
	if !slices.Contains(relay, "--statsd.relay.address=statsd-original:9125") {
		t.Errorf("kstatd relays nothing: %q", relay)
	}
	for program, ports := range map[*harness.Program]string{
		{Name: "the original", Path: harness.StatsdExporter(t).Path}: "1", {Name: "kstatd", Path: harness.Kstatd(t).Path, Prefix: []string{"statsd_exporter"}}: "2",
	} {
		args := []string{"--web.listen-address=127.0.0.1:" + ports + "9102", "--statsd.listen-udp=127.0.0.1:" + ports + "9125", "--statsd.listen-tcp=", "--statsd.mapping-config=mapping.yml"}
		if ports == "2" {
			args = append(args, "--statsd.relay.address=127.0.0.1:19125")
		}
		process := harness.StartWith(t, *program, harness.StartOptions{Network: network, Dir: dir}, args...)
		harness.Eventually(t, program.Name+" serves", func() error {
			if !process.Running() {
				t.Fatalf("it has ended: %s", process.Output())
			}
			_, err := network.Get("http://127.0.0.1:" + ports + "9102/-/healthy")
			return err
		})
	}
	stop := make(chan struct{})
	defer close(stop)
	sender, err := network.Dial(t.Context(), "udp", "127.0.0.1:29125")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = sender.Write([]byte("a.b:1|c"))
			}
		}
	}()

	// Compare: all blocks run in one shell, as a reader does.
	forwards := p.block("kubectl port-forward -n monitoring svc/ksm-next-kstatd 8090:8080")
	compare := forwards + p.block("kstatd diff http://localhost:8080 http://localhost:8090")
	if output := p.succeeds(compare); !strings.Contains(output, "no difference") {
		t.Errorf("%s\n%s", compare, output)
	}
	increases := p.block("kstatd diff --increases")
	if output := p.succeeds(increases); !strings.Contains(output, "no difference") {
		t.Errorf("%s\n%s", increases, output)
	}
	saved, queries := p.block("curl -s http://localhost:8080/metrics"), p.block("promtool query instant")
	// A reader waits for two scrapes: the queries run until both jobs are there for the second time.
	scraped := "for i in {1..600}; do [ \"$(promtool query instant http://localhost:9090 'count_over_time(scrape_samples_scraped[5m]) > 1' 2>/dev/null | wc -l)\" = 2 ] && break; sleep 0.1; done\n"
	verdict := forwards + p.block("cat > compare.yml") + scraped + queries
	samples := regexp.MustCompile(`(?m)^scrape_samples_scraped\{.*job="(.*)"\} => (\d+)`)
	families := regexp.MustCompile(`\{family="(\w+)"\} => (\d+)`)
	if output := p.succeeds(forwards + saved); output != "" {
		t.Errorf("%s\n%s", saved, output)
	}
	output := p.succeeds(verdict)
	found := samples.FindAllStringSubmatch(output, -1)
	if len(found) != 2 || len(found[0][2]) < 3 || len(families.FindAllString(output, -1)) != 0 {
		t.Errorf("%s\n%s", verdict, output)
	}

	// Planted into the exposition of kstatd: a family less, a family more, and another value.
	exposition, err := os.ReadFile(filepath.Join(dir, "kstatd.txt"))
	if err != nil {
		t.Fatal(err)
	}
	planted := regexp.MustCompile(`(?m)^(# .* )?kube_node_info.*\n`).ReplaceAllString(string(exposition), "")
	planted = regexp.MustCompile(`(?m)^(kube_service_created\{.*\}) .*`).ReplaceAllString(planted, "$1 7")
	planted += "# HELP kube_extra x\n# TYPE kube_extra gauge\nkube_extra 1\n"
	ours.Stop()
	var listener net.Listener
	network.Inside(func() { listener, err = net.Listen("tcp", "127.0.0.1:28080") })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, planted) }))
	if code, output := p.run(forwards + saved); code == 0 || !strings.Contains(output, "< # TYPE kube_node_info gauge") {
		t.Errorf("planted: exit code %d of\n%s\n%s", code, saved, output)
	}
	output = p.succeeds(verdict)
	if listed := families.FindAllString(output, -1); !slices.Equal(listed, []string{`{family="kube_node_info"} => 1`, `{family="kube_extra"} => 1`, `{family="kube_service_created"} => 7`}) {
		t.Errorf("planted: the queries find %q in\n%s", listed, output)
	}

	// Swap, clean up and roll back. The chart of kstatd replaces the community chart, in the order of the table.
	text, err := os.ReadFile(harness.RepoFile("docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	upgrades := regexp.MustCompile("`(helm upgrade [^`]*)`").FindAllStringSubmatch(string(text), -1)
	if len(upgrades) != 4 {
		t.Errorf("the table has the commands %q", upgrades)
	}
	for _, upgrade := range upgrades {
		p.succeeds(upgrade[1] + "\n")
	}
	p.succeeds(p.block("helm uninstall ksm-next"))
	p.succeeds(p.block("helm rollback ksm"))
	if output := p.succeeds("helm list -n monitoring --short"); output != "ksm\nse\n" {
		t.Errorf("releases in the end: %q", output)
	}
	for _, block := range p.blocks {
		// jsonnet, and the shadow of a statsd_exporter, whose addresses are those of a cluster.
		if !p.used[block] && !strings.HasPrefix(block, "local next = ") && !strings.Contains(block, "-- statsd_exporter") {
			t.Errorf("not run: %s", block)
		}
	}
}
