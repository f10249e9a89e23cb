// What scrapes cost, who makes them, and what the process uses.
local g = import '../grafana.libsonnet';
local common = import 'common.libsonnet';
local here = common.here;

function(config) g.dashboard(
  config,
  'scrapes-and-resources',
  'Scrapes and resources',
  'Time and size of scrapes; CPU, memory, files and connections of the process.',
  common.variables(config),
  [
    g.row('Scrapes'),
    g.plot('Time of a scrape, as Prometheus sees it', [g.query('scrape_duration_seconds{%s}' % here, '{{instance}} {{shard}}')], unit='s'),
    g.plot('Time of an answer, as kstatd sees it', [
      g.query('histogram_quantile(0.5, sum by (le) (rate(http_request_duration_seconds_bucket{%s,handler="metrics"}[5m])))' % here, 'half'),
      g.query('histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket{%s,handler="metrics"}[5m])))' % here, '99%'),
    ], unit='s'),
    g.plot('Answers a second', [g.query('sum by (instance, method) (rate(http_request_duration_seconds_count{%s}[5m]))' % here, '{{instance}} {{method}}')], unit='ops'),
    g.plot('Samples of a scrape', [g.query('scrape_samples_scraped{%s}' % here, '{{instance}} {{shard}}')]),
    g.plot('Targets', [g.query('up{%s}' % here, '{{instance}} {{shard}}')]),
    g.plot('HTTP connections', [
      g.query('sum by (instance) (kstatd_http_connections{%s})' % here, 'open: {{instance}}'),
      g.query('sum(increase(kstatd_http_connections_closed_for_another_total{%s}[5m]))' % here, 'closed for another'),
      g.query('sum(increase(kstatd_http_connections_refused_total{%s}[5m]))' % here, 'refused'),
    ]),
    g.row('Process'),
    g.plot('CPU', [g.query('rate(process_cpu_seconds_total{%s}[5m])' % here, '{{instance}}')], unit='percentunit'),
    g.plot('Memory', [g.query('process_resident_memory_bytes{%s}' % here, '{{instance}}')], unit='bytes'),
    g.plot('Open files', [
      g.query('process_open_fds{%s}' % here, '{{instance}}'),
      g.query('process_max_fds{%s}' % here, 'limit: {{instance}}'),
    ]),
    g.plot('Network', [
      g.query('rate(process_network_receive_bytes_total{%s}[5m])' % here, 'in: {{instance}}'),
      g.query('rate(process_network_transmit_bytes_total{%s}[5m])' % here, 'out: {{instance}}'),
    ], unit='Bps', description="Of the process's network namespace, a pod's own as a rule."),
    g.plot('Age of the process', [g.query('time() - process_start_time_seconds{%s}' % here, '{{instance}}')], unit='s'),
  ],
)
