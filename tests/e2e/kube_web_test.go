package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kstatd/e2e/harness"
)

// TestKubeWeb compares statuses, content types and bodies of both listeners.
func TestKubeWeb(t *testing.T) {
	cluster := harness.StartCluster(t)
	cluster.Create("configmaps", configMap(t, "one"))
	pair := harness.StartPair(t, "--resources=configmaps", "--enable-gzip-encoding", "--kubeconfig="+cluster.Kubeconfig)
	pair.ConvergeAt(3, "")
	for _, request := range []struct {
		method, path string
		telemetry    bool
		headers      []string
	}{
		{"GET", "/healthz", false, nil}, {"HEAD", "/healthz", false, nil}, {"GET", "/livez", false, nil},
		{"GET", "/readyz", false, nil}, {"GET", "/metrics/", false, nil}, {"GET", "/nothing", false, nil}, {"GET", "/debug/pprof/", false, nil},
		{"HEAD", "/metrics", false, nil}, {"POST", "/metrics", false, nil},
		{"GET", "/metrics", false, []string{"Accept", "application/openmetrics-text"}},
		{"GET", "/metrics", false, []string{"Accept", "application/openmetrics-text; version=0.0.1"}},
		{"GET", "/metrics", false, []string{"Accept", "application/openmetrics-text; version=2.0.0"}},
		{"GET", "/metrics", false, []string{"Accept", "text/plain;q=0.5, application/openmetrics-text;version=1.0.0;q=0.4"}},
		{"GET", "/metrics", false, []string{"Accept", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"}},
		{"GET", "/metrics", false, []string{"Accept", "image/png"}},
		{"GET", "/metrics", false, []string{"Accept-Encoding", "gzip"}},
		{"GET", "/metrics", false, []string{"Accept-Encoding", "deflate, gzip;q=0.5"}},
		{"GET", "/metrics", false, []string{"Accept-Encoding", "GZIP"}},
		{"GET", "/metrics", false, []string{"Accept-Encoding", "identity"}},
		{"GET", "/readyz", true, nil}, {"GET", "/healthz", true, nil}, {"GET", "/livez", true, nil}, {"GET", "/nothing", true, nil},
	} {
		name := fmt.Sprint(request.method, " ", request.path, " ", strings.Join(request.headers, ": "))
		if request.telemetry {
			name += " of telemetry"
		}
		t.Run(name, func(t *testing.T) {
			ask := func(side *harness.KubeExporter) (string, error) {
				base := side.Base
				if request.telemetry {
					base = side.Telemetry
				}
				resp, err := harness.Do(request.method, base+request.path, request.headers...)
				if err != nil {
					return "", err
				}
				// The set of lines: the order of objects within a family is unspecified.
				body := slices.Sorted(strings.Lines(withoutHelp(resp.Body)))
				return fmt.Sprintf("%d %q %q\n%s", resp.Status, resp.Header.Get("Content-Type"), resp.Header.Get("Content-Encoding"), strings.Join(body, "")), nil
			}
			// The API server creates config maps in its first seconds.
			harness.Eventually(t, "both sides answer the same", func() error {
				ours, err := ask(pair.Ours)
				if err != nil {
					return err
				}
				theirs, err := ask(pair.Theirs)
				if err == nil && ours != theirs {
					err = fmt.Errorf("ours:\n%s\ntheirs:\n%s", ours, theirs)
				}
				return err
			})
		})
	}
}

// TestKubeTelemetry: each own metric of the original exists, with its labels.
func TestKubeTelemetry(t *testing.T) {
	cluster := harness.StartCluster(t)
	pair := harness.StartPair(t, mainSlice, "--kubeconfig="+cluster.Kubeconfig)
	pair.ConvergeAt(15, "")
	value := regexp.MustCompile(`="(?:[^"\\]|\\.)*"`)
	// A series is reduced to its name, its label names, and the label values that identify its subject.
	shape := func(side *harness.KubeExporter) (series []string, err error) {
		if _, err := harness.Get(side.Base + "/metrics"); err != nil {
			return nil, err
		}
		e, err := harness.Scrape(side.Telemetry+"/metrics", harness.Text)
		if err != nil {
			return nil, err
		}
		for _, line := range e.Samples {
			name := line[:strings.LastIndexByte(line, ' ')]
			switch {
			case strings.Contains(name, `result="error"`):
				// Depends on chance events of one side.
				continue
			case strings.HasPrefix(line, "kube_state_metrics_build_info"):
				labels := strings.Split(value.ReplaceAllString(strings.Trim(name[len("kube_state_metrics_build_info"):], "{}"), ""), ",")
				slices.Sort(labels)
				name = fmt.Sprint("kube_state_metrics_build_info ", labels)
			case strings.HasPrefix(line, "kube_state_metrics_"), strings.HasPrefix(line, "http_request_duration_seconds"):
				family, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
				pairs := strings.Split(labels, ",")
				slices.Sort(pairs)
				name = family + "{" + strings.Join(pairs, ",") + "}"
			default:
				continue
			}
			series = append(series, name)
		}
		slices.Sort(series)
		return series, nil
	}
	harness.Eventually(t, "the self metrics of the original are there", func() error {
		theirs, err := shape(pair.Theirs)
		if err != nil {
			return err
		}
		ours, err := shape(pair.Ours)
		if err != nil {
			return err
		}
		// Additional families are allowed.
		ours = slices.DeleteFunc(ours, func(s string) bool { return !slices.Contains(theirs, s) })
		return harness.Difference(ours, theirs)
	})
}
