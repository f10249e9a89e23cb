package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kstatd/e2e/harness"
)

// record is the history of a kind's true states.
type record struct {
	mu      sync.Mutex
	names   map[string]bool
	moments []moment
	// givenUp is true if an empty exposition is correct too.
	givenUp bool
}

// moment is a state. It is valid from the start of a request that creates it, and the only valid one after the
// response.
type moment struct {
	state string
	// answered is zero while the request is in progress.
	answered time.Time
}

func newRecord() *record {
	return &record{names: map[string]bool{}, moments: []moment{{answered: time.Now()}}}
}

func stateOf(names []string) string {
	slices.Sort(names)
	return strings.Join(names, " ")
}

// becomes records a state that a request is about to create, and makes the request.
func (r *record) becomes(change func(map[string]bool), request func()) {
	r.mu.Lock()
	change(r.names)
	at := len(r.moments)
	r.moments = append(r.moments, moment{state: stateOf(slices.Collect(maps.Keys(r.names)))})
	r.mu.Unlock()
	request()
	r.mu.Lock()
	r.moments[at].answered = time.Now()
	r.mu.Unlock()
}

// present are the existing names.
func (r *record) present() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.names))
}

// giveUp sets whether an empty exposition is correct, because the kind may not be listed.
func (r *record) giveUp(may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.givenUp = may
}

// place returns the index of a matching state, not before `after` if possible, and for how long it had been outdated.
func (r *record) place(state string, after int, at time.Time) (place int, old time.Duration, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state == "" && r.givenUp {
		return after, 0, true
	}
	last := -1
	place = -1
	for i, m := range r.moments {
		if m.state == state {
			last = i
			if place < 0 || place < after {
				place = i
			}
		}
	}
	if last < 0 {
		return 0, 0, false
	}
	if last+1 < len(r.moments) {
		if next := r.moments[last+1].answered; !next.IsZero() {
			old = max(0, at.Sub(next))
		}
	}
	return place, old, true
}

// watcher scrapes an exporter continuously and compares each response with the true states.
type watcher struct {
	exporter *harness.KubeExporter
	kinds    []*historyKind
	stop     chan struct{}
	ended    chan struct{}

	mu     sync.Mutex
	places map[string]int
	seen   sightings
}

// sightings are the observations since the last call of take.
type sightings struct {
	scrapes int
	// oldest is the longest time for which an exposed state had been outdated.
	oldest time.Duration
	// wrong are responses that were never true, or older than an earlier one, and failures.
	wrong []string
}

func watch(t *testing.T, exporter *harness.KubeExporter, kinds []*historyKind) *watcher {
	w := &watcher{exporter: exporter, kinds: kinds, places: map[string]int{}, stop: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for {
			w.look()
			select {
			case <-w.stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(w.end)
	return w
}

func (w *watcher) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	<-w.ended
}

func (w *watcher) look() {
	begun := time.Now()
	e, err := harness.Scrape(w.exporter.Base+"/metrics", harness.Text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.scrapes++
	if err != nil {
		select {
		case <-w.exporter.Done(): // The test is at its end, or says itself that it ended.
		default:
			w.seen.wrong = append(w.seen.wrong, err.Error())
		}
		return
	}
	var wrong []string
	for _, kind := range w.kinds {
		names := kind.shown(e)
		state := stateOf(names)
		place, old, found := kind.record.place(state, w.places[kind.resource], begun)
		switch {
		case !found:
			wrong = append(wrong, fmt.Sprintf("%s were never [%s]", kind.resource, state))
		case place < w.places[kind.resource]:
			wrong = append(wrong, fmt.Sprintf("%s are those of moment %d after those of moment %d", kind.resource, place, w.places[kind.resource]))
		default:
			w.places[kind.resource] = place
			w.seen.oldest = max(w.seen.oldest, old)
		}
	}
	if len(wrong) > 0 {
		w.seen.wrong = append(w.seen.wrong, strings.Join(wrong, "; "))
	}
}

// take returns the observations and resets them.
func (w *watcher) take() sightings {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = sightings{}
	return seen
}
