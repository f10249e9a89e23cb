package e2e

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	for _, variant := range []string{".", "autosharding", "daemonset", "shadow", "standby", "node", "node-insecure", "node-processes", "node-walk"} {
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
	blobs, err := filepath.Glob(filepath.Join(dir, "images", "kstatd", "blobs", "sha256", "*"))
	if err != nil || len(blobs) == 0 {
		t.Fatal(blobs, err)
	}
	if err := os.WriteFile(blobs[0], []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	fails("another image", dir, public)
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
