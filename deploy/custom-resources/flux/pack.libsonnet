local g = import '../../mixin/grafana.libsonnet';
local pack = (import '../pack.libsonnet')('flux', 'Flux');

local identity = 'cluster, customresource_kind, exported_namespace, name';
// Revisions are labels: without them an alert does not begin again with each commit.
local state(selector) = 'max by (%s) (gotk_resource_info{%s})' % [identity, selector];
local resource = '{{ $labels.customresource_kind }} {{ $labels.exported_namespace }}/{{ $labels.name }}';
local here = 'cluster=~"$cluster",exported_namespace=~"$namespace",customresource_kind=~"$kind"';

{
  alerts: pack.alerts([
    pack.alert(
      'FluxResourceNotReady',
      'warning',
      '15m',
      state('ready="False",suspended!="true"'),
      'A Flux resource fails to reconcile.',
      resource + ' has not been ready for 15 minutes.',
    ),
    pack.alert(
      'FluxResourceStuck',
      'warning',
      '30m',
      // Controllers give neither repositories of type oci nor, at first, external artifacts a condition.
      state('ready!~"True|False",suspended!="true"') + '\n  unless\n'
      + state('ready="",customresource_kind=~"HelmRepository|ExternalArtifact"'),
      'A Flux resource does not finish its reconciliation.',
      resource + ' has been in progress, or without any status, for 30 minutes.',
    ),
    pack.alert(
      'FluxGenerationNotObserved',
      'warning',
      '15m',
      'max by (%(by)s) (gotk_resource_generation)\n  > max by (%(by)s) (gotk_resource_observed_generation)\n  unless\n%(suspended)s'
      % { by: identity, suspended: state('suspended="true"') },
      'A Flux controller does not act on a change.',
      'The last change of ' + resource + ' has not been reconciled for 15 minutes.',
    ),
    pack.alert(
      'FluxResourceSuspended',
      'info',
      '1d',
      state('suspended="true"'),
      'A Flux resource is suspended.',
      resource + ' has been suspended for a day: changes in its source have no effect.',
    ),
  ]),

  dashboard: pack.dashboard(
    'State of the resources that Flux reconciles.',
    'gotk_resource_info',
    [
      { name: 'namespace', label: 'exported_namespace', title: 'Namespace' },
      { name: 'kind', label: 'customresource_kind', title: 'Kind' },
    ],
    [
      g.number('Resources', 'count(gotk_resource_info{%s})' % here),
      g.number('Failing', 'count(gotk_resource_info{%s,ready="False",suspended!="true"}) or vector(0)' % here, thresholds=[1, 10]),
      g.number('In progress', 'count(gotk_resource_info{%s,ready="Unknown",suspended!="true"}) or vector(0)' % here),
      g.number('Suspended', 'count(gotk_resource_info{%s,suspended="true"}) or vector(0)' % here, thresholds=[1]),
      g.number('Changes not reconciled', 'count(gotk_resource_generation{%(here)s} > gotk_resource_observed_generation{%(here)s}) or vector(0)' % { here: here }, thresholds=[1, 10], description='Resources whose specification is newer than what their controller has observed.'),
      g.number('Helm failures', 'sum(gotk_helmrelease_failures{%s}) or vector(0)' % here, thresholds=[1, 10], description='Failed reconciliations of releases since their last successful one.'),
      g.plot('Resources by kind', [g.query('count by (customresource_kind) (gotk_resource_info{%s})' % here, '{{customresource_kind}}')], stacked=true),
      g.plot('Not ready by kind', [g.query('count by (customresource_kind) (gotk_resource_info{%s,ready!="True",suspended!="true"}) or vector(0)' % here, '{{customresource_kind}}')], stacked=true),
      g.table('Not ready', 'max by (customresource_kind, exported_namespace, name, ready, suspended) (gotk_resource_info{%s,ready!="True"})' % here),
      g.table('Age of artifacts', 'sort_desc(time() - max by (customresource_kind, exported_namespace, name) (gotk_artifact_last_update_timestamp_seconds{%s}))' % here, unit='s', description='Time since the artifact of a source last changed.'),
      g.table('Kustomizations', 'max by (exported_namespace, name, ready, suspended, source_kind, source_name, revision) (gotk_resource_info{%s,customresource_kind="Kustomization"})' % here, width=24),
      g.table('Helm releases', 'max by (exported_namespace, name, ready, suspended, chart_name, revision, chart_app_version) (gotk_resource_info{%s,customresource_kind="HelmRelease"})' % here, width=24),
      g.table('Sources', 'max by (customresource_kind, exported_namespace, name, ready, suspended, url, endpoint, bucket_name, revision) (gotk_resource_info{%s,customresource_kind=~".+Repository|HelmChart|Bucket|ExternalArtifact"})' % here, width=24),
    ],
  ),
}
