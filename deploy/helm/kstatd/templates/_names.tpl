{{/* Names, labels and metadata. With the personality of an original they are those of its chart, so that an in-place upgrade
keeps selectors, jobs and dashboards. */}}

{{- define "kstatd.chartName" -}}
{{- get (dict "run" "kstatd" "kube-state-metrics" "kube-state-metrics" "statsd_exporter" "prometheus-statsd-exporter") .Values.personality -}}
{{- end -}}

{{/* The label app.kubernetes.io/name. The chart kube-state-metrics does not let nameOverride change it. */}}
{{- define "kstatd.name" -}}
{{- if eq .Values.personality "kube-state-metrics" -}}
{{- include "kstatd.chartName" . -}}
{{- else -}}
{{- default (include "kstatd.chartName" .) .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kstatd.fullname" -}}
{{- $most := ternary 50 63 (eq .Values.personality "run") -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc $most | trimSuffix "-" -}}
{{- else -}}
{{- $name := default (include "kstatd.chartName" .) .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc $most | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc $most | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kstatd.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "kstatd.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kstatd.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "kstatd.selector" -}}
{{- with .Values.selectorOverride -}}
{{- toYaml . -}}
{{- else -}}
app.kubernetes.io/name: {{ include "kstatd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
{{- end -}}

{{/* The pod of `helm test`, which no selector of the release must match. */}}
{{- define "kstatd.testSelector" -}}
app.kubernetes.io/name: {{ include "kstatd.name" . | trunc 58 | trimSuffix "-" }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kstatd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- if ne .Values.personality "statsd_exporter" }}
app.kubernetes.io/component: metrics
app.kubernetes.io/part-of: {{ include "kstatd.name" . }}
{{- end }}
{{ include "kstatd.selector" . }}
{{- with .Values.customLabels }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- if .Values.releaseLabel }}
release: {{ .Release.Name }}
{{- end }}
{{- end -}}

{{/* The Service with the addresses of all replicas. The name of a Service has at most 63 characters. */}}
{{- define "kstatd.replicasName" -}}
{{- include "kstatd.fullname" . | trunc 54 | trimSuffix "-" }}-replicas
{{- end -}}

{{/* Metadata of an object. Takes `root`, and optionally `name` or `prefix` and `suffix`, `namespace`, `labels` and `annotations`. */}}
{{- define "kstatd.metadata" -}}
name: {{ .name | default (printf "%s%s%s" (.prefix | default "") (include "kstatd.fullname" .root) (.suffix | default "")) }}
namespace: {{ .namespace | default (include "kstatd.namespace" .root) }}
labels:
  {{- include "kstatd.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- tpl (toYaml .) $.root | nindent 2 }}
  {{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The image. Values that refer to an image of the original are ignored. */}}
{{- define "kstatd.image" -}}
{{- $image := ternary .ownImage .Values.image (not (not (include "kstatd.foreignImage" .))) -}}
{{- with .Values.global.imageRegistry | default $image.registry }}{{ . }}/{{ end -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- /* The digest of the chart's own image is not that of another tag. */ -}}
{{- if or (has "image.sha" .given) (not (has "image.tag" .given)) (include "kstatd.foreignImage" .) -}}
{{- with $image.sha }}@{{ if regexMatch "^[0-9a-f]{64}$" . }}sha256:{{ end }}{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Non-empty if `image` is one of the original: by its repository, by a tag such as v2.15.0, which
kstatd's images never have (also in a mirror, if its name ends like the original's), or by the registry of Kubernetes. */}}
{{- define "kstatd.foreignImage" -}}
{{- $image := .Values.image -}}
{{- if ne .Values.personality "run" -}}
{{- if regexMatch "(^|/)(kube-state-metrics/kube-state-metrics|(prom|prometheus|prometheus-community)/statsd-exporter|bitnami(legacy)?/kube-state-metrics)$" $image.repository -}}
repository {{ $image.repository }}
{{- else if and (or (eq $image.repository .ownImage.repository) (regexMatch "(kube-state-metrics|statsd[-_]exporter)$" $image.repository)) (regexMatch "^v[0-9]+[.][0-9]+" (toString $image.tag)) -}}
tag {{ $image.tag }}
{{- else if and (eq $image.repository .ownImage.repository) (has $image.registry (list "registry.k8s.io" "k8s.gcr.io")) -}}
registry {{ $image.registry }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Pull secrets as a YAML list: those of `of` after the global ones. */}}
{{- define "kstatd.pullSecrets" -}}
{{- with concat (.root.Values.global.imagePullSecrets | default list) (.of | default list) -}}
imagePullSecrets:
{{- range . }}
- {{ ternary (dict "name" .) . (kindIs "string" .) | toJson }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Non-empty with a Kubernetes side; non-empty with a StatsD side. */}}
{{- define "kstatd.kube" -}}
{{- if ne .Values.personality "statsd_exporter" }}yes{{ end -}}
{{- end -}}
{{- define "kstatd.statsd" -}}
{{- if ne .Values.personality "kube-state-metrics" }}yes{{ end -}}
{{- end -}}

{{/* Converts a list or comma-separated text to comma-separated text. */}}
{{- define "kstatd.commas" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ join "," . }}{{ end -}}
{{- end -}}

{{/* Namespaces to watch, comma-separated, with templates expanded. */}}
{{- define "kstatd.namespaces" -}}
{{- $all := list -}}
{{- range splitList "," (include "kstatd.commas" (.Values.namespaces | default list)) -}}
{{- with tpl . $ | trim }}{{ $all = append $all . }}{{ end -}}
{{- end -}}
{{- if .Values.releaseNamespace -}}
{{- $all = append $all (include "kstatd.namespace" .) -}}
{{- end -}}
{{- $all | uniq | join "," -}}
{{- end -}}

{{- define "kstatd.collectors" -}}
{{- concat (.Values.collectors | default list) (.Values.collectorsExtra | default list) | toJson -}}
{{- end -}}

{{/* Ports of the main metrics and of own metrics. */}}
{{- define "kstatd.httpPort" -}}
{{- .Values.service.port | default (ternary 9102 8080 (eq .Values.personality "statsd_exporter")) -}}
{{- end -}}
{{- define "kstatd.telemetryPort" -}}
{{- .Values.selfMonitor.telemetryPort | default 8081 -}}
{{- end -}}

{{/* Non-empty if the API server authenticates and authorises scrapes. */}}
{{- define "kstatd.authFilter" -}}
{{- if and (include "kstatd.kube" .) (or .Values.authFilter.enabled (include "kstatd.rbacProxy" .)) }}yes{{ end -}}
{{- end -}}
{{- define "kstatd.rbacProxy" -}}
{{- if and (eq .Values.personality "kube-state-metrics") .Values.kubeRBACProxy.enabled }}yes{{ end -}}
{{- end -}}

{{- define "kstatd.customResourceStateName" -}}
{{- .Values.customResourceState.name | default (printf "%s-customresourcestate-config" (include "kstatd.fullname" .)) -}}
{{- end -}}

{{- define "kstatd.mappingName" -}}
{{- .Values.statsd.mappingConfigMapName | default (print (include "kstatd.fullname" .) (ternary "-mapping" "" (eq .Values.personality "run"))) -}}
{{- end -}}

{{/* Kind of the main workload. */}}
{{- define "kstatd.workloadKind" -}}
{{- if .Values.daemonset.enabled }}DaemonSet{{ else if and (include "kstatd.kube" .) .Values.autosharding.enabled }}StatefulSet{{ else }}Deployment{{ end -}}
{{- end -}}

{{/* Non-empty if pods poll each other's telemetry port: replicas of a standby, and shards while their number changes. */}}
{{- define "kstatd.polls" -}}
{{- if and (include "kstatd.kube" .) (or .Values.standby .Values.autosharding.enabled) }}yes{{ end -}}
{{- end -}}

{{/* Rejects values that contradict each other or are dangerous to ignore. */}}
{{- define "kstatd.checks" -}}
{{- $values := .Values -}}
{{- $kube := include "kstatd.kube" . -}}
{{- if $kube -}}
{{- if and $values.autosharding.enabled $values.daemonset.enabled -}}
{{- fail "autosharding.enabled and daemonset.enabled: choose one" -}}
{{- end -}}
{{- if and $values.standby (or $values.autosharding.enabled $values.daemonset.enabled) -}}
{{- fail "standby: its replicas hold everything; disable autosharding.enabled and daemonset.enabled" -}}
{{- end -}}
{{- if and $values.standby (lt (int $values.replicas) 2) -}}
{{- fail "standby: replicas must be 2 or more" -}}
{{- end -}}
{{- if and $values.daemonset.enabled $values.kubernetesEvents -}}
{{- fail "daemonset.enabled and kubernetesEvents: the process that counts events has no pods, so it does not know the workloads; choose one" -}}
{{- end -}}
{{- if and $values.daemonset.enabled (not (has "pods" $values.collectors)) -}}
{{- fail "daemonset.enabled: collectors has no pods, which are what its pods share" -}}
{{- end -}}
{{- if and $values.prometheus.monitor.enabled $values.prometheus.podMonitor.enabled -}}
{{- fail "prometheus.monitor.enabled and prometheus.podMonitor.enabled: everything would be scraped twice, choose one" -}}
{{- end -}}
{{- if and $values.autosharding.enabled (ne (toString $values.service.type) "ClusterIP") -}}
{{- fail (printf "autosharding.enabled: its Service is headless, and service.type=%v cannot be" $values.service.type) -}}
{{- end -}}
{{- else -}}
{{- if and $values.serviceMonitor.enabled $values.prometheus.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and prometheus.podMonitor.enabled: everything would be scraped twice, choose one" -}}
{{- end -}}
{{- if and $values.autoscaling.enabled $values.daemonset.enabled -}}
{{- fail "autoscaling.enabled and daemonset.enabled: a DaemonSet cannot be scaled, choose one" -}}
{{- end -}}
{{- end -}}
{{- if and (eq $values.personality "run") (not $values.rbac.useClusterRole) (not (include "kstatd.namespaces" .)) -}}
{{- fail "rbac.useClusterRole=false: namespaces says where the Roles are to be, and is empty" -}}
{{- end -}}
{{- if include "kstatd.rbacProxy" . -}}
{{- range $values.kubeRBACProxy.extraArgs -}}
{{- if regexMatch "^--?(allow-paths|auth-|client-ca-file|ignore-paths|oidc-|tls-(cert|private)|upstream|config-file)" . -}}
{{- fail (printf "kubeRBACProxy.extraArgs: %s affects authorisation, and kstatd's filter has no such setting; remove it, or set kubeRBACProxy.enabled=false and run the proxy in `containers`" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
