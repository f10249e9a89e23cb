{{/*
What the API server does not let an upgrade change. `lookup` finds the objects of the installed release; tools that only render
(`helm template`, Argo CD) find nothing, and their upgrades fail at the API server.
*/}}

{{/* The cluster IP of the Service. A Service can neither become headless nor cease to be: it stays what it is. */}}
{{- define "kstatd.clusterIP" -}}
{{- $service := .Values.service -}}
{{- $name := include "kstatd.fullname" . -}}
{{- $namespace := include "kstatd.namespace" . -}}
{{- $sharded := eq (include "kstatd.workloadKind" .) "StatefulSet" -}}
{{- $wanted := ternary "None" (toString ($service.clusterIP | default "")) $sharded -}}
{{- $old := dig "spec" "clusterIP" "" (lookup "v1" "Service" $namespace $name | default dict) -}}
{{- if or (not $old) (eq $old $wanted) -}}
{{- $wanted -}}
{{- else if and $wanted (not $sharded) -}}
{{- include "kstatd.cannotChange" (dict "value" "service.clusterIP" "what" "cluster IP" "kind" "Service" "name" $name "namespace" $namespace "old" $old "new" $wanted) -}}
{{- else if eq $old "None" -}}
{{- if ne (toString $service.type) "ClusterIP" -}}
{{- include "kstatd.cannotChange" (dict "value" "service.type" "what" "cluster IP" "kind" "Service" "name" $name "namespace" $namespace "old" $old "new" "an address") -}}
{{- end -}}
None
{{- end -}}
{{- end -}}

{{/* Fails unless an installed workload keeps what cannot change. Takes `root`, `kind`, `name`, and the `selector` and `policy` of the new one. */}}
{{- define "kstatd.keepsWorkload" -}}
{{- $namespace := include "kstatd.namespace" .root -}}
{{- $subject := dict "kind" .kind "name" .name "namespace" $namespace -}}
{{- with (lookup "apps/v1" .kind $namespace .name | default dict).spec -}}
{{- $old := dig "matchLabels" dict .selector | toJson -}}
{{- $new := toJson $.selector -}}
{{- if ne $old $new -}}
{{- include "kstatd.cannotChange" (merge (dict "value" "nameOverride, selectorOverride or personality" "what" "selector" "old" $old "new" $new) $subject) -}}
{{- end -}}
{{- if eq $.kind "StatefulSet" -}}
{{- if ne .podManagementPolicy $.policy -}}
{{- include "kstatd.cannotChange" (merge (dict "value" "personality" "what" "podManagementPolicy" "old" .podManagementPolicy "new" $.policy) $subject) -}}
{{- end -}}
{{- if ne .serviceName $.name -}}
{{- include "kstatd.cannotChange" (merge (dict "value" "fullnameOverride" "what" "serviceName" "old" .serviceName "new" $.name) $subject) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The reference of a binding to its role, which cannot change. Takes `root`, the `kind` of the role, its `name`, and the `namespace` of a RoleBinding. */}}
{{- define "kstatd.roleRef" -}}
{{- $namespace := .namespace | default "" -}}
{{- $binding := include "kstatd.fullname" .root -}}
{{- $kind := printf "%sBinding" .kind -}}
{{- $old := dig "roleRef" "name" "" (lookup "rbac.authorization.k8s.io/v1" $kind $namespace $binding | default dict) -}}
{{- if and $old (ne $old .name) -}}
{{- include "kstatd.cannotChange" (dict "value" "rbac.useExistingRole" "what" "role" "kind" $kind "name" $binding "namespace" $namespace "old" $old "new" .name) -}}
{{- end -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
{{- end -}}

{{- define "kstatd.cannotChange" -}}
{{- $where := ternary "" (printf "-n %s " .namespace) (empty .namespace) -}}
{{- fail (printf "%s: the %s of %s %s is %s and cannot change to %s; delete it before the upgrade: kubectl %sdelete %s %s" .value .what .kind .name .old .new $where (lower .kind) .name) -}}
{{- end -}}
