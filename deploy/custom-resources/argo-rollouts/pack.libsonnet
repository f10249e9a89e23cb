local g = import '../../mixin/grafana.libsonnet';
local pack = (import '../pack.libsonnet')('argo-rollouts', 'Argo Rollouts');

local prefix = 'kube_customresource_rollout_';
local object = 'cluster, namespace, rollout';
local resource = 'Rollout {{ $labels.namespace }}/{{ $labels.rollout }}';
local of(metric, by=object) = 'max by (%s) (%s%s)' % [by, prefix, metric];
local here = 'cluster=~"$cluster",namespace=~"$namespace",rollout=~"$rollout"';
// Analyses and experiments belong to no single rollout.
local there = 'cluster=~"$cluster",namespace=~"$namespace"';

{
  alerts: pack.alerts([
    pack.alert(
      'ArgoRolloutDegraded',
      'warning',
      '10m',
      of('status_phase{phase="Degraded"}') + ' == 1',
      'A Rollout is degraded.',
      resource + ' has been degraded for 10 minutes: its update failed or was aborted.',
    ),
    pack.alert(
      'ArgoRolloutStuck',
      'warning',
      '1h',
      of('status_phase{phase="Progressing"}') + ' == 1',
      'A Rollout does not finish its update.',
      resource + ' has been progressing for an hour.',
    ),
    pack.alert(
      'ArgoRolloutPaused',
      'info',
      '12h',
      of('status_phase{phase="Paused"}') + ' == 1',
      'A Rollout waits for its promotion.',
      resource + ' has been paused for 12 hours.',
    ),
    pack.alert(
      'ArgoRolloutReplicasMismatch',
      'warning',
      '15m',
      // The status has no member for 0 pods.
      '%(wanted)s\n  > (%(available)s or 0 * %(wanted)s)' % { wanted: of('spec_replicas'), available: of('status_replicas_available') },
      'A Rollout has too few available pods.',
      resource + ' has had fewer available pods than it wants, {{ $value }}, for 15 minutes.',
    ),
    pack.alert(
      'ArgoRolloutGenerationNotObserved',
      'warning',
      '15m',
      of('metadata_generation') + '\n  > ' + of('status_observed_generation'),
      'The controller of Argo Rollouts does not act on a change.',
      'The last change of ' + resource + ' has not been observed for 15 minutes.',
    ),
    pack.alert(
      'ArgoAnalysisRunFailed',
      'warning',
      '0m',
      |||
        max by (cluster, namespace, analysisrun, owner_name) (kube_customresource_analysisrun_status_phase{phase=~"Failed|Error"}) == 1
          and
        time() - max by (cluster, namespace, analysisrun, owner_name) (kube_customresource_analysisrun_status_completed_timestamp_seconds) < 3600
      |||,
      'An analysis failed.',
      'AnalysisRun {{ $labels.namespace }}/{{ $labels.analysisrun }}{{ with $labels.owner_name }} of {{ . }}{{ end }} failed within the last hour.',
    ),
  ]),

  dashboard: pack.dashboard(
    'Progress of rollouts, their canaries and analyses.',
    prefix + 'info',
    [
      { name: 'namespace', label: 'namespace', title: 'Namespace' },
      { name: 'rollout', label: 'rollout', title: 'Rollout' },
    ],
    local phase(name) = 'sum(%sstatus_phase{%s,phase="%s"})' % [prefix, here, name];
    [
      g.number('Rollouts', 'count(%sinfo{%s})' % [prefix, here]),
      g.number('Healthy', phase('Healthy')),
      g.number('Progressing', phase('Progressing')),
      g.number('Paused', phase('Paused')),
      g.number('Degraded', phase('Degraded'), thresholds=[1, 10]),
      g.number('Failed analyses', 'sum(kube_customresource_analysisrun_status_phase{%s,phase=~"Failed|Error"}) or vector(0)' % there, thresholds=[1, 10]),
      g.plot('Weight of canaries', [g.query('%sstatus_canary_weight{%s,target="canary"}' % [prefix, here], '{{namespace}}/{{rollout}}')], unit='percent', description='Of rollouts with a traffic router.'),
      g.plot('Available pods, share of the desired', [g.query('(max by (namespace, rollout) (%(p)sstatus_replicas_available{%(h)s}) or 0 * max by (namespace, rollout) (%(p)sspec_replicas{%(h)s})) / max by (namespace, rollout) (%(p)sspec_replicas{%(h)s})' % { p: prefix, h: here }, '{{namespace}}/{{rollout}}')], unit='percentunit'),
      g.plot('Updated pods', [g.query('max by (namespace, rollout) (%sstatus_replicas_updated{%s})' % [prefix, here], '{{namespace}}/{{rollout}}')]),
      g.plot('Phases', [g.query('sum by (phase) (%sstatus_phase{%s})' % [prefix, here], '{{phase}}')], stacked=true),
      g.table('Rollouts by phase', 'max by (namespace, rollout, phase) (%sstatus_phase{%s} == 1)' % [prefix, here]),
      g.table('Paused for', 'time() - min by (namespace, rollout, reason) (%sstatus_pause_start_timestamp_seconds{%s})' % [prefix, here], unit='s'),
      g.table('Analyses by phase', 'max by (namespace, analysisrun, owner_kind, owner_name, phase) (kube_customresource_analysisrun_status_phase{%s} == 1)' % there),
      g.table('Experiments by phase', 'max by (namespace, experiment, owner_name, phase) (kube_customresource_experiment_status_phase{%s} == 1)' % there),
    ],
  ),
}
