package e2e

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kstatd/e2e/harness"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// clashingMappings map different lines to one metric, and to names that a type of another metric claims.
var clashingMappings = []string{
	"",
	"defaults: {observer_type: histogram, ttl: 1h}\n",
	`
mappings:
- {match: a.*, name: m, labels: {kk: "$1"}, help: one}
- {match: b.*, name: m, labels: {other: "$1"}, help: two, observer_type: histogram, scale: 0.5}
- {match: c.*, name: "m_$1", honor_labels: true, labels: {kk: rule}}
- {match: d.*, name: gone, action: drop}
- {match: e.*, name: le, labels: {quantile: "$1", le: "$1"}}
- {match: f.*, name: f, help: 'a "quoted" \ help', observer_type: histogram, histogram_options: {buckets: [-5, 0, 5]}}
`,
	"mappings:\n- {match: \"^(.*)$\", match_type: regex, name: \"$1\", labels: {whole: \"${1}\"}}\n",
}

// clashingLine is a random line of parts that many other lines share.
func clashingLine(random *rand.Rand) string {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	name := pick("m", "a.x", "b.x", "c.sum", "c.count", "d.x", "e.x", "f.x", "1-2--3", "statsd_exporter_lines", "kube_pod_info")
	name += pick("", "", "", "", "_sum", "_count", "_bucket", "_total", "_created", "_total_created", "_info")
	if random.IntN(30) == 0 {
		name = ""
	}
	value := pick("0", "1", "-1", "+2", "2.5", "-7", "1e300", "1e-300", "nan", "-inf", "+Inf", "0x10", "1_0", "é", "")
	line := name + ":" + value + "|" + pick("c", "g", "ms", "h", "d", "s", "x")
	if random.IntN(4) == 0 {
		line += pick("|@0.5", "|@0", "|@1e-9", "|@x")
	}
	if random.IntN(2) == 0 {
		line += "|#" + pick("le", "quantile", "__name__", "kk", "é", "a-b", "") + ":" +
			pick("1", `a"b`, `a\`, `a\nb`, "ü", "\xff", "", "+Inf") + pick("", ",kk:2", ",le:3,le:4", ",bare")
	}
	return line
}

// forms are the formats, with the file name for the Python parser.
var forms = []struct{ accept, begins, suffix string }{
	{"text/plain;version=0.0.4", "text/plain;", ".txt"},
	{"application/openmetrics-text;version=1.0.0", "application/openmetrics-text;", ".om"},
	{"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "application/vnd.google.protobuf;", ""},
}

// serverReads parses an exposition with the Prometheus server's parser and returns the number of samples.
func serverReads(body, contentType string) (samples int, err error) {
	// Protobuf also has native histograms, in addition to the classic buckets.
	options := textparse.ParserOptions{KeepClassicOnClassicAndNativeHistograms: true}
	parser, err := textparse.New([]byte(body), contentType, labels.NewSymbolTable(), options)
	if err != nil {
		return 0, err
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return samples, err
		}
		switch entry {
		case textparse.EntrySeries:
			var set labels.Labels
			parser.Labels(&set)
			if !set.IsValid(model.LegacyValidation) {
				return samples, fmt.Errorf("invalid labels: %s", set)
			}
			samples++
		case textparse.EntryHistogram:
			if _, _, whole, _ := parser.Histogram(); whole != nil {
				if err := whole.Validate(); err != nil {
					return samples, fmt.Errorf("native histogram: %w", err)
				}
			}
		}
	}
}

// libraryReads parses an exposition with the Go library, which has no OpenMetrics parser.
func libraryReads(body string, header map[string][]string) error {
	decoder := expfmt.NewDecoder(strings.NewReader(body), expfmt.ResponseFormat(header))
	seen := map[string]bool{}
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if seen[family.GetName()] {
			return fmt.Errorf("family %s comes twice", family.GetName())
		}
		seen[family.GetName()] = true
	}
}

// TestReferenceParsers sends conflicting lines and parses each state in each format with the parsers of the
// Prometheus server, its Go library and its Python library.
func TestReferenceParsers(t *testing.T) {
	const rounds, lines = 25, 40
	for at, mapping := range clashingMappings {
		t.Run(fmt.Sprint("mapping ", at), func(t *testing.T) {
			server := harness.StartStatsd(t, harness.KstatdRun(t), mapping)
			random := rand.New(rand.NewPCG(7, uint64(at)))
			folder := t.TempDir()
			for round := range rounds {
				var text strings.Builder
				for range lines {
					text.WriteString(clashingLine(random) + "\n")
				}
				server.SendTCP(text.String())
				// Lines of one connection take effect in order.
				server.SendTCP(fmt.Sprintf("rounds:%d|g\n", round))
				mark := "rounds"
				if at == len(clashingMappings)-1 {
					mark = `rounds{whole="rounds"}`
				}
				server.WaitSeries(fmt.Sprint(mark, " ", round))
				all := 0
				for _, form := range forms {
					answer, err := harness.Get(server.Base+"/metrics", "Accept", form.accept)
					if err != nil {
						t.Fatal(err)
					}
					contentType := answer.Header.Get("Content-Type")
					name := fmt.Sprintf("round %d, %s", round, contentType)
					if !strings.HasPrefix(contentType, form.begins) {
						t.Fatalf("%s in answer to %s", name, form.accept)
					}
					samples, err := serverReads(answer.Body, contentType)
					if all == 0 {
						all = samples
					}
					if err != nil || samples == 0 || samples != all {
						t.Fatalf("%s: the server reads %d of %d samples: %v\n%s", name, samples, all, err, answer.Body)
					}
					if form.suffix != ".om" {
						if err := libraryReads(answer.Body, answer.Header); err != nil {
							t.Fatalf("%s: the Go library: %v\n%s", name, err, answer.Body)
						}
					}
					if form.suffix == "" {
						continue
					}
					path := filepath.Join(folder, fmt.Sprint(round, form.suffix))
					if err := os.WriteFile(path, []byte(answer.Body), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			script(t, "parse_expositions.py", folder)
		})
	}
}
