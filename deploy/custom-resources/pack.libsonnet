// The parts that the packs share: their alerts lead to the README of their pack, and their dashboards to one another.
local config = (import '../mixin/config.libsonnet')._config { dashboardTags: ['kstatd', 'custom-resources'] };
local g = import '../mixin/grafana.libsonnet';

function(name, title) {
  alert(name_, severity, hold, expr, summary, description):: {
    alert: name_,
    expr: std.stripChars(expr, '\n'),
    'for': hold,
    labels: { severity: severity },
    annotations: {
      summary: summary,
      description: description,
      runbook_url: '%s/blob/main/deploy/custom-resources/%s/README.md#%s' % [config.home, name, std.asciiLower(name_)],
    },
  },
  alerts(rules):: { groups: [{ name: 'kstatd-' + name, rules: rules }] },
  // Variables besides `cluster` are given as pairs of their name and their label, in the order in which they narrow the selection.
  dashboard(description, metric, labels, panels)::
    g.dashboard(
      config,
      name,
      title,
      description,
      [g.labelVariable('cluster', 'cluster', metric, 'Cluster') { allValue: '.*' }] + [
        g.labelVariable(label.name, label.label, '%s{cluster=~"$cluster"}' % metric, label.title)
        for label in labels
      ],
      panels
    ),
}
