// Where StatsD lines come in, what becomes of them, and where they are lost.
local g = import '../grafana.libsonnet';
local common = import 'common.libsonnet';
local exposed = common.exposed;
local here = common.here;

function(config) g.dashboard(
  config,
  'statsd-ingest',
  'StatsD ingest',
  'Lines, samples and events: received, mapped, refused, lost.',
  common.variables(config),
  [
    g.row('Received'),
    g.plot('Lines by listener and outcome', [g.query('sum by (listener, outcome) (%s) > 0 or sum by (listener, outcome) (%s)' % [exposed('rate(kstatd_statsd_lines_total{%s}[5m])'), exposed('rate(kstatd_statsd_lines_total{%s,listener="udp"}[5m])')], '{{listener}} {{outcome}}')], unit='ops'),
    g.plot('Datagrams', [
      g.query('sum(rate(statsd_exporter_udp_packets_total{%s}[5m]))' % here, 'UDP'),
      g.query('sum(rate(statsd_exporter_unixgram_packets_total{%s}[5m]))' % here, 'Unix'),
    ], unit='ops'),
    g.plot('Datagrams lost', [
      g.query('sum by (listener, socket) (rate(kstatd_statsd_kernel_drops_total{%s}[5m]))' % here, 'receive buffer full: {{listener}} {{socket}}'),
      g.query('sum by (listener) (rate(kstatd_statsd_truncated_datagrams_total{%s}[5m])) > 0' % here + ' or vector(0)', 'too long: {{listener}}'),
    ], unit='ops'),
    g.plot('Receive buffers', [g.query('max by (listener) (kstatd_statsd_receive_buffer_bytes{%s})' % here, '{{listener}}')], unit='bytes', description='What the kernel gave. It is at most net.core.rmem_max, unless the process has CAP_NET_ADMIN.'),
    g.plot('TCP connections', [
      g.query('sum(kstatd_statsd_tcp_open_connections{%s})' % here, 'open'),
      g.query('sum by (reason) (increase(kstatd_statsd_tcp_closed_connections_total{%s}[5m]))' % here, 'closed from this side: {{reason}}'),
    ]),
    g.plot('Faults of listeners', [
      g.query('sum by (listener) (increase(kstatd_statsd_read_errors_total{%s}[5m]))' % here, 'reads: {{listener}}'),
      g.query('sum(increase(kstatd_statsd_accept_errors_total{%s}[5m]))' % here, 'accepts'),
      g.query('sum(increase(statsd_exporter_tcp_connection_errors_total{%s}[5m]))' % here, 'TCP connections'),
      g.query('sum(increase(statsd_exporter_tcp_too_long_lines_total{%s}[5m]))' % here, 'TCP lines too long'),
      g.query('sum by (thread) (increase(kstatd_statsd_thread_restarts_total{%s}[5m]))' % here, 'threads: {{thread}}'),
    ]),
    g.row('Understood'),
    g.plot('Samples refused, by outcome', [g.query('sum by (outcome) (%s) > 0 or vector(0)' % exposed('rate(kstatd_statsd_samples_total{%s,outcome!~"accepted|dropped_by_rule|no_event"}[5m])'), '{{outcome}}')], unit='ops'),
    g.plot('Samples accepted', [g.query('sum by (outcome) (%s)' % exposed('rate(kstatd_statsd_samples_total{%s,outcome=~"accepted|dropped_by_rule|no_event"}[5m])'), '{{outcome}}')], unit='ops'),
    g.plot('Lines and samples refused by the parser', [
      g.query('sum by (reason) (%s) or vector(0)' % exposed('rate(statsd_exporter_sample_errors_total{%s}[5m])'), '{{reason}}'),
      g.query('sum(%s)' % exposed('rate(statsd_exporter_tag_errors_total{%s}[5m])'), 'tags'),
    ], unit='ops'),
    g.table('Conflicts by metric', 'topk(20, sum by (metric_name, type) (%s)) or vector(0)' % exposed('increase(statsd_exporter_events_conflict_total{%s}[1h])')),
    g.row('Mapped'),
    g.plot('Events', [
      g.query('sum by (action) (%s) or vector(0)' % exposed('rate(statsd_exporter_events_actions_total{%s}[5m])'), 'rule: {{action}}'),
      g.query('sum(%s)' % exposed('rate(statsd_exporter_events_unmapped_total{%s}[5m])'), 'no rule'),
    ], unit='ops', stacked=true),
    g.plot('Share of events without a rule', [g.query('sum by (instance) (rate(statsd_exporter_events_unmapped_total{%s}[5m])) / sum by (instance) (rate(statsd_exporter_events_total{%s}[5m]))' % [here, here], '{{instance}}')], unit='percentunit'),
    g.plot('Hits by rule', [g.query('topk(15, sum by (rule) (%s)) or vector(0)' % exposed('rate(kstatd_statsd_rule_hits_total{%s}[5m])'), '{{rule}}')], unit='ops'),
    g.table('Rules that never matched', 'sum by (rule) (%s) == 0' % exposed('kstatd_statsd_rule_hits_total{%s}') + ' or vector(0)'),
    g.plot('Rules loaded', [g.query('max by (instance) (statsd_exporter_loaded_mappings{%s})' % here, '{{instance}}')]),
    g.plot('Reloads', [g.query('sum by (outcome) (increase(statsd_exporter_config_reloads_total{%s}[5m])) or vector(0)' % here, '{{outcome}}')]),
    g.plot('Known lines', [
      g.query('sum(rate(statsd_metric_mapper_cache_hits_total{%s}[5m])) / sum(rate(statsd_metric_mapper_cache_gets_total{%s}[5m]))' % [here, here], 'share of known names'),
    ], unit='percentunit'),
    g.plot('Relay', [
      g.query('sum by (target) (rate(statsd_exporter_relay_lines_relayed_total{%s}[5m])) or vector(0)' % here, 'sent to {{target}}'),
      g.query('sum(rate(kstatd_statsd_relay_dropped_lines_total{%s}[5m])) or vector(0)' % here, 'not sent'),
    ], unit='ops'),
  ],
)
