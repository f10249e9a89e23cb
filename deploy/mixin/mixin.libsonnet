// Alerts and dashboards of kstatd in the form of a Prometheus monitoring mixin: `prometheusAlerts`, `prometheusRules`,
// `grafanaDashboards`,
// and `_config` for what differs between sites.
(import 'config.libsonnet') +
(import 'alerts.libsonnet') +
(import 'rules.libsonnet') +
{
  local config = self._config,
  local dashboards = {
    overview: import 'dashboards/overview.libsonnet',
    'kubernetes-sync': import 'dashboards/kubernetes-sync.libsonnet',
    'statsd-ingest': import 'dashboards/statsd-ingest.libsonnet',
    cardinality: import 'dashboards/cardinality.libsonnet',
    'scrapes-and-resources': import 'dashboards/scrapes-and-resources.libsonnet',
    migration: import 'dashboards/migration.libsonnet',
    node: import 'dashboards/node.libsonnet',
  },

  grafanaDashboards+:: {
    ['kstatd-' + name + '.json']: dashboards[name](config)
    for name in std.objectFields(dashboards)
  },
}
