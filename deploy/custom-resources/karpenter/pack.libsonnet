local g = import '../../mixin/grafana.libsonnet';
local pack = (import '../pack.libsonnet')('karpenter', 'Karpenter');

local prefix = 'kube_customresource_';
local pool = 'cluster, nodepool';
local claim = 'cluster, nodepool, nodeclaim';
local of(metric, by) = 'max by (%s) (%s%s)' % [by, prefix, metric];
local claimName = 'NodeClaim {{ $labels.nodeclaim }}{{ with $labels.nodepool }} of {{ . }}{{ end }}';
local here = 'cluster=~"$cluster",nodepool=~"$nodepool"';
// Overlays belong to no pool.
local there = 'cluster=~"$cluster"';
local used(more='') = '%s\n  / %s' % [of('nodepool_status_resource' + more, pool + ', resource'), of('nodepool_spec_limit' + more, pool + ', resource')];

{
  alerts: pack.alerts([
    pack.alert(
      'KarpenterNodePoolNotReady',
      'warning',
      '15m',
      of('nodepool_status_condition{condition="Ready"}', pool) + ' == 0',
      'A NodePool is not ready.',
      'NodePool {{ $labels.nodepool }} has not been ready for 15 minutes: it gets no new nodes.',
    ),
    pack.alert(
      'KarpenterNodePoolNearLimit',
      'warning',
      '15m',
      used() + ' > 0.9',
      'A NodePool is near a limit.',
      'The nodes of NodePool {{ $labels.nodepool }} have {{ $value | humanizePercentage }} of the {{ $labels.resource }} that its limits allow.',
    ),
    pack.alert(
      'KarpenterNodeClaimNotReady',
      'warning',
      '20m',
      '%s == 0\n  unless\n%s' % [of('nodeclaim_status_condition{condition="Ready"}', claim), of('nodeclaim_deleted', claim)],
      'A machine does not become a ready node.',
      claimName + ' has not been ready for 20 minutes.',
    ),
    pack.alert(
      'KarpenterNodeClaimTerminating',
      'warning',
      '5m',
      'time() - %s > 3600' % of('nodeclaim_deleted', claim),
      'A node is not drained.',
      claimName + ' has been terminating for {{ $value | humanizeDuration }}.',
    ),
    pack.alert(
      'KarpenterNodeClaimDrifted',
      'info',
      '1d',
      of('nodeclaim_status_condition{condition="Drifted"}', claim) + ' == 1',
      'A node has drifted and is not replaced.',
      claimName + ' has differed from its NodePool or node class for a day.',
    ),
    pack.alert(
      'KarpenterNodeOverlayNotReady',
      'warning',
      '15m',
      of('nodeoverlay_status_condition{condition="Ready"}', 'cluster, nodeoverlay') + ' == 0',
      'A NodeOverlay has no effect.',
      'NodeOverlay {{ $labels.nodeoverlay }} has not been ready for 15 minutes: it is invalid, or conflicts with another.',
    ),
  ]),

  dashboard: pack.dashboard(
    'Node pools, their limits, and the machines that belong to them.',
    prefix + 'nodepool_info',
    [{ name: 'nodepool', label: 'nodepool', title: 'Node pool' }],
    [
      g.number('Node pools', 'count(%snodepool_info{%s})' % [prefix, here]),
      g.number('Pools not ready', 'count(%snodepool_status_condition{%s,condition="Ready"} == 0) or vector(0)' % [prefix, here], thresholds=[1]),
      g.number('Nodes', 'sum(%snodepool_status_nodes{%s})' % [prefix, here]),
      g.number('Claims', 'count(%snodeclaim_info{%s})' % [prefix, here]),
      g.number('Claims not ready', 'count(%snodeclaim_status_condition{%s,condition="Ready"} == 0) or vector(0)' % [prefix, here], thresholds=[1, 10]),
      g.number('Drifted', 'sum(%snodeclaim_status_condition{%s,condition="Drifted"}) or vector(0)' % [prefix, here], thresholds=[1, 10]),
      g.plot('Nodes by pool', [g.query('sum by (nodepool) (%snodepool_status_nodes{%s})' % [prefix, here], '{{nodepool}}')], stacked=true),
      g.plot('Share of the limits', [g.query(std.strReplace(used('{%s}' % here), '\n', ''), '{{nodepool}} {{resource}}')], unit='percentunit'),
      g.plot('CPU by capacity type', [g.query('sum by (capacity_type) (%(p)snodeclaim_status_capacity{%(h)s,resource="cpu"} * on (cluster, nodeclaim) group_left (capacity_type) %(p)snodeclaim_info)' % { p: prefix, h: here }, '{{capacity_type}}')], stacked=true, description='In cores.'),
      g.plot('Claims by instance type', [g.query('count by (instance_type) (%snodeclaim_info{%s})' % [prefix, here], '{{instance_type}}')], stacked=true),
      g.table('Claims by zone', 'count by (nodepool, zone, capacity_type) (%snodeclaim_info{%s})' % [prefix, here]),
      g.table('Conditions of claims', 'sum by (nodepool, condition) (%snodeclaim_status_condition{%s})' % [prefix, here], description='Claims whose condition is True.'),
      g.table('Age of claims', 'time() - max by (nodepool, nodeclaim) (%snodeclaim_created{%s})' % [prefix, here], unit='s'),
      g.table('Since the last pod event', 'time() - max by (nodepool, nodeclaim) (%snodeclaim_status_last_pod_event_timestamp_seconds{%s})' % [prefix, here], unit='s'),
      g.table('Overlays', 'max by (nodeoverlay, condition) (%snodeoverlay_status_condition{%s})' % [prefix, there]),
      g.table('Consolidation', 'max by (nodepool, policy) (%snodepool_spec_consolidation_policy{%s} == 1)' % [prefix, here]),
    ],
  ),
}
