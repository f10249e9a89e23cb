package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"kstatd/e2e/harness"
)

// TestPrometheusNeverFailsAtTheBudget explodes a label while a real Prometheus scrapes with the budget of all series
// as its sample_limit, and Prometheus' own client reads the report that names the label.
func TestPrometheusNeverFailsAtTheBudget(t *testing.T) {
	harness.NotInSelfCheck(t)
	const budget = 3_000
	server := harness.StartStatsd(t, harness.KstatdRun(t), "", fmt.Sprintf("--limit.series=%d", budget), "--limit.series-per-metric=2000", "--limit.values-per-label=1000")
	p := startPrometheusWith(t, "1s", fmt.Sprintf(
		"- {job_name: budget, sample_limit: %d, static_configs: [{targets: ['%s']}]}\n", budget, strings.TrimPrefix(server.Base, "http://")))
	// Each round waits for a scrape with its series.
	sent := 0
	for range 6 {
		var urls, others strings.Builder
		for range 5_000 {
			fmt.Fprintf(&urls, "http.requests:1|c|#code:%d,url:/websocket?appliance=%d\n", 200+sent%3, sent)
			fmt.Fprintf(&others, "took:%d|ms|#user:u%d\nname%d:1|c\n", sent%100, sent, sent)
			sent++
		}
		// Metrics lose other labels only after all series are used up.
		server.SendTCP(urls.String() + others.String())
		p.waitQuery(`sum(http_requests{job="budget"})`, fmt.Sprint(sent))
		promtool(t, server.Base+"/metrics")
	}
	for code := range 3 {
		p.waitQuery(fmt.Sprintf(`sum(http_requests{job="budget",code="%d"})`, 200+code), fmt.Sprint(sent/3))
	}
	p.waitQuery(`min(min_over_time(up{job="budget"}[10m]))`, "1")
	p.waitQuery(fmt.Sprintf(`max(max_over_time(scrape_samples_scraped{job="budget"}[10m])) <= bool %d`, budget), "1")
	p.waitQuery(fmt.Sprintf(`max(max_over_time(scrape_samples_scraped{job="budget"}[10m])) > bool %d`, budget*9/10), "1")

	client, err := api.NewClient(api.Config{Address: server.Base})
	if err != nil {
		t.Fatal(err)
	}
	report, err := prometheusv1.NewAPI(client).TSDB(context.Background(), prometheusv1.WithLimit(5))
	if err != nil {
		t.Fatal(err)
	}
	if report.HeadStats.NumSeries < budget*9/10 || report.HeadStats.NumSeries > budget {
		t.Errorf("%d series of %d", report.HeadStats.NumSeries, budget)
	}
	find := func(list []prometheusv1.Stat, name string) uint64 {
		for _, stat := range list {
			if stat.Name == name {
				return stat.Value
			}
		}
		t.Errorf("no %s in %v", name, list)
		return 0
	}
	if series := find(report.SeriesCountByMetricName, "http_requests"); series < 1_000 || series > 2_000 {
		t.Errorf("%d series of http_requests", series)
	}
	// The budget, and the value for all others.
	if values := find(report.LabelValueCountByLabelName, "url"); values < 950 || values > 1_050 {
		t.Errorf("%d values of url", values)
	}
	if bytes := find(report.MemoryInBytesByLabelName, "url"); bytes < 20_000 {
		t.Errorf("%d bytes of url", bytes)
	}
	find(report.SeriesCountByLabelValuePair, "code=200")
}
