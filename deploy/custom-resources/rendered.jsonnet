// The alerts and the dashboard of each pack, for deploy/mixin/render.sh.
local packs = {
  'argo-rollouts': import 'argo-rollouts/pack.libsonnet',
  'cert-manager': import 'cert-manager/pack.libsonnet',
  flux: import 'flux/pack.libsonnet',
  'gateway-api': import 'gateway-api/pack.libsonnet',
  karpenter: import 'karpenter/pack.libsonnet',
  'vertical-pod-autoscaler': import 'vertical-pod-autoscaler/pack.libsonnet',
};
local note(name) = '# Rendered from deploy/custom-resources/%s/pack.libsonnet by deploy/mixin/render.sh.\n' % name;

{
  [name + '/alerts.yaml']: note(name) + std.manifestYamlDoc(packs[name].alerts, indent_array_in_object=false, quote_keys=false) + '\n'
  for name in std.objectFields(packs)
} + {
  [name + '/dashboard.json']: std.manifestJsonEx(packs[name].dashboard, '  ') + '\n'
  for name in std.objectFields(packs)
}
