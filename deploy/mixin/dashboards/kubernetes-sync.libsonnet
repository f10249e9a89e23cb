// What kstatd knows of the cluster, how old it is, and what keeps it from knowing more.
local g = import '../grafana.libsonnet';
local common = import 'common.libsonnet';
local exposed = common.exposed;
local here = common.here;
local present = common.present;

function(config) g.dashboard(
  config,
  'kubernetes-sync',
  'Kubernetes sync',
  'Lists and watches by kind: age, objects, events, failures.',
  common.variables(config),
  [
    g.row('Age'),
    g.table('Last heard, by kind', 'sort_desc(max by (resource, namespace) (time() - (%s)))' % present('kstatd_kubernetes_last_heard_timestamp_seconds{%s}'), unit='s', description='Each kind is heard of about once a minute; an empty namespace is all.'),
    g.table('Last complete, by kind', 'sort_desc(max by (resource, namespace) (time() - (kstatd_kubernetes_last_list_success_timestamp_seconds{%s} > 0)))' % here, unit='s', description='How long ago the state of a kind was last complete. Watches go on from there, so it may be long ago.'),
    g.table('Kinds that are not complete', 'min by (resource, namespace) (%s) == 0 or vector(0)' % present('kstatd_kubernetes_synced{%s}')),
    g.plot('Age of the data by kind', [g.query('max by (resource, namespace) (time() - (%s))' % present('kstatd_kubernetes_last_heard_timestamp_seconds{%s}'), '{{resource}} {{namespace}}')], unit='s', height=10),
    g.row('Failures'),
    g.plot('Failed lists and watches by reason', [g.query('sum by (reason) (rate(kstatd_kubernetes_errors_total{%s}[5m])) or vector(0)' % here, '{{reason}}')], unit='ops'),
    g.plot('Failed lists and watches by kind', [g.query('topk(10, sum by (resource, namespace) (rate(kstatd_kubernetes_errors_total{%s}[5m]))) or vector(0)' % here, '{{resource}} {{namespace}}')], unit='ops'),
    g.table('Kinds that are refused', 'sum by (resource, namespace, reason) (increase(kstatd_kubernetes_errors_total{%s,reason=~"forbidden|unauthorized|not_found"}[10m])) > 0 or vector(0)' % here, description='`kstatd rbac` prints the roles that its flags need. not_found: the API server does not have the kind, for example because it is older.'),
    g.plot('Objects left out', [
      g.query('sum by (resource) (%s)' % exposed('increase(kstatd_kubernetes_malformed_objects_total{%s}[5m])'), 'cannot be read: {{resource}}'),
      g.query('sum by (resource) (%s)' % exposed('increase(kstatd_kubernetes_oversized_objects_total{%s}[5m])'), 'too many series: {{resource}}'),
    ]),
    g.plot('Lists and watches begun', [
      g.query('sum by (result) (rate(kube_state_metrics_list_total{%s}[5m])) or vector(0)' % here, 'list: {{result}}'),
      g.query('sum by (result) (rate(kube_state_metrics_watch_total{%s}[5m]))' % here, 'watch: {{result}}'),
    ], unit='ops'),
    g.plot('Started again after a fault of kstatd', [g.query('sum by (resource) (increase(kstatd_kubernetes_restarts_total{%s}[1h])) or vector(0)' % here, '{{resource}}')]),
    g.row('What comes'),
    g.plot('Events by kind', [g.query('topk(15, sum by (resource) (%s))' % exposed('rate(kstatd_kubernetes_events_total{%s,type!="bookmark"}[5m])'), '{{resource}}')], unit='ops'),
    g.plot('Events by type', [g.query('sum by (type) (%s)' % exposed('rate(kstatd_kubernetes_events_total{%s}[5m])'), '{{type}}')], unit='ops'),
    g.plot('Bytes received by kind', [g.query('topk(10, sum by (resource) (rate(kstatd_kubernetes_received_bytes_total{%s}[5m])))' % here, '{{resource}}')], unit='Bps'),
    g.plot('Objects by kind', [g.query('topk(15, sum by (resource) (%s))' % exposed('kstatd_kubernetes_objects{%s}'), '{{resource}}')]),
    g.row('Configuration and shards'),
    g.plot('Configuration in force', [g.query('min by (type, filename) (kube_state_metrics_last_config_reload_successful{%s}) or vector(1)' % here, '{{type}} {{filename}}')], description='1: what is served is what the file says.'),
    g.plot('Shards', [
      g.query('count(count by (shard_ordinal) (kube_state_metrics_shard_ordinal{%s}))' % here, 'there'),
      g.query('max(kube_state_metrics_total_shards{%s})' % here, 'in all'),
    ]),
    g.plot('Definitions of custom resources', [g.query('max by (instance) (kube_state_metrics_custom_resource_state_cache{%s})' % here, '{{instance}}')]),
    g.plot('Values of custom resources without a series', [g.query('sum by (resource, family, reason) (%s) or vector(0)' % exposed('rate(kstatd_custom_resource_value_errors_total{%s}[5m])'), '{{resource}} {{family}} {{reason}}')], unit='ops'),
  ],
)
