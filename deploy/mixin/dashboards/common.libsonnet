// What the dashboards about kstatd itself share: their variables and the selector that these make.
local g = import '../grafana.libsonnet';
local here = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"';

{
  variables(config)::
    // Both kinds of targets that the alerts know.
    local targets(more) = std.join(' or ', ['up{%s%s}' % [selector, more] for selector in [config.selector, config.labelSelector]]);
    [
      g.resultVariable('cluster', 'cluster', targets(''), 'Cluster') { allValue: '.*' },
      g.resultVariable('job', 'job', targets(',cluster=~"$cluster"'), 'Job'),
      g.resultVariable('instance', 'instance', targets(',cluster=~"$cluster",job=~"$job"'), 'Instance'),
    ],
  // For everything that a process says of itself or Prometheus of a target.
  here:: here,
  // The series of an expression about kinds, except kinds that the API server lacks, such as mutatingadmissionpolicies before Kubernetes
  // 1.36: not found, and never listed. They are requested every two minutes, for ever, and are no failure. %s is the selector.
  present(expr)::
    (
      expr + ' unless on (cluster, job, instance, namespace, resource) (increase(kstatd_kubernetes_errors_total{%s,reason="not_found"}[10m]) > 0 '
      + 'and on (cluster, job, instance, namespace, resource) kstatd_kubernetes_last_list_success_timestamp_seconds{%s} == 0)'
    ) % [here, here, here],
  // The series of an expression that all replicas of a standby have (`--standby`), of the one that exposes them: sums count nothing
  // twice. %s is the selector.
  exposed(expr):: (expr + ' unless on (cluster, job, instance) kstatd_standby{%s} == 1') % [here, here],
}
