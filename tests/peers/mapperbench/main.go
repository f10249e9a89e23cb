// Mapperbench measures lookups in statsd_exporter's mapper in nanoseconds: one line for each case of benches/compare,
// `name value`. The first argument is the number of rules.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"github.com/prometheus/statsd_exporter/pkg/mappercache/lru"
)

// The default cache of statsd_exporter.
const cacheSize = 1000

func newMapper(rules int, matchType, pattern string, cached bool) *mapper.MetricMapper {
	var config strings.Builder
	fmt.Fprintf(&config, "defaults: {match_type: %s}\nmappings:\n", matchType)
	for rule := range rules {
		match := strings.ReplaceAll(pattern, "N", strconv.Itoa(rule))
		fmt.Fprintf(&config, "- {match: '%s', name: metric_single, labels: {name: $1}}\n", match)
	}
	m := &mapper.MetricMapper{}
	if cached {
		cache, err := lru.NewMetricMapperLRUCache(prometheus.NewRegistry(), cacheSize)
		if err != nil {
			panic(err)
		}
		m.UseCache(cache)
	}
	if err := m.InitFromYAMLString(config.String()); err != nil {
		panic(err)
	}
	return m
}

func report(name string, m *mapper.MetricMapper, metric string) {
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			m.GetMapping(metric, mapper.MetricTypeCounter)
		}
	})
	fmt.Printf("%s %.1f\n", name, float64(result.T.Nanoseconds())/float64(result.N))
}

func main() {
	rules, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	hit := fmt.Sprintf("metric%d.some_name", rules/2)
	last := fmt.Sprintf("metric%d.some_name", rules-1)
	cached := newMapper(rules, "glob", "metricN.*", true)
	report("glob-hit-cached", cached, hit)
	report("glob-miss-cached", cached, "unknown.some_name")
	plain := newMapper(rules, "glob", "metricN.*", false)
	report("glob-hit", plain, hit)
	report("glob-miss", plain, "unknown.some_name")
	report("regex-last", newMapper(rules, "regex", `metricN\.([^.]*)`, false), last)
}
