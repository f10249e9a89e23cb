// The files below rendered/, for render.sh.
local mixin = import 'mixin.libsonnet';
local note = '# Rendered from deploy/mixin by render.sh.\n';
local yaml(value) = note + std.manifestYamlDoc(value, indent_array_in_object=false, quote_keys=false) + '\n';

{
  'alerts.yaml': yaml(mixin.prometheusAlerts),
  'rules.yaml': yaml(mixin.prometheusRules),
  'prometheus-rule.yaml': yaml({
    apiVersion: 'monitoring.coreos.com/v1',
    kind: 'PrometheusRule',
    metadata: { name: 'kstatd', labels: { 'app.kubernetes.io/name': 'kstatd' } },
    spec: mixin.prometheusAlerts,
  }),
} + {
  ['dashboards/' + name]: std.manifestJsonEx(mixin.grafanaDashboards[name], '  ') + '\n'
  for name in std.objectFields(mixin.grafanaDashboards)
}
