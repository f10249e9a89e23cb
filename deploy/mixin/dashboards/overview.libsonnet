// Is it well, and if not, on which page to look.
local g = import '../grafana.libsonnet';
local common = import 'common.libsonnet';
local exposed = common.exposed;
local here = common.here;
local present = common.present;

function(config) g.dashboard(
  config,
  'overview',
  'Overview',
  'Whether kstatd is well; the other pages say why not.',
  common.variables(config),
  [
    g.number('Targets up', 'sum(up{%s})' % here, thresholds=[1], lowIsBad=true),
    g.number('Not ready', 'count(kstatd_ready{%s} == 0) or vector(0)' % here, thresholds=[1]),
    g.number('Oldest data', 'max(time() - (%s))' % present('kstatd_kubernetes_last_heard_timestamp_seconds{%s}'), unit='s', thresholds=[60, config.staleSeconds], description='How long ago the API server was last heard of the kind that is behind most.'),
    g.number('Errors of lists and watches in 10 min', 'sum(increase(kstatd_kubernetes_errors_total{%s,reason!="not_found"}[10m])) or vector(0)' % here, thresholds=[1, 50], description='Without kinds that the API server does not have.'),
    g.number('Datagrams lost a second', 'sum(rate(statsd_exporter_udp_packet_drops_total{%s}[5m]))' % here, thresholds=[0.01, 10]),
    g.number('Samples refused a second', 'sum(%s)' % exposed('rate(kstatd_statsd_samples_total{%s,outcome!~"accepted|dropped_by_rule|no_event"}[5m])'), thresholds=[0.01, 10]),
    g.number('Objects', 'sum(%s)' % exposed('kstatd_kubernetes_objects{%s}')),
    g.number('Kubernetes series', 'sum(%s)' % exposed('kstatd_kubernetes_series{%s}')),
    g.number('StatsD series', 'sum(%s)' % exposed('kstatd_statsd_series{%s}')),
    g.number('StatsD lines a second', 'sum(%s)' % exposed('rate(kstatd_statsd_lines_total{%s}[5m])')),
    g.number('Memory', 'sum(process_resident_memory_bytes{%s})' % here, unit='bytes'),
    g.number('CPU', 'sum(rate(process_cpu_seconds_total{%s}[5m]))' % here, unit='percentunit'),
    g.plot('Events by kind', [g.query('topk(10, sum by (resource) (%s))' % exposed('rate(kstatd_kubernetes_events_total{%s,type!="bookmark"}[5m])'), '{{resource}}')], unit='ops'),
    g.plot('Age of the data by kind', [g.query('topk(10, max by (resource) (time() - (%s)))' % present('kstatd_kubernetes_last_heard_timestamp_seconds{%s}'), '{{resource}}')], unit='s', description='Each kind is heard of about once a minute.'),
    g.plot('StatsD lines by listener', [g.query('sum by (listener) (%s)' % exposed('rate(kstatd_statsd_lines_total{%s}[5m])'), '{{listener}}')], unit='ops'),
    g.plot('Failures', [
      g.query('sum by (reason) (rate(kstatd_kubernetes_errors_total{%s,reason!="not_found"}[5m])) or vector(0)' % here, 'list or watch: {{reason}}'),
      g.query('sum by (outcome) (%s) > 0 or vector(0)' % exposed('rate(kstatd_statsd_samples_total{%s,outcome!~"accepted|dropped_by_rule|no_event"}[5m])'), 'sample: {{outcome}}'),
    ], unit='ops'),
    g.plot('Time of a scrape', [g.query('scrape_duration_seconds{%s}' % here, '{{instance}} {{shard}}')], unit='s'),
    g.plot('Samples of a scrape', [g.query('scrape_samples_scraped{%s}' % here, '{{instance}} {{shard}}')]),
    g.table('Versions', 'count by (version, revision, goarch) (kstatd_build_info{%(here)s} or kube_state_metrics_build_info{%(here)s} or statsd_exporter_build_info{%(here)s})' % { here: here }, height=6),
    g.table('Alerts that fire', 'count by (alertname, severity, job, instance) (ALERTS{alertstate="firing",alertname=~"Kstatd.*"}) or vector(0)', height=6),
  ],
)
