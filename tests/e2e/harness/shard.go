package harness

import (
	"context"
	"hash/fnv"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShardOfPods are the sorted names of the namespace's pods that belong to a shard: the jump consistent hash (Lamping,
// Veach) of the FNV-1a hash of the UID.
func (c *Cluster) ShardOfPods(namespace string, shard, total int) []string {
	c.t.Helper()
	pods, err := c.Typed.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, pod := range pods.Items {
		hash := fnv.New64a()
		hash.Write([]byte(pod.UID))
		if jump(hash.Sum64(), total) == shard {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return names
}

func jump(key uint64, buckets int) int {
	b, j := int64(-1), int64(0)
	for j < int64(buckets) {
		b = j
		key = key*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(int64(1)<<31) / float64((key>>33)+1)))
	}
	return int(b)
}
