package harness

import (
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// OpenMetrics is an Accept header for OpenMetrics only.
const OpenMetrics = "application/openmetrics-text; version=1.0.0"

// Text is the Accept header of the text format.
const Text = "text/plain; version=0.0.4"

var client = &http.Client{
	Timeout: Patience,
	// Transparent decompression would hide the sent bytes.
	Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4},
	CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	},
}

// Response is a complete response.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Get fetches a URL; headers are pairs of name and value.
func Get(url string, headers ...string) (Response, error) { return Do("GET", url, headers...) }

// Do is Get with another method.
func Do(method, url string, headers ...string) (Response, error) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return Response{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	reader := io.Reader(resp.Body)
	if resp.Header.Get("Content-Encoding") == "gzip" {
		if reader, err = gzip.NewReader(resp.Body); err != nil {
			return Response{}, err
		}
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		return Response{}, err
	}
	return Response{resp.StatusCode, resp.Header, string(body)}, nil
}

// WaitStatus waits until the URL answers with this status, and fails as soon as the process has ended.
func WaitStatus(t testing.TB, p *Process, url string, status int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s answers %d", url, status), func() error {
		if p != nil && !p.Running() {
			t.Fatalf("%s has ended:\n%s", p.name, tail(p.Output(), 4000))
		}
		resp, err := Get(url)
		if err != nil {
			return err
		}
		if resp.Status != status {
			return fmt.Errorf("status %d, body %.300q", resp.Status, resp.Body)
		}
		return nil
	})
}

// Exposition is a parsed scrape. Samples is a multiset: sorted, with repetitions.
type Exposition struct {
	Samples []string
	// ordered are the samples in their original order.
	ordered []string
	// Types are the TYPE lines, sorted.
	Types []string
	// Help maps a family to the text of its HELP line.
	Help map[string]string
	// Families are the names of the TYPE lines in their original order.
	Families []string
	// EOF is true if the last line is the end mark of OpenMetrics.
	EOF bool
}

// Parse parses an exposition.
//
// # Errors
//
// A line is neither a sample nor a known comment, or the body does not end with a line feed.
func Parse(body string) (Exposition, error) {
	e := Exposition{Help: map[string]string{}}
	if body == "" {
		return e, nil
	}
	if !strings.HasSuffix(body, "\n") {
		return e, fmt.Errorf("the body ends in the middle of a line: %q", tail(body, 200))
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
		if e.EOF {
			return e, fmt.Errorf("a line after # EOF: %q", line)
		}
		switch {
		case strings.HasPrefix(line, "# TYPE "):
			name, _, found := strings.Cut(line[len("# TYPE "):], " ")
			if !found {
				return e, fmt.Errorf("a TYPE line without a type: %q", line)
			}
			e.Types = append(e.Types, line)
			e.Families = append(e.Families, name)
		case strings.HasPrefix(line, "# HELP "):
			name, help, _ := strings.Cut(line[len("# HELP "):], " ")
			e.Help[name] = help
		case line == "# EOF":
			e.EOF = true
		case line == "" || strings.HasPrefix(line, "#"):
			return e, fmt.Errorf("not a line of an exposition: %q", line)
		default:
			if !strings.Contains(line, " ") {
				return e, fmt.Errorf("a sample without a value: %q", line)
			}
			e.ordered = append(e.ordered, line)
		}
	}
	e.Samples = slices.Sorted(slices.Values(e.ordered))
	slices.Sort(e.Types)
	return e, nil
}

// Scrape fetches and parses; accept may be empty.
//
// # Errors
//
// A status other than 200, or a malformed body.
func Scrape(url, accept string) (Exposition, error) {
	resp, err := Get(url, "Accept", accept)
	if err != nil {
		return Exposition{}, err
	}
	if resp.Status != 200 {
		return Exposition{}, fmt.Errorf("%s: status %d: %.300q", url, resp.Status, resp.Body)
	}
	contentType := resp.Header.Get("Content-Type")
	if accept == OpenMetrics && !strings.HasPrefix(contentType, "application/openmetrics-text; version=1.0.0") {
		return Exposition{}, fmt.Errorf("%s: OpenMetrics was asked for, the answer is %q", url, contentType)
	}
	if accept == Text && !strings.HasPrefix(contentType, "text/plain; version=0.0.4") {
		return Exposition{}, fmt.Errorf("%s: text was asked for, the answer is %q", url, contentType)
	}
	e, err := Parse(resp.Body)
	if err != nil {
		return e, fmt.Errorf("%s: %w", url, err)
	}
	if e.EOF != (accept == OpenMetrics) {
		return e, fmt.Errorf("%s: # EOF present: %t, with Accept %q", url, e.EOF, accept)
	}
	return e, nil
}

// Value is the printed value of the one sample with this name and labels.
func (e Exposition) Value(series string) (string, bool) {
	for _, line := range e.Samples {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return value, true
		}
	}
	return "", false
}

// Distinct keeps the first sample of each series. The original repeats a series if an object repeats an entry, which
// Prometheus rejects.
func (e Exposition) Distinct() Exposition {
	seen := map[string]bool{}
	var kept []string
	for _, line := range e.ordered {
		series := line[:strings.LastIndexByte(line, ' ')]
		if !seen[series] {
			seen[series] = true
			kept = append(kept, line)
		}
	}
	e.Samples = slices.Sorted(slices.Values(kept))
	return e
}

// Without drops the samples and types of families with one of these prefixes.
func (e Exposition) Without(prefixes ...string) Exposition {
	drop := func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
	e.Samples = slices.DeleteFunc(slices.Clone(e.Samples), drop)
	e.Types = slices.DeleteFunc(slices.Clone(e.Types), func(line string) bool { return drop(line[len("# TYPE "):]) })
	e.Families = slices.DeleteFunc(slices.Clone(e.Families), drop)
	help := maps.Clone(e.Help)
	maps.DeleteFunc(help, func(name, _ string) bool { return drop(name) })
	e.Help = help
	return e
}

// Difference describes the difference of two sorted multisets of lines, nil if there is none.
func Difference(ours, theirs []string) error {
	var missing, extra []string
	i, j := 0, 0
	for i < len(ours) || j < len(theirs) {
		switch {
		case j == len(theirs) || i < len(ours) && ours[i] < theirs[j]:
			extra = append(extra, ours[i])
			i++
		case i == len(ours) || theirs[j] < ours[i]:
			missing = append(missing, theirs[j])
			j++
		default:
			i++
			j++
		}
	}
	if len(missing)+len(extra) == 0 {
		return nil
	}
	show := func(lines []string) string {
		if len(lines) > 12 {
			return strings.Join(lines[:12], "\n    ") + "\n    …"
		}
		return strings.Join(lines, "\n    ")
	}
	return fmt.Errorf("%d lines are missing:\n    %s\n  %d lines are too many:\n    %s", len(missing), show(missing), len(extra), show(extra))
}
