// What the dashboards about kstatd itself share: their variables and the selector that these make.
local g = import '../grafana.libsonnet';

{
  variables(config):: [
    g.labelVariable('cluster', 'cluster', 'up{%s}' % config.selector, 'Cluster') { allValue: '.*' },
    g.labelVariable('job', 'job', 'up{%s}' % config.selector, 'Job'),
    g.labelVariable('instance', 'instance', 'up{%s,job=~"$job"}' % config.selector, 'Instance'),
  ],
  // For everything that a process says of itself or Prometheus of a target.
  here:: 'cluster=~"$cluster",job=~"$job",instance=~"$instance"',
}
