package main

import (
	"fmt"
	"log"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// role is the place of a revision in a rollout.
type role int

const (
	// Objects that outlive rollouts.
	permanent role = iota
	// The revision before the one that is replaced; its ReplicaSet is deleted.
	previous
	// The revision that is replaced.
	current
	// The new revision.
	next
)

// token is a text that differs between replayed objects. Its place in recorded bytes is held by "~t", three digits for its
// number in the unit, and as many "~" as its width needs.
type token struct {
	Class string `json:"class"`
	Role  role   `json:"role"`
	// Equal for the same object in different revisions.
	Ordinal int `json:"ordinal"`
	Width   int `json:"width"`
}

// tokens are those of one unit.
type tokens struct {
	list         []token
	replacements map[string]string
	replacer     *strings.Replacer
}

func newTokens() *tokens { return &tokens{replacements: map[string]string{}} }

// hold declares a text that differs. With a prefix it is only replaced where the prefix stands before it.
func (t *tokens) hold(prefix, text string, class string, role role, ordinal, width int) {
	key := prefix + text
	if _, known := t.replacements[key]; known || text == "" {
		return
	}
	held := fmt.Sprintf("~t%03d", len(t.list))
	t.list = append(t.list, token{class, role, ordinal, width})
	t.replacements[key] = t.replace(prefix) + held + strings.Repeat("~", width-len(held))
	t.replacer = nil
}

func (t *tokens) replace(text string) string {
	if strings.Contains(text, "~") {
		log.Fatalf("a recorded object contains ~: %.200s", text)
	}
	if t.replacer == nil {
		var keys []string
		for key := range t.replacements {
			keys = append(keys, key)
		}
		// The first that fits wins.
		sort.Slice(keys, func(a, b int) bool {
			return len(keys[a]) > len(keys[b]) || len(keys[a]) == len(keys[b]) && keys[a] < keys[b]
		})
		var pairs []string
		for _, key := range keys {
			pairs = append(pairs, key, t.replacements[key])
		}
		t.replacer = strings.NewReplacer(pairs...)
	}
	return t.replacer.Replace(text)
}

// Ordinals: a pod has a block, revisions and permanent objects have theirs.
const (
	podBlock          = 64
	firstContainer    = 32
	ofRevision        = 1000
	ofPermanentObject = 2000
)

// holdNodes declares names and addresses of nodes.
func (t *tokens) holdNodes() {
	for node := range nodes {
		address := nodeIP(node)
		t.hold("", address, "node ip", permanent, node, len("10.100.100.100"))
		name, _, _ := strings.Cut(nodeName(node), ".")
		t.hold("", name, "node name", permanent, node, len("ip-10-100-100-100"))
	}
}

// holdWorkload declares what differs between two workloads, and between revisions of one.
func (t *tokens) holdWorkload(w *workload) {
	t.hold("", w.code, "instance", permanent, 0, 5)
	t.hold("", namespaceCode, "namespace", permanent, 0, 5)
	for revision := range 3 {
		role := previous + role(revision)
		t.hold("", w.tag(revision), "hex", role, ofRevision, 12)
		t.hold("", w.checksum(revision), "hex", role, ofRevision+1, 64)
		_, digest, _ := strings.Cut(imageID(w.image(revision)), "@sha256:")
		t.hold("", digest, "hex", role, ofRevision+2, 64)
	}
}

// holdReplicaSet declares the hash of a revision.
func (t *tokens) holdReplicaSet(set metav1.Object, role role) {
	t.hold("", set.GetLabels()["pod-template-hash"], "suffix", role, ofRevision+3, 10)
	t.hold("", string(set.GetUID()), "uuid", role, ofRevision+4, 36)
}

// holdPod declares what differs between the pods of a revision. A pod is declared again with each of its states.
func (t *tokens) holdPod(pod *v1.Pod, role role, number int) {
	block := number * podBlock
	t.hold("", string(pod.UID), "uuid", role, block, 36)
	t.holdSuffix(pod.GenerateName, pod.Name, role, block+1)
	t.hold("", pod.Status.PodIP, "ip", role, block+3, len("100.100.100.100"))
	for _, volume := range pod.Spec.Volumes {
		if strings.HasPrefix(volume.Name, "kube-api-access-") {
			t.holdSuffix("kube-api-access-", volume.Name, role, block+2)
		}
	}
	all := append(append([]v1.ContainerStatus(nil), pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
	for at, status := range all {
		t.hold("containerd://", strings.TrimPrefix(status.ContainerID, "containerd://"), "hex", role, block+firstContainer+at, 64)
	}
}

func (t *tokens) holdSuffix(prefix, name string, role role, ordinal int) {
	t.hold(prefix, strings.TrimPrefix(name, prefix), "suffix", role, ordinal, 5)
}

// holdPermanent declares what differs between objects of other kinds.
func (t *tokens) holdPermanent(object metav1.Object) {
	ordinal := ofPermanentObject + len(t.list)
	t.hold("", string(object.GetUID()), "uuid", permanent, ordinal, 36)
	if object.GetGenerateName() != "" {
		t.holdSuffix(object.GetGenerateName(), object.GetName(), permanent, ordinal+1)
	}
	switch object := object.(type) {
	case *v1.Service:
		t.hold("", object.Spec.ClusterIP, "ip", permanent, ordinal, len("10.100.100.100"))
	case *v1.Node:
		t.hold("", strings.TrimPrefix(object.Spec.ProviderID, "aws:///eu-west-1a/i-"), "hex", permanent, ordinal+1, 17)
		t.hold("", object.Status.NodeInfo.MachineID, "hex", permanent, ordinal+2, 32)
		t.hold("", object.Status.NodeInfo.SystemUUID, "uuid", permanent, ordinal+3, 36)
		t.hold("", object.Status.NodeInfo.BootID, "uuid", permanent, ordinal+4, 36)
	}
}

// The version of every object is that of its event.
func (t *tokens) version() string {
	for at, token := range t.list {
		if token.Class == "version" {
			return fmt.Sprintf("~t%03d~~~~", at)
		}
	}
	t.list = append(t.list, token{Class: "version", Width: 9})
	return t.version()
}
