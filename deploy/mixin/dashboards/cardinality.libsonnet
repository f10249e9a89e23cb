// Where series come from, and what grows.
local g = import '../grafana.libsonnet';
local common = import 'common.libsonnet';
local exposed = common.exposed;
local here = common.here;

function(config) g.dashboard(
  config,
  'cardinality',
  'Cardinality',
  'Series by kind and by StatsD family, and their growth.',
  common.variables(config),
  [
    g.plot('Samples of a scrape', [g.query('scrape_samples_scraped{%s}' % here, '{{instance}} {{shard}}')]),
    g.plot('New series of a scrape', [g.query('scrape_series_added{%s}' % here, '{{instance}} {{shard}}')], description='What Prometheus had not seen in the scrape before: churn.'),
    g.row('Kubernetes'),
    g.plot('Series by kind', [g.query('topk(15, sum by (resource) (%s))' % exposed('kstatd_kubernetes_series{%s}'), '{{resource}}')], stacked=true),
    g.plot('Series of an object', [g.query('topk(15, sum by (resource) (%s) / sum by (resource) (%s))' % [exposed('kstatd_kubernetes_series{%s}'), exposed('kstatd_kubernetes_objects{%s}')], '{{resource}}')]),
    g.table('Growth by kind in 6 hours', 'sort_desc(sum by (resource) (%s))' % exposed('delta(kstatd_kubernetes_series{%s}[6h])')),
    g.table('Series by kind and namespace', 'topk(50, sum by (resource, namespace) (%s))' % exposed('kstatd_kubernetes_series{%s}')),
    g.plot('Bytes of a scrape by kind', [g.query('topk(15, sum by (resource) (%s))' % exposed('kstatd_kubernetes_bytes{%s}'), '{{resource}}')], unit='bytes', stacked=true),
    g.plot('Objects with too many series', [g.query('sum by (resource) (%s)' % exposed('increase(kstatd_kubernetes_oversized_objects_total{%s}[5m])'), '{{resource}}')]),
    g.row('StatsD'),
    g.plot('Series by type', [g.query('sum by (type) (%s)' % exposed('kstatd_statsd_series{%s}'), '{{type}}')], stacked=true),
    g.plot('Series by family', [g.query('topk(15, sum by (family) (%s))' % exposed('kstatd_statsd_family_series{%s}'), '{{family}}')], stacked=true, description='The 50 largest families; the rest is in "other".'),
    g.table('Growth by family in 6 hours', 'sort_desc(sum by (family) (%s))' % exposed('delta(kstatd_statsd_family_series{%s}[6h])')),
    g.plot('Families and label sets made since the start', [g.query('sum by (type) (%s)' % exposed('statsd_exporter_metrics_total{%s}'), '{{type}}')]),
    g.plot('Series that expired', [g.query('sum by (type) (%s)' % exposed('rate(kstatd_statsd_expired_series_total{%s}[5m])'), '{{type}}')], unit='ops'),
    g.plot('Samples refused for a limit', [g.query('sum by (reason) (%s)' % exposed('rate(kstatd_statsd_rejected_samples_total{%s,reason="series_limit"}[5m])'), '{{reason}}')], unit='ops'),
  ],
)
