// Recording rules: one in place of kubernetes-mixin's chain `namespace_workload_pod:kube_pod_owner:relabel`.
{
  local config = self._config,

  prometheusRules+:: {
    groups+: [{
      name: 'kstatd-workloads',
      rules: [{
        record: 'namespace_workload_pod:kube_pod_owner:relabel',
        expr: 'max by (cluster, namespace, workload, workload_type, pod) (kstatd_pod_workload_info{%(ownSelector)s})' % config,
      }],
    }],
  },
}
