{{/* API group and scope of each collector, as YAML. */}}
{{- define "kstatd.groups" -}}
"": {namespaced: [configmaps, endpoints, limitranges, persistentvolumeclaims, pods, replicationcontrollers, resourcequotas, secrets, serviceaccounts, services], cluster: [namespaces, nodes, persistentvolumes]}
admissionregistration.k8s.io: {namespaced: [], cluster: [mutatingadmissionpolicies, mutatingadmissionpolicybindings, mutatingwebhookconfigurations, validatingadmissionpolicies, validatingadmissionpolicybindings, validatingwebhookconfigurations]}
apps: {namespaced: [daemonsets, deployments, replicasets, statefulsets], cluster: []}
autoscaling: {namespaced: [horizontalpodautoscalers], cluster: []}
batch: {namespaced: [cronjobs, jobs], cluster: []}
certificates.k8s.io: {namespaced: [], cluster: [certificatesigningrequests]}
coordination.k8s.io: {namespaced: [leases], cluster: []}
discovery.k8s.io: {namespaced: [endpointslices], cluster: []}
networking.k8s.io: {namespaced: [ingresses, networkpolicies], cluster: [ingressclasses]}
policy: {namespaced: [poddisruptionbudgets], cluster: []}
rbac.authorization.k8s.io: {namespaced: [rolebindings, roles], cluster: [clusterrolebindings, clusterroles]}
storage.k8s.io: {namespaced: [], cluster: [storageclasses, volumeattachments]}
{{- end -}}

{{/* The rules that the collectors need. */}}
{{- define "kstatd.rules" -}}
{{- $values := .Values -}}
{{- $own := eq $values.personality "run" -}}
{{- $collectors := include "kstatd.collectors" . | fromJsonArray -}}
{{- if and $own (not $collectors) (not $values.rbac.useExistingRole) (not $values.rbac.extraRules) (not (regexMatch "--(custom-resource-state-only|resources[= ]|config[= ])" (join " " $values.extraArgs))) -}}
{{- fail "collectors: without any, the default kinds would be watched, to which no access is granted; list those to watch" -}}
{{- end -}}
{{- $flags := join " " $values.extraArgs -}}
{{- if and $own (regexMatch "--statsd\\.enrich[= ]" $flags) -}}
{{- $collectors = append $collectors "pods" -}}
{{- end -}}
{{- /* The owners of pods lead to their workloads, whose labels may be on the series of pods. Families of kstatd count by workload. */ -}}
{{- $families := printf "%s --metric-opt-in-list=%s" $flags (join "," ($values.metricOptInList | default list)) -}}
{{- $byWorkload := or $own $values.kubernetesEvents (regexMatch "--(pod-workload-labels[= ]|kubernetes-events|metric-opt-in-list[= ][^ ]*kstatd)" $families) -}}
{{- if and (has "pods" $collectors) $byWorkload -}}
{{- $collectors = concat $collectors (list "replicasets" "jobs") -}}
{{- if regexMatch "--pod-workload-labels[= ](.*[, ])?labels=\\[" $flags -}}
{{- $collectors = concat $collectors (list "cronjobs" "daemonsets" "deployments" "replicationcontrollers" "statefulsets") -}}
{{- end -}}
{{- end -}}
{{- range $group, $scopes := include "kstatd.groups" . | fromYaml -}}
{{- $wanted := list -}}
{{- range $name := concat $scopes.namespaced $scopes.cluster | sortAlpha -}}
{{- if has $name $collectors -}}
{{- if and $own (has $name $scopes.cluster) (not $values.rbac.useClusterRole) -}}
{{- fail (printf "collectors: %s are cluster-scoped, and rbac.useClusterRole=false grants no access to them" $name) -}}
{{- end -}}
{{- $wanted = append $wanted $name -}}
{{- end -}}
{{- end -}}
{{- with $wanted }}
- apiGroups: [{{ $group | quote }}]
  resources: {{ toJson . }}
  verbs: [list, watch]
{{- end -}}
{{- end -}}
{{- if $values.kubernetesEvents }}
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch]
{{- end -}}
{{- with include "kstatd.unknownCollectors" . | fromJsonArray -}}
{{- if $own -}}
{{- fail (printf "collectors: %s is not known; custom resources are configured by customResourceState" (first .)) -}}
{{- end -}}
{{- end -}}
{{- with $values.rbac.extraRules }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{- define "kstatd.unknownCollectors" -}}
{{- $known := list -}}
{{- range $_, $scopes := include "kstatd.groups" . | fromYaml -}}
{{- $known = concat $known $scopes.namespaced $scopes.cluster -}}
{{- end -}}
{{- $unknown := list -}}
{{- range include "kstatd.collectors" . | fromJsonArray -}}
{{- if not (has . $known) -}}
{{- $unknown = append $unknown . -}}
{{- end -}}
{{- end -}}
{{- toJson $unknown -}}
{{- end -}}

{{/* Rules that are possible only in a ClusterRole. */}}
{{- define "kstatd.clusterRules" -}}
{{- if and .Values.customResourceState.enabled .Values.rbac.customResourceState.createClusterRoleRules }}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end }}
{{- if include "kstatd.authFilter" . }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}
