package e2e

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"net/url"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kstatd/e2e/harness"
)

// TestServerSideSharding checks docs/decisions/server-side-sharding.md with the feature enabled: the server's shards are
// ranges of the FNV-1a hash of the UID, the objects of one of kube-state-metrics' shards need about as many ranges as
// they are objects, and kstatd's shards are unaffected.
func TestServerSideSharding(t *testing.T) {
	const namespace, count, shards = "ranges", 200, 2
	cluster := harness.StartCluster(t, "--feature-gates=ShardedListAndWatch=true")
	for i := range count {
		cluster.Create("pods", harness.Object(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: pod-%03d, namespace: %s}
spec: {containers: [{name: c, image: i}]}
`, i, namespace)))
	}
	list := func(selector string) []corev1.Pod {
		var pods corev1.PodList
		request := cluster.Typed.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/" + namespace + "/pods")
		if selector != "" {
			request = request.Param("shardSelector", selector)
		}
		if err := request.Do(context.Background()).Into(&pods); err != nil {
			t.Fatalf("%s: %v", url.QueryEscape(selector), err)
		}
		return pods.Items
	}
	hash := func(pod corev1.Pod) uint64 {
		sum := fnv.New64a()
		sum.Write([]byte(pod.UID))
		return sum.Sum64()
	}
	all := list("")
	if len(all) != count {
		t.Fatalf("%d pods", len(all))
	}
	const middle = uint64(math.MaxUint64/2 + 1)
	for _, lower := range []bool{true, false} {
		selector := "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
		if !lower {
			selector = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
		}
		var want, got []string
		for _, pod := range all {
			if (hash(pod) < middle) == lower {
				want = append(want, pod.Name)
			}
		}
		for _, pod := range list(selector) {
			got = append(got, pod.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d pods, %d have such a hash", selector, len(got), len(want))
		}
	}

	slices.SortFunc(all, func(a, b corev1.Pod) int {
		if hash(a) < hash(b) {
			return -1
		}
		return 1
	})
	first := cluster.ShardOfPods(namespace, 0, shards)
	ranges, inside := 0, false
	for _, pod := range all {
		_, found := slices.BinarySearch(first, pod.Name)
		if found && !inside {
			ranges++
		}
		inside = found
	}
	if ranges < len(first)/4 {
		t.Errorf("the %d pods of a shard lie in %d ranges of the hash, so the server could filter them", len(first), ranges)
	}

	for shard := range shards {
		exporter := harness.StartKubeExporter(t, harness.OurKubeStateMetrics(t), "--kubeconfig="+cluster.Kubeconfig,
			"--resources=pods", fmt.Sprintf("--shard=%d", shard), fmt.Sprintf("--total-shards=%d", shards))
		want := cluster.ShardOfPods(namespace, shard, shards)
		harness.Eventually(t, fmt.Sprintf("shard %d shows its pods", shard), func() error {
			shown, err := podsShown(exporter.Base, namespace)
			slices.Sort(shown)
			if err == nil && !slices.Equal(shown, want) {
				err = fmt.Errorf("%d pods shown, %d belong to it", len(shown), len(want))
			}
			return err
		})
	}
}
