package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// originalNames reads a section of the list that tests/compatibility.rs compares with the program.
func originalNames(t *testing.T, section string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(harness.RepoFile("tests", "data", "originals.txt"))
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "\n["+section+"]\n")
	if !found {
		t.Fatalf("no section %s", section)
	}
	part, _, _ = strings.Cut(part, "\n[")
	for line := range strings.Lines(part) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// TestNamesOfTheOriginals: the list has every flag of the originals' help texts and every family of their scrapes.
func TestNamesOfTheOriginals(t *testing.T) {
	harness.NotInSelfCheck(t)
	cluster := harness.StartCluster(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"config.yml": "node: \"\"\n", "crs.yml": "spec: {resources: []}\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kube := harness.StartKubeExporter(t, harness.KubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig, "--object-limit=100",
		"--config="+dir+"/config.yml", "--custom-resource-state-config-file="+dir+"/crs.yml")
	statsd := harness.StartStatsd(t, harness.StatsdExporter(t), "", "--statsd.relay.address=127.0.0.1:9")
	statsd.SendUDP("a:1|c\n:\na:1|g\nb:-1|c\nc:1|c|#x:y")
	for _, original := range []struct {
		name    string
		program harness.Program
		url     string
	}{
		{"kube-state-metrics", harness.KubeStateMetrics(t), kube.Telemetry + "/metrics"},
		{"statsd_exporter", harness.StatsdExporter(t), statsd.Base + "/metrics"},
	} {
		t.Run(original.name, func(t *testing.T) {
			flags := originalNames(t, original.name+" flags")
			code, stdout, _ := harness.Run(t, original.program, "", "--help")
			shown := regexp.MustCompile(`(?m)^ +(-[a-z], )?(--(\[no-\])?[A-Za-z0-9_.-]+)`).FindAllStringSubmatch(stdout, -1)
			if code != 0 || len(shown) < 20 {
				t.Fatalf("exit code %d, %d flags", code, len(shown))
			}
			for _, match := range shown {
				for _, name := range []string{strings.Replace(match[2], "[no-]", "", 1), strings.Replace(match[2], "[no-]", "no-", 1)} {
					if !slices.Contains(flags, name) {
						t.Errorf("%s is not in the list", name)
					}
				}
			}
			families := originalNames(t, original.name+" self metrics")
			harness.Eventually(t, "every family is in the list", func() error {
				e, err := harness.Scrape(original.url, harness.Text)
				if err != nil {
					return err
				}
				own := 0
				for _, name := range e.Families {
					listed := func(known string) bool {
						prefix, all := strings.CutSuffix(known, "*")
						return known == name || all && strings.HasPrefix(name, prefix)
					}
					switch {
					case slices.ContainsFunc(families, listed):
						own++
					case len(name) > 1: // a, b and c came over StatsD
						t.Fatalf("%s is not in the list", name)
					}
				}
				if own < 30 {
					return fmt.Errorf("%d families", own)
				}
				return nil
			})
		})
	}
}
