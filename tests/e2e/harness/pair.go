package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// KubeExporter is a running kube-state-metrics, kstatd's or the original.
type KubeExporter struct {
	*Process
	// Base is the main listener, Telemetry the listener of own metrics.
	Base, Telemetry string
}

// StartKubeExporter starts it on free ports and waits until it serves.
func StartKubeExporter(t testing.TB, p Program, args ...string) *KubeExporter {
	t.Helper()
	port, telemetry := FreePort(t), FreePort(t)
	e := &KubeExporter{
		Process: Start(t, p, append([]string{
			"--host=127.0.0.1", fmt.Sprintf("--port=%d", port),
			"--telemetry-host=127.0.0.1", fmt.Sprintf("--telemetry-port=%d", telemetry),
		}, args...)...),
		Base:      fmt.Sprintf("http://127.0.0.1:%d", port),
		Telemetry: fmt.Sprintf("http://127.0.0.1:%d", telemetry),
	}
	WaitStatus(t, e.Process, e.Base+"/healthz", 200)
	return e
}

// Pair is kstatd and the original with the same arguments.
type Pair struct {
	t            testing.TB
	Ours, Theirs *KubeExporter
	// repeating is true if both sides repeat series.
	repeating bool
}

// StartPair starts both sides.
func StartPair(t testing.TB, args ...string) *Pair {
	t.Helper()
	theirs := StartKubeExporter(t, KubeStateMetrics(t), args...)
	return &Pair{t: t, Ours: StartKubeExporter(t, OurKubeStateMetrics(t), args...), Theirs: theirs}
}

// StartRepeatingPair is StartPair with the flag that makes kstatd repeat series
// as the original does.
func StartRepeatingPair(t testing.TB, args ...string) *Pair {
	t.Helper()
	if selfCheck() {
		return StartPair(t, args...)
	}
	theirs := StartKubeExporter(t, KubeStateMetrics(t), args...)
	ours := StartKubeExporter(t, OurKubeStateMetrics(t), append([]string{"--compat.duplicate-series"}, args...)...)
	return &Pair{t: t, Ours: ours, Theirs: theirs, repeating: true}
}

// With is the same pair for a subtest, which then fails on differences.
func (p *Pair) With(t testing.TB) *Pair {
	copied := *p
	copied.t = t
	return &copied
}

// Converge waits until both sides expose the same series and types, in text and in OpenMetrics. Watch events reach
// two processes at different times, so only a lasting difference counts.
func (p *Pair) Converge(query string) {
	p.t.Helper()
	p.ConvergeAt(0, query)
}

// ConvergeAt is Converge to an exposition with at least this many samples.
func (p *Pair) ConvergeAt(atLeast int, query string) {
	p.t.Helper()
	p.ConvergeWhen(query, func(theirs Exposition) error {
		if len(theirs.Samples) < atLeast {
			return fmt.Errorf("%s has %d samples, it should have %d", p.Theirs.name, len(theirs.Samples), atLeast)
		}
		return nil
	})
}

// Changed returns nil for an exposition of the original after its next change. Before that, both sides may be equal
// because neither knows of the change.
func (p *Pair) Changed(query string) func(theirs Exposition) error {
	p.t.Helper()
	before, err := Scrape(p.Theirs.Base+"/metrics"+query, Text)
	if err != nil {
		p.t.Fatal(err)
	}
	return func(theirs Exposition) error {
		if slices.Equal(theirs.Samples, before.Samples) {
			return fmt.Errorf("%s has seen no change yet", p.Theirs.name)
		}
		return nil
	}
}

// ConvergeWhen is Converge to an exposition of the original for which seen is nil.
func (p *Pair) ConvergeWhen(query string, seen func(theirs Exposition) error) {
	p.t.Helper()
	for _, accept := range []string{Text, OpenMetrics} {
		Eventually(p.t, "both sides expose the same with Accept "+accept, func() error {
			theirs, err := Scrape(p.Theirs.Base+"/metrics"+query, accept)
			if err != nil {
				return err
			}
			if err := seen(theirs); err != nil {
				return err
			}
			ours, err := Scrape(p.Ours.Base+"/metrics"+query, accept)
			if err != nil {
				return err
			}
			if !p.repeating && !selfCheck() {
				theirs = theirs.Distinct()
			}
			return Compare(ours, theirs)
		})
	}
}

// Compare describes the differences of two expositions in samples, types, order of families and the stability prefix
// of the help texts; nil if there are none.
func Compare(ours, theirs Exposition) error {
	return errors.Join(
		prefix("samples: ", Difference(ours.Samples, theirs.Samples)),
		prefix("types: ", Difference(ours.Types, theirs.Types)),
		compareOrder(ours, theirs),
		compareMarks(ours, theirs),
	)
}

func prefix(text string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%w", text, err)
}

func compareOrder(ours, theirs Exposition) error {
	if slices.Equal(ours.Families, theirs.Families) || len(ours.Families) != len(theirs.Families) {
		return nil // another length is a difference in types already
	}
	for i, name := range theirs.Families {
		if ours.Families[i] != name {
			return fmt.Errorf("order: family %d is %s, theirs is %s", i, ours.Families[i], name)
		}
	}
	return nil
}

func compareMarks(ours, theirs Exposition) error {
	var problems []error
	for name, help := range theirs.Help {
		mine, found := ours.Help[name]
		switch {
		case !found:
			problems = append(problems, fmt.Errorf("help: %s has none", name))
		case mark(mine) != mark(help):
			problems = append(problems, fmt.Errorf("help: %s is marked %q, theirs %q", name, mark(mine), mark(help)))
		}
	}
	return errors.Join(problems...)
}

// mark is the prefix for stability and deprecation. The wording after it may differ.
func mark(help string) string {
	end := 0
	if strings.HasPrefix(help, "[STABLE] ") {
		end = len("[STABLE] ")
	}
	if strings.HasPrefix(help[end:], "(Deprecated since ") {
		if i := strings.Index(help, ") "); i > 0 {
			end = i + 2
		}
	}
	return help[:end]
}
