local g = import '../../mixin/grafana.libsonnet';
local pack = (import '../pack.libsonnet')('vertical-pod-autoscaler', 'Vertical Pod Autoscaler');

local prefix = 'kube_customresource_verticalpodautoscaler_';
local condition(type, more='') = prefix + 'status_condition{condition="%s"%s}' % [type, more];
local recommended(which, more='') = prefix + 'status_recommendation_containerrecommendations_%s%s' % [which, more];
local object = 'cluster, namespace, verticalpodautoscaler, target_kind, target_name';
local container = object + ', container, resource';
local resource = 'VerticalPodAutoscaler {{ $labels.namespace }}/{{ $labels.verticalpodautoscaler }}';
local target = '{{ $labels.target_kind }} {{ $labels.target_name }}';
local here = 'cluster=~"$cluster",namespace=~"$namespace",verticalpodautoscaler=~"$vpa"';
local capped(more='') = 'max by (%(by)s) (%(uncapped)s)\n  > 1.05 * max by (%(by)s) (%(target)s)'
                        % { by: container, uncapped: recommended('uncappedtarget', more), target: recommended('target', more) };

{
  alerts: pack.alerts([
    pack.alert(
      'VpaNoRecommendation',
      'warning',
      '1h',
      'max by (%(by)s) (%(provided)s) == 0\n  unless\nmax by (%(by)s) (%(empty)s) == 1'
      % { by: object, provided: condition('RecommendationProvided'), empty: condition('NoPodsMatched') },
      'An autoscaler gives no recommendation.',
      resource + ' has had no recommendation for ' + target + ' for an hour, although it has pods.',
    ),
    pack.alert(
      'VpaNoPodsMatched',
      'info',
      '1d',
      'max by (%s) (%s) == 1' % [object, condition('NoPodsMatched')],
      'An autoscaler has no pods.',
      resource + ' has matched no pods for a day: ' + target + ' is scaled to zero, or does not exist.',
    ),
    pack.alert(
      'VpaConfigUnsupported',
      'warning',
      '15m',
      'max by (%s) (%s) == 1' % [object, condition('ConfigUnsupported')],
      'The specification of an autoscaler is not supported.',
      resource + ' has not been able to work on ' + target + ' for 15 minutes, for example because another autoscaler has the same target.',
    ),
    pack.alert(
      'VpaRecommendationCapped',
      'info',
      '6h',
      capped(),
      'An autoscaler would recommend more than it may.',
      'Container {{ $labels.container }} of ' + target + ' in {{ $labels.namespace }} needs more {{ $labels.resource }} than the maximum of its VerticalPodAutoscaler: {{ $value | humanize }}.',
    ),
  ]),

  dashboard: pack.dashboard(
    'Recommendations of vertical pod autoscalers, and their limits.',
    prefix + 'labels',
    [
      { name: 'namespace', label: 'namespace', title: 'Namespace' },
      { name: 'vpa', label: 'verticalpodautoscaler', title: 'Autoscaler' },
    ],
    local bounds(which) = [
      g.query('sum by (namespace, verticalpodautoscaler, container) (%s)' % recommended('target', '{%s,resource="%s"}' % [here, which]), '{{namespace}}/{{verticalpodautoscaler}} {{container}}'),
    ];
    local range(which) = 'sum by (namespace, verticalpodautoscaler, target_kind, target_name, container) (%s)' % which;
    [
      g.number('Autoscalers', 'count(%slabels{%s})' % [prefix, here]),
      g.number('With recommendation', 'sum(%s)' % condition('RecommendationProvided', ',' + here)),
      g.number('Unsupported', 'sum(%s) or vector(0)' % condition('ConfigUnsupported', ',' + here), thresholds=[1]),
      g.number('Without pods', 'sum(%s) or vector(0)' % condition('NoPodsMatched', ',' + here), thresholds=[1]),
      g.number('Low confidence', 'sum(%s) or vector(0)' % condition('LowConfidence', ',' + here), thresholds=[1]),
      g.number('Capped', 'count(%s) or vector(0)' % std.strReplace(capped('{%s}' % here), '\n', ''), thresholds=[1], description='Resources of containers whose recommendation is cut by the maximum of the policy.'),
      g.plot('Recommended CPU', bounds('cpu'), description='In cores.'),
      g.plot('Recommended memory', bounds('memory'), unit='bytes'),
      g.table('CPU, recommended', range(recommended('target', '{%s,resource="cpu"}' % here)), description='In cores.'),
      g.table('Memory, recommended', range(recommended('target', '{%s,resource="memory"}' % here)), unit='bytes'),
      g.table('CPU, before the policy', range(recommended('uncappedtarget', '{%s,resource="cpu"}' % here)), description='In cores.'),
      g.table('Memory, before the policy', range(recommended('uncappedtarget', '{%s,resource="memory"}' % here)), unit='bytes'),
      g.table('Update modes', 'count by (update_mode) (%sspec_updatepolicy_updatemode{%s} == 1)' % [prefix, here]),
      g.table('Conditions', 'max by (namespace, verticalpodautoscaler, condition) (%sstatus_condition{%s})' % [prefix, here]),
    ],
  ),
}
