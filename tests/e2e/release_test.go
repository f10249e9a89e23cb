package e2e

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// descriptor refers to a blob of an OCI layout.
type descriptor struct {
	MediaType   string
	Digest      string
	Size        int
	Platform    struct{ Architecture, OS string }
	Annotations map[string]string
}

// blob reads a blob and verifies its digest and size.
func blob(t *testing.T, layout string, d descriptor) []byte {
	t.Helper()
	name, found := strings.CutPrefix(d.Digest, "sha256:")
	if !found {
		t.Fatalf("digest %q", d.Digest)
	}
	content, err := os.ReadFile(filepath.Join(layout, "blobs", "sha256", name))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != name || len(content) != d.Size {
		t.Fatalf("blob %s has %d bytes and digest %s", name, len(content), got)
	}
	return content
}

// decode parses JSON.
func decode[T any](t *testing.T, text []byte) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

// entries are the files of a tar with the relevant attributes.
func entries(t *testing.T, packed []byte) (map[string]*tar.Header, []byte) {
	t.Helper()
	unpacked, err := gzip.NewReader(strings.NewReader(string(packed)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*tar.Header{}
	for files := tar.NewReader(strings.NewReader(string(text))); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found, text
		}
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimSuffix(strings.TrimPrefix(header.Name, "./"), "/")] = header
	}
}

// assemble creates a release of the program under test, as if it had been built for this machine.
func assemble(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	built := filepath.Join(dir, "build", "x86_64")
	if err := os.MkdirAll(built, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "cp", harness.Kstatd(t).Path, filepath.Join(built, "kstatd"))
	if err := os.WriteFile(filepath.Join(built, "kstatd.debug"), []byte("lines"), 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, harness.RepoFile("deploy", "release.sh"), "assemble", dir)
	return dir
}

// TestReleasePinsAndSigns checks that the chart and the manifests of a release refer to its image by digest, that the
// checksums are signed with the given key, and that `verify` detects changes.
func TestReleasePinsAndSigns(t *testing.T) {
	harness.NotInSelfCheck(t)
	keys := t.TempDir()
	private, public := filepath.Join(keys, "private.pem"), filepath.Join(keys, "public.pem")
	command(t, "openssl", "genpkey", "-algorithm", "ed25519", "-out", private)
	command(t, "openssl", "pkey", "-in", private, "-pubout", "-out", public)
	t.Setenv("KSTATD_SIGNING_KEY", private)
	t.Setenv("KSTATD_REGISTRY", "registry.example/team")
	dir := assemble(t)
	script := harness.RepoFile("deploy", "release.sh")
	command(t, script, "verify", dir, public)

	text, err := os.ReadFile(filepath.Join(dir, "images", "kstatd", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	digest := decode[struct{ Manifests []descriptor }](t, text).Manifests[0].Digest
	packed, err := filepath.Glob(filepath.Join(dir, "release", "kstatd-chart-*.tgz"))
	if err != nil || len(packed) != 1 {
		t.Fatal(packed, err)
	}
	for _, personality := range []string{"run", "kube-state-metrics", "statsd_exporter"} {
		for _, o := range parseRoles(t, command(t, harness.Tool(t, "helm"), "template", "r", packed[0], "--kube-version="+helmVersion, "--set=personality="+personality)) {
			if o.GetKind() == "Deployment" {
				image := chart{}.of(t, o).container.Image
				if !strings.HasPrefix(image, "registry.example/team/kstatd:") || !strings.HasSuffix(image, "@"+digest) {
					t.Errorf("%s: the chart's image is %s, the release's %s", personality, image, digest)
				}
			}
		}
	}
	unpacked := t.TempDir()
	manifests, err := filepath.Glob(filepath.Join(dir, "release", "kstatd-manifests-*.tar.gz"))
	if err != nil || len(manifests) != 1 {
		t.Fatal(manifests, err)
	}
	command(t, "tar", "--extract", "--gzip", "--strip-components=2", "--file="+manifests[0], "--directory="+unpacked)
	for _, variant := range []string{".", "autosharding", "daemonset", "daemonset-statsd", "shadow", "standby", "node", "node-insecure", "node-processes", "node-walk"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(unpacked, variant))
		if err != nil {
			t.Fatalf("%s: %v", variant, err)
		}
		text, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range parseManifests(t, variant, string(text)).workloads(t) {
			if want := "registry.example/team/kstatd@" + digest; w.container.Image != want {
				t.Errorf("%s: the image of %s is %s, it should be %s", variant, w.workload, w.container.Image, want)
			}
		}
	}

	fails := func(what string, args ...string) {
		t.Helper()
		if out, err := exec.Command(script, append([]string{"verify"}, args...)...).CombinedOutput(); err == nil {
			t.Errorf("%s: verified\n%s", what, out)
		}
	}
	another := filepath.Join(keys, "another.pem")
	command(t, "openssl", "genpkey", "-algorithm", "ed25519", "-out", another)
	command(t, "openssl", "pkey", "-in", another, "-pubout", "-out", another+".pub")
	fails("another key", dir, another+".pub")
	sums := filepath.Join(dir, "release", "SHA256SUMS")
	whole, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	_, shorter, _ := strings.Cut(string(whole), "\n")
	if err := os.WriteFile(sums, []byte(shorter), 0o644); err != nil {
		t.Fatal(err)
	}
	fails("a checksum less", dir, public)
	if err := os.WriteFile(sums, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	command(t, script, "verify", dir, public)
	envelopes, err := filepath.Glob(filepath.Join(dir, "release", "kstatd-*.intoto.jsonl"))
	if err != nil || len(envelopes) != 1 {
		t.Fatal(envelopes, err)
	}
	statement := strings.Replace(envelopes[0], ".intoto.jsonl", ".provenance.json", 1)
	envelope, err := os.ReadFile(envelopes[0])
	if err != nil {
		t.Fatal(err)
	}
	signed := decode[struct {
		PayloadType string
		Payload     []byte
	}](t, envelope)
	if content, err := os.ReadFile(statement); err != nil || signed.PayloadType != "application/vnd.in-toto+json" || string(content) != string(signed.Payload) {
		t.Errorf("%v: the signed statement of type %s is %s", err, signed.PayloadType, signed.Payload)
	}
	// Each change comes with new checksums and a new signature of them.
	changed := func(what, file, from, to string) {
		t.Helper()
		content, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(content), from) {
			t.Fatal(what, err)
		}
		resign := func(content string) {
			if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			command(t, "sh", "-c", `cd "$0" && rm SHA256SUMS* && sha256sum -- * >../sums && mv ../sums SHA256SUMS && openssl pkeyutl -sign -rawin -inkey "$1" -in SHA256SUMS -out SHA256SUMS.sig`, filepath.Join(dir, "release"), private)
		}
		resign(strings.Replace(string(content), from, to, 1))
		fails(what, dir, public)
		resign(string(content))
		command(t, script, "verify", dir, public)
	}
	changed("a subject less", statement, `"name": "THIRD-PARTY-LICENSES.txt"`, `"name": "LICENSES.txt"`)
	changed("another file", filepath.Join(dir, "release", "THIRD-PARTY-LICENSES.txt"), "MIT", "GPL")
	changed("another revision", statement, `"gitCommit": "`, `"gitCommit": "0`)
	changed("another signature", envelopes[0], `"sig": "`, `"sig": "AA`)
	blobs, err := filepath.Glob(filepath.Join(dir, "images", "kstatd", "blobs", "sha256", "*"))
	if err != nil || len(blobs) == 0 {
		t.Fatal(blobs, err)
	}
	if err := os.WriteFile(blobs[0], []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails("another image", dir, public)
}

// imageLabels are the labels of every image, below org.opencontainers.image.
var imageLabels = []string{"title", "description", "version", "revision", "licenses", "source", "url", "documentation", "vendor"}

// vexDocument is the part of the list of known vulnerabilities that the tests use.
type vexDocument struct {
	BomFormat       string
	Vulnerabilities []struct {
		ID       string
		Analysis struct{ State, Justification, Detail string }
		Affects  []struct{ Ref string }
	}
}

// TestReleaseVulnerabilities checks that the advisories which deny.toml ignores become statements about the components of
// the bill of materials, and that an entry without a justification is refused.
func TestReleaseVulnerabilities(t *testing.T) {
	harness.NotInSelfCheck(t)
	dir := t.TempDir()
	bom := filepath.Join(dir, "bom.json")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(bom, `{"serialNumber": "urn:uuid:1-2", "version": 1, "metadata": {"component": {"name": "kstatd"}}, "components": [{"name": "h2", "bom-ref": "pkg:cargo/h2@0.4.1"}]}`)
	vex := func(reason string) (string, error) {
		deny := filepath.Join(dir, "deny.toml")
		write(deny, fmt.Sprintf("[advisories]\nignore = [{ id = \"RUSTSEC-2000-0001\", reason = %q }, { id = \"RUSTSEC-2000-0002\", reason = \"proptest: code_not_present: a tool of tests\" }]\n", reason))
		out, err := exec.Command("python3", "-B", harness.RepoFile("deploy", "release", "vex.py"), deny, bom, "0").CombinedOutput()
		return string(out), err
	}
	out, err := vex("h2: code_not_reachable: kstatd: never calls it")
	if err != nil {
		t.Fatal(out, err)
	}
	found := decode[vexDocument](t, []byte(out)).Vulnerabilities
	if len(found) != 1 || found[0].ID != "RUSTSEC-2000-0001" || found[0].Analysis.State != "not_affected" || found[0].Analysis.Justification != "code_not_reachable" ||
		found[0].Analysis.Detail != "kstatd: never calls it" || len(found[0].Affects) != 1 || found[0].Affects[0].Ref != "urn:cdx:1-2/1#pkg:cargo/h2@0.4.1" {
		t.Errorf("%s", out)
	}
	for _, reason := range []string{"", "we looked at it", "h2: harmless: we looked at it", "h2: code_not_reachable"} {
		if out, err := vex(reason); err == nil || !strings.Contains(out, "RUSTSEC-2000-0001: the reason must be") {
			t.Errorf("%q: %v %s", reason, err, out)
		}
	}
}

// stage is a stage of the Dockerfile, with what it inherits.
type stage struct {
	labels          map[string]string
	entrypoint, cmd []string
}

// stages parses the Dockerfile.
func stages(t *testing.T) map[string]stage {
	t.Helper()
	text, err := os.ReadFile(harness.RepoFile("Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	found, name := map[string]stage{}, ""
	for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
		word, rest, _ := strings.Cut(line, " ")
		current := found[name]
		switch word {
		case "FROM":
			base, as, _ := strings.Cut(rest, " AS ")
			name, current = as, found[base]
			current.labels = maps.Clone(current.labels)
		case "LABEL":
			if current.labels == nil {
				current.labels = map[string]string{}
			}
			for _, pair := range regexp.MustCompile(`(\S+)="([^"]*)"`).FindAllStringSubmatch(rest, -1) {
				current.labels[pair[1]] = pair[2]
			}
		case "ENTRYPOINT":
			current.entrypoint = decode[[]string](t, []byte(rest))
		case "CMD":
			current.cmd = decode[[]string](t, []byte(rest))
		}
		found[name] = current
	}
	return found
}

// TestDockerfileTargets checks the labels of each image that the Dockerfile builds, that its default version is the
// program's, and that the image `demo` runs the simulated cluster on all addresses of the container.
func TestDockerfileTargets(t *testing.T) {
	harness.NotInSelfCheck(t)
	found := stages(t)
	for _, target := range []string{"demo", "kube-state-metrics", "statsd_exporter", "kstatd"} {
		if found[target].entrypoint == nil {
			t.Errorf("%s has no entry point", target)
		}
		for _, label := range imageLabels {
			if found[target].labels["org.opencontainers.image."+label] == "" {
				t.Errorf("%s has no label %s: %v", target, label, found[target].labels)
			}
		}
	}
	manifest, err := os.ReadFile(harness.RepoFile("Cargo.toml"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^version = "(.*)"`).FindSubmatch(manifest)[1]
	dockerfile, err := os.ReadFile(harness.RepoFile("Dockerfile"))
	if err != nil || !strings.Contains(string(dockerfile), fmt.Sprintf("\nARG KSTATD_VERSION=%s\n", version)) {
		t.Errorf("%v: KSTATD_VERSION is not %s", err, version)
	}
	demo := found["demo"]
	if !slices.Equal(demo.entrypoint, []string{"/kstatd"}) || !slices.Equal(demo.cmd, []string{"demo"}) {
		t.Errorf("demo: %+v", demo)
	}
	help := command(t, harness.KstatdWithDemo(t).Path, append(demo.cmd, "--help")...)
	for _, address := range []string{":8080", ":8081", ":9125"} {
		if !strings.Contains(help, "[default: "+address+"]") {
			t.Errorf("no listener at %s: %s", address, help)
		}
	}
}

// TestReleaseBases pins the toolchain image of a copy of the Dockerfile to the digest that a registry answers with, again
// when it changes, and leaves the file as it is when there is none.
func TestReleaseBases(t *testing.T) {
	harness.NotInSelfCheck(t)
	copied, bin := t.TempDir(), t.TempDir()
	for _, file := range []string{"Dockerfile", "Cargo.toml", "deploy/release.sh"} {
		text, err := os.ReadFile(harness.RepoFile(file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(copied, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, file), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "git", "-C", copied, "init", "--quiet")
	command(t, "git", "-C", copied, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "--allow-empty", "--message=t")
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	bases := func(registry string) (string, error) {
		if err := os.WriteFile(filepath.Join(bin, "skopeo"), []byte("#!/bin/sh\n"+registry), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(copied, "deploy", "release.sh"), "bases").CombinedOutput()
		return string(out), err
	}
	pinned := func() string {
		text, err := os.ReadFile(filepath.Join(copied, "Dockerfile"))
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^ARG RUST_IMAGE=(.*)$`).FindStringSubmatch(string(text))[1]
	}
	tag, _, _ := strings.Cut(pinned(), "@")
	for _, manifest := range []string{"one", "another", "another"} {
		registry := fmt.Sprintf(`[ "$*" = "inspect --raw docker://docker.io/library/%s" ] && printf %s`, tag, manifest)
		if out, err := bases(registry); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if want := fmt.Sprintf("%s@sha256:%x", tag, sha256.Sum256([]byte(manifest))); pinned() != want {
			t.Errorf("the image is %s, it should be %s", pinned(), want)
		}
	}
	before := pinned()
	if out, err := bases("echo no route >&2; exit 1"); err == nil || pinned() != before {
		t.Errorf("the image is %s after a failure: %s", pinned(), out)
	}
}

// checkPlugin installs the kubectl plugin of a release as krew does: the archive that the manifest names for this platform, if
// its checksum is right, the files that it lists, and the program under its name.
func checkPlugin(t *testing.T, release, version string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(release, "krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, Sha256, Bin string
				Files            []struct{ From, To string }
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &manifest); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	spec := manifest.Spec
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" || manifest.Metadata.Name != "kstatd" ||
		spec.Version != "v"+version || spec.Homepage == "" || spec.Description == "" || len(spec.ShortDescription) > 80 || len(spec.Platforms) != 1 {
		t.Fatalf("%s", text)
	}
	platform := spec.Platforms[0]
	if !maps.Equal(platform.Selector.MatchLabels, map[string]string{"os": "linux", "arch": "amd64"}) {
		t.Errorf("%s", text)
	}
	name := fmt.Sprintf("kubectl-kstatd-%s-linux-x86_64.tar.gz", version)
	if platform.URI != fmt.Sprintf("https://github.com/kstatd/kstatd/releases/download/v%s/%s", version, name) {
		t.Errorf("the archive's URL is %s", platform.URI)
	}
	packed, err := os.ReadFile(filepath.Join(release, name))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(packed)); got != platform.Sha256 {
		t.Errorf("the checksum is %s, the manifest says %s", got, platform.Sha256)
	}
	installed := t.TempDir()
	command(t, "tar", "--extract", "--gzip", "--file="+filepath.Join(release, name), "--directory="+installed)
	for _, file := range platform.Files {
		if _, err := os.Stat(filepath.Join(installed, file.From)); err != nil || file.To != "." {
			t.Errorf("%+v: %v", file, err)
		}
	}
	if said := command(t, filepath.Join(installed, platform.Bin), "--version"); !strings.Contains(said, version) {
		t.Errorf("the plugin says %s", said)
	}
}

// TestRelease assembles a release and checks its contents.
func TestRelease(t *testing.T) {
	harness.NotInSelfCheck(t)
	dir := assemble(t)
	release := filepath.Join(dir, "release")
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = release
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	sums, err := os.ReadFile(filepath.Join(release, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(harness.RepoFile("Cargo.toml"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^version = "(.*)"`).FindSubmatch(manifest)[1]
	name := fmt.Sprintf("kstatd-%s-linux-x86_64", version)

	packed, err := os.ReadFile(filepath.Join(release, name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	files, _ := entries(t, packed)
	for _, file := range []string{"kstatd", "LICENSE", "THIRD-PARTY-LICENSES.txt", "kstatd.service", "kstatd.env", "memory.conf", "static.yaml", "man/kstatd.1", "man/kstatd-render-kube.1", "completions/kstatd.bash", "completions/kstatd.zsh", "completions/kstatd.fish"} {
		header := files[name+"/"+file]
		if header == nil || header.Uid != 0 || (header.Mode&0o111 != 0) != (file == "kstatd") {
			t.Errorf("%s in the archive: %+v", file, header)
		}
	}
	checkPlugin(t, release, string(version))
	bomText, err := os.ReadFile(filepath.Join(release, fmt.Sprintf("kstatd-%s.cdx.json", version)))
	if err != nil {
		t.Fatal(err)
	}
	bom := decode[struct {
		BomFormat, SpecVersion, SerialNumber string
		Metadata                             struct {
			Component struct{ Name, Version string }
		}
		Components []struct {
			Name, Version, Purl string
			Hashes              []struct{ Alg, Content string }
			Licenses            []struct{ Expression string }
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}](t, bomText)
	if bom.BomFormat != "CycloneDX" || bom.SpecVersion != "1.5" || !strings.HasPrefix(bom.SerialNumber, "urn:uuid:") || bom.Metadata.Component.Name != "kstatd" {
		t.Errorf("%.300s", bomText)
	}
	refs, names := map[string]bool{"pkg:cargo/kstatd@" + string(version): true}, map[string]bool{}
	notices, err := os.ReadFile(filepath.Join(release, "THIRD-PARTY-LICENSES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range bom.Components {
		refs[c.Purl], names[c.Name] = true, true
		if len(c.Licenses) != 1 || len(c.Hashes) != 1 || len(c.Hashes[0].Content) != 64 {
			t.Errorf("%s: licences %v, hashes %v", c.Purl, c.Licenses, c.Hashes)
		}
		if !strings.Contains(string(notices), fmt.Sprintf("\n  %s %s (", c.Name, c.Version)) {
			t.Errorf("%s is not in the notices", c.Purl)
		}
	}
	for _, d := range bom.Dependencies {
		for _, ref := range append(d.DependsOn, d.Ref) {
			if !refs[ref] {
				t.Errorf("%s is no component", ref)
			}
		}
	}
	// Dependencies of tests, builds and `demo` are not part of the shipped program.
	for crate, want := range map[string]bool{"tokio": true, "ring": true, "inferno": true, "proptest": false, "criterion": false, "indicatif": false, "kstatd-double": false} {
		if names[crate] != want {
			t.Errorf("%s in the list: %v", crate, names[crate])
		}
	}

	revision := strings.TrimSpace(command(t, "git", "-C", harness.RepoFile(), "rev-parse", "HEAD"))
	statementText, err := os.ReadFile(filepath.Join(release, fmt.Sprintf("kstatd-%s.provenance.json", version)))
	if err != nil {
		t.Fatal(err)
	}
	statement := decode[struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}](t, statementText)
	if statement.Type != "https://in-toto.io/Statement/v1" || statement.PredicateType != "https://slsa.dev/provenance/v1" ||
		statement.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != revision {
		t.Errorf("%s", statementText)
	}
	subjects := map[string]string{}
	for _, s := range statement.Subject {
		subjects[s.Name] = s.Digest["sha256"]
	}
	for line := range strings.Lines(string(sums)) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if subjects[file] != sum && !strings.HasSuffix(file, ".provenance.json") {
			t.Errorf("%s has the checksum %s, and %s in the provenance", file, sum, subjects[file])
		}
	}
	vexText, err := os.ReadFile(filepath.Join(release, fmt.Sprintf("kstatd-%s.vex.cdx.json", version)))
	if err != nil {
		t.Fatal(err)
	}
	if vex := decode[vexDocument](t, vexText); vex.BomFormat != "CycloneDX" || vex.Vulnerabilities == nil {
		t.Errorf("%s", vexText)
	}
	if _, err := os.Stat(filepath.Join(dir, "images", "demo")); err == nil {
		t.Error("the simulated cluster of demo is released")
	}
	for image, entrypoint := range map[string]string{"kstatd": "/kstatd", "kube-state-metrics": "/kube-state-metrics", "statsd-exporter": "/bin/statsd_exporter"} {
		layout := filepath.Join(dir, "images", image)
		text, err := os.ReadFile(filepath.Join(layout, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		type index struct{ Manifests []descriptor }
		top := decode[index](t, text).Manifests
		if len(top) != 1 || top[0].Annotations["org.opencontainers.image.ref.name"] != string(version) {
			t.Fatalf("%s: %s", image, text)
		}
		images := decode[index](t, blob(t, layout, top[0])).Manifests
		if len(images) != 1 || images[0].Platform.Architecture != "amd64" || images[0].Platform.OS != "linux" {
			t.Fatalf("%s: %+v", image, images)
		}
		m := decode[struct {
			Config descriptor
			Layers []descriptor
		}](t, blob(t, layout, images[0]))
		config := decode[struct {
			Architecture, OS string
			Config           struct {
				User         string
				Entrypoint   []string
				ExposedPorts map[string]any
				Labels       map[string]string
			}
			RootFS struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}](t, blob(t, layout, m.Config))
		if !slices.Equal(config.Config.Entrypoint, []string{entrypoint}) || config.Config.User != "65534:65534" || len(config.Config.ExposedPorts) == 0 {
			t.Errorf("%s: %+v", image, config.Config)
		}
		if config.Config.Labels["org.opencontainers.image.revision"] != revision || config.Config.Labels["org.opencontainers.image.version"] != string(version) {
			t.Errorf("%s: labels %v", image, config.Config.Labels)
		}
		for _, label := range append(imageLabels, "created") {
			if config.Config.Labels["org.opencontainers.image."+label] == "" {
				t.Errorf("%s has no label %s: %v", image, label, config.Config.Labels)
			}
		}
		if subjects["pkg:oci/"+image] != strings.TrimPrefix(top[0].Digest, "sha256:") {
			t.Errorf("%s is not in the provenance: %v", image, subjects)
		}
		files, unpacked := entries(t, blob(t, layout, m.Layers[0]))
		if got := fmt.Sprintf("sha256:%x", sha256.Sum256(unpacked)); !slices.Equal(config.RootFS.DiffIDs, []string{got}) {
			t.Errorf("%s: the layer is %s, the configuration says %v", image, got, config.RootFS.DiffIDs)
		}
		if header := files["kstatd"]; header == nil || header.Mode != 0o755 {
			t.Errorf("%s: the program is %+v", image, header)
		}
		if header := files[strings.TrimPrefix(entrypoint, "/")]; header == nil || image != "kstatd" && header.Linkname != "/kstatd" {
			t.Errorf("%s: the entry point is %+v", image, header)
		}
		for _, file := range []string{"etc/ssl/certs/ca-certificates.crt", "LICENSE", "THIRD-PARTY-LICENSES.txt"} {
			if files[file] == nil || files[file].Size == 0 {
				t.Errorf("%s has no %s", image, file)
			}
		}
	}

	// Assembling again yields identical files.
	again := assemble(t)
	for _, part := range []string{"release", "images"} {
		want, got := tree(t, filepath.Join(dir, part)), tree(t, filepath.Join(again, part))
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s%s is another one the second time", part, name)
			}
		}
		if len(want) != len(got) {
			t.Errorf("%s: %d files, then %d", part, len(want), len(got))
		}
	}
	if len(strings.Fields(string(sums)))/2 < 4 {
		t.Errorf("checksums: %s", sums)
	}
}
