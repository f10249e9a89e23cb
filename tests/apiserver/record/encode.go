package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"log"
	"reflect"
	"sort"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// recording is the content of the file: this as a line of JSON, and after it the chunks of each unit.
type recording struct {
	// Seconds at which each of the three rollouts started, and of the end.
	Starts []int64 `json:"starts"`
	End    int64   `json:"end"`
	Units  []*unit `json:"units"`
}

// unit is what is replayed as a whole: a workload, a node or a namespace.
type unit struct {
	Kind string `json:"kind"`
	// How many of this unit there are in relation to others.
	Weight  int            `json:"weight"`
	Pods    int32          `json:"pods"`
	Tokens  []token        `json:"tokens"`
	Objects []objectRecord `json:"objects"`
	States  []stateRecord  `json:"states"`
	// The states of the objects that exist at the end of the rollout.
	Present []int `json:"present"`
	// Events of the rollout in their order, each the type and the state.
	Events []eventRecord `json:"events"`
	// Lengths of the chunks.
	Chunks []int `json:"chunks"`

	tokens *tokens
	bytes  [][]byte
	known  map[string]int
	// Numbers of objects and states.
	numbers map[string]int
	states  map[string]int
}

type objectRecord struct {
	Resource  string `json:"resource"`
	Role      role   `json:"role"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// The label `app`.
	App string `json:"app,omitempty"`
}

// stateRecord is one state of an object: a protobuf message of these chunks.
type stateRecord struct {
	Object int `json:"object"`
	// Node and phase of a pod.
	Node  string `json:"node,omitempty"`
	Phase string `json:"phase,omitempty"`
	// The fields of `metadata`.
	Metadata []int `json:"metadata"`
	// The other fields of the object, with their tags.
	Rest []int `json:"rest"`
}

type eventRecord struct {
	Type  apiwatch.EventType `json:"type"`
	State int                `json:"state"`
}

func newUnit(kind string, weight int) *unit {
	return &unit{Kind: kind, Weight: weight, Tokens: []token{}, Events: []eventRecord{}, tokens: newTokens(), known: map[string]int{},
		numbers: map[string]int{}, states: map[string]int{}}
}

func newRecording(workloads []*workload, starts []time.Time, watcher *watcher) *recording {
	r := &recording{End: time.Now().Unix() + 1}
	for _, start := range starts {
		r.Starts = append(r.Starts, start.Unix())
	}
	history, rollout, present := watcher.since(0), watcher.since(watcher.marks[2]), watcher.present()
	for _, workload := range workloads {
		r.Units = append(r.Units, workloadUnit(workload, history, rollout, present))
	}
	ofNamespace := newUnit("namespace", 1)
	ofNamespace.tokens.hold("", namespaceCode, "namespace", permanent, 0, 5)
	var others []string
	for key, object := range present {
		switch {
		case strings.HasPrefix(key, "nodes/"):
			unit := newUnit("node", 1)
			// A node unit is about itself.
			name := object.GetName()
			for number := range nodes {
				if nodeName(number) == name {
					short, _, _ := strings.Cut(name, ".")
					unit.tokens.hold("", nodeIP(number), "node ip", permanent, 0, len("10.100.100.100"))
					unit.tokens.hold("", short, "node name", permanent, 0, len("ip-10-100-100-100"))
				}
			}
			unit.tokens.holdPermanent(object)
			unit.Present = []int{unit.add("nodes", permanent, object)}
			r.Units = append(r.Units, unit)
		case key == "namespaces/"+namespace || object.GetNamespace() == namespace && !strings.Contains(key, "-zqx"):
			others = append(others, key)
		}
	}
	sort.Strings(others)
	for _, key := range others {
		ofNamespace.tokens.holdPermanent(present[key])
	}
	for _, key := range others {
		resource, _, _ := strings.Cut(key, "/")
		ofNamespace.Present = append(ofNamespace.Present, ofNamespace.add(resource, permanent, present[key]))
	}
	r.Units = append(r.Units, ofNamespace)
	for _, unit := range r.Units {
		unit.finish()
	}
	return r
}

func workloadUnit(w *workload, history, rollout []event, present map[string]metav1.Object) *unit {
	u := newUnit("workload", 24/w.containers)
	u.Pods = w.replicas()
	u.tokens.holdWorkload(w)
	u.tokens.holdNodes()
	belongs := func(event event) bool { return strings.Contains(event.object.GetName(), w.code) }
	roles, pods := map[string]role{}, map[string]int{}
	counts := map[role]int{}
	for _, event := range history {
		if !belongs(event) {
			continue
		}
		switch object := event.object.(type) {
		case *appsv1.ReplicaSet:
			if roles[object.Name] == permanent {
				roles[object.Name] = previous + role(len(roles))
			}
			u.tokens.holdReplicaSet(object, roles[object.Name])
		case *v1.Pod:
			role := roles[metav1.GetControllerOf(object).Name]
			if _, known := pods[object.Name]; !known {
				pods[object.Name] = counts[role]
				counts[role]++
			}
			u.tokens.holdPod(object, role, pods[object.Name])
		default:
			u.tokens.holdPermanent(object)
		}
	}
	if len(roles) != 3 || counts[current] != int(u.Pods) || counts[next] != int(u.Pods) {
		log.Fatalf("%s: %d revisions, pods %v instead of %d", w.name, len(roles), counts, u.Pods)
	}
	roleOf := func(object metav1.Object) role {
		switch object := object.(type) {
		case *appsv1.ReplicaSet:
			return roles[object.Name]
		case *v1.Pod:
			return roles[metav1.GetControllerOf(object).Name]
		}
		return permanent
	}
	var keys []string
	for key, object := range present {
		if belongs(event{object: object}) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	for _, event := range rollout {
		if belongs(event) {
			u.Events = append(u.Events, eventRecord{event.kind, u.add(event.resource, roleOf(event.object), event.object)})
		}
	}
	for _, key := range keys {
		resource, _, _ := strings.Cut(key, "/")
		u.Present = append(u.Present, u.add(resource, roleOf(present[key]), present[key]))
	}
	return u
}

// add adds a state of an object and returns its number.
func (u *unit) add(resource string, role role, object metav1.Object) int {
	key := resource + "/" + object.GetName()
	number, known := u.numbers[key]
	if !known {
		number = len(u.Objects)
		u.numbers[key] = number
		record := objectRecord{resource, role, u.tokens.replace(object.GetNamespace()), u.tokens.replace(object.GetName()),
			u.tokens.replace(object.GetLabels()["app"])}
		u.Objects = append(u.Objects, record)
	}
	message := u.message(object)
	if state, known := u.states[key+string(message)]; known {
		return state
	}
	state := stateRecord{Object: number, Metadata: []int{}, Rest: []int{}}
	if pod, ok := object.(*v1.Pod); ok {
		state.Node, state.Phase = u.tokens.replace(pod.Spec.NodeName), string(pod.Status.Phase)
	}
	for _, field := range fieldsOf(message) {
		if field.tag != 1 {
			state.Rest = append(state.Rest, u.chunk(field.whole))
			continue
		}
		for _, part := range fieldsOf(field.content) {
			state.Metadata = append(state.Metadata, u.chunk(part.whole))
		}
	}
	u.States = append(u.States, state)
	u.states[key+string(message)] = len(u.States) - 1
	return len(u.States) - 1
}

// message returns the protobuf message of an object in which tokens hold the places of what differs.
func (u *unit) message(object metav1.Object) []byte {
	text, err := json.Marshal(object)
	check(err)
	held := reflect.New(reflect.TypeOf(object).Elem()).Interface().(metav1.Object)
	check(json.Unmarshal([]byte(u.tokens.replace(string(text))), held))
	held.SetResourceVersion(u.tokens.version())
	message, err := held.(interface{ Marshal() ([]byte, error) }).Marshal()
	check(err)
	return message
}

func (u *unit) chunk(content []byte) int {
	number, known := u.known[string(content)]
	if !known {
		number = len(u.bytes)
		u.known[string(content)] = number
		u.bytes = append(u.bytes, content)
	}
	return number
}

// finish sorts the chunks by their content: gzip finds repetitions in the last 32 kB only.
func (u *unit) finish() {
	u.Tokens = u.tokens.list
	if len(u.Tokens) > 1000 {
		log.Fatalf("%d tokens do not fit three digits", len(u.Tokens))
	}
	order := make([]int, len(u.bytes))
	for at := range order {
		order[at] = at
	}
	sort.Slice(order, func(a, b int) bool {
		first, second := fieldsOf(u.bytes[order[a]])[0], fieldsOf(u.bytes[order[b]])[0]
		if first.tag != second.tag {
			return first.tag < second.tag
		}
		return bytes.Compare(first.content, second.content) < 0
	})
	places, sorted := make([]int, len(order)), make([][]byte, len(order))
	for place, at := range order {
		places[at], sorted[place] = place, u.bytes[at]
		u.Chunks = append(u.Chunks, len(u.bytes[at]))
	}
	u.bytes = sorted
	for _, state := range u.States {
		for _, chunks := range [][]int{state.Metadata, state.Rest} {
			for at, chunk := range chunks {
				chunks[at] = places[chunk]
			}
		}
	}
}

type field struct {
	tag            uint64
	whole, content []byte
}

// fieldsOf splits a message into its fields. All are varints or have a length.
func fieldsOf(message []byte) []field {
	var all []field
	for len(message) > 0 {
		key, at := binary.Uvarint(message)
		value, len := binary.Uvarint(message[at:])
		end := at + len
		switch key & 7 {
		case 0:
		case 2:
			end += int(value)
		default:
			log.Fatalf("wire type %d", key&7)
		}
		all = append(all, field{key >> 3, message[:end], message[at+len : end]})
		message = message[end:]
	}
	return all
}

func encode(r *recording) []byte {
	var file bytes.Buffer
	writer, err := gzip.NewWriterLevel(&file, gzip.BestCompression)
	check(err)
	check(json.NewEncoder(writer).Encode(r))
	for _, unit := range r.Units {
		for _, chunk := range unit.bytes {
			_, err := writer.Write(chunk)
			check(err)
		}
	}
	check(writer.Close())
	return file.Bytes()
}
