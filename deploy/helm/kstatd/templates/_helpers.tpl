{{- define "kstatd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "kstatd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "kstatd.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
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
app.kubernetes.io/name: {{ include "kstatd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kstatd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/component: metrics
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "kstatd.selector" . }}
{{- with .Values.customLabels }}
{{ tpl (toYaml .) $ }}
{{- end }}
{{- end -}}

{{- define "kstatd.image" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.sha }}@sha256:{{ . }}{{ end -}}
{{- end -}}

{{/* Whether there is a Kubernetes side, and whether there is a StatsD side: non-empty for yes. */}}
{{- define "kstatd.kube" -}}
{{- if ne .Values.personality "statsd_exporter" }}yes{{ end -}}
{{- end -}}
{{- define "kstatd.statsd" -}}
{{- if ne .Values.personality "kube-state-metrics" }}yes{{ end -}}
{{- end -}}

{{- define "kstatd.httpPort" -}}
{{- if eq .Values.personality "statsd_exporter" }}9102{{ else }}8080{{ end -}}
{{- end -}}

{{/* A list, or text with commas, as text with commas. */}}
{{- define "kstatd.commas" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ join "," . }}{{ end -}}
{{- end -}}

{{- define "kstatd.checks" -}}
{{- if and .Values.autosharding.enabled .Values.daemonset.enabled -}}
{{- fail "autosharding.enabled and daemonset.enabled: choose one" -}}
{{- end -}}
{{- if and .Values.autosharding.enabled (not (include "kstatd.kube" .)) -}}
{{- fail "autosharding.enabled: personality statsd_exporter has no objects to share" -}}
{{- end -}}
{{- if and .Values.daemonset.enabled (include "kstatd.kube" .) (not (has "pods" .Values.collectors)) -}}
{{- fail "daemonset.enabled: collectors has no pods, which are what its pods share" -}}
{{- end -}}
{{- if and .Values.prometheus.monitor.enabled .Values.prometheus.podMonitor.enabled -}}
{{- fail "prometheus.monitor.enabled and prometheus.podMonitor.enabled: everything would be scraped twice, choose one" -}}
{{- end -}}
{{- if and (not .Values.rbac.useClusterRole) (not (include "kstatd.commas" .Values.namespaces)) (include "kstatd.kube" .) -}}
{{- fail "rbac.useClusterRole=false: namespaces says where the Roles are to be, and is empty" -}}
{{- end -}}
{{- end -}}

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
{{- $known := list -}}
{{- range $group, $scopes := include "kstatd.groups" . | fromYaml -}}
{{- $wanted := list -}}
{{- range $name := concat $scopes.namespaced $scopes.cluster | sortAlpha -}}
{{- $known = append $known $name -}}
{{- if has $name $values.collectors -}}
{{- if and (has $name $scopes.cluster) (not $values.rbac.useClusterRole) -}}
{{- fail (printf "collectors: %s are of the whole cluster, which rbac.useClusterRole=false gives no access to" $name) -}}
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
{{- range .Values.collectors -}}
{{- if not (has . $known) -}}
{{- fail (printf "collectors: %s is not known; custom resources are configured by customResourceState" .) -}}
{{- end -}}
{{- end -}}
{{- with .Values.rbac.extraRules }}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* Rules that only a ClusterRole can give. */}}
{{- define "kstatd.clusterRules" -}}
{{- if .Values.customResourceState.enabled }}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end }}
{{- if .Values.authFilter.enabled }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}

{{- define "kstatd.customResourceStateName" -}}
{{- .Values.customResourceState.name | default (printf "%s-customresourcestate-config" (include "kstatd.fullname" .)) -}}
{{- end -}}

{{- define "kstatd.mappingName" -}}
{{- .Values.statsd.mappingConfigMapName | default (printf "%s-mapping" (include "kstatd.fullname" .)) -}}
{{- end -}}

{{/* The arguments. Takes `root`, `collectors`, `silent` where no StatsD lines are taken, and `extra` for what its place makes of it. */}}
{{- define "kstatd.args" -}}
{{- $values := .root.Values -}}
{{- $personality := $values.personality -}}
{{- $port := ternary (dict) $values.statsd (default false .silent) -}}
- {{ $personality }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- if eq $personality "run" }}
- --listen=:8080
- --telemetry-listen=:8081
{{- else if eq $personality "kube-state-metrics" }}
- --port=8080
- --telemetry-port=8081
{{- else }}
- --web.listen-address=:9102
- --web.telemetry-path=/metrics
{{- end }}
{{- if ne $personality "statsd_exporter" }}
- --resources={{ join "," .collectors }}
{{- range $flag, $list := dict "metric-labels-allowlist" $values.metricLabelsAllowlist "metric-annotations-allowlist" $values.metricAnnotationsAllowList "metric-allowlist" $values.metricAllowlist "metric-denylist" $values.metricDenylist "metric-opt-in-list" $values.metricOptInList "namespaces" $values.namespaces "namespaces-denylist" $values.namespacesDenylist }}
{{- with include "kstatd.commas" $list }}
- {{ printf "--%s=%s" $flag . | quote }}
{{- end }}
{{- end }}
{{- if $values.authFilter.enabled }}
- --auth-filter
{{- end }}
{{- if $values.customResourceState.enabled }}
- --custom-resource-state-config-file=/etc/customresourcestate/{{ $values.customResourceState.key }}
{{- end }}
{{- end }}
{{- if ne $personality "kube-state-metrics" }}
- --statsd.listen-udp={{ with $port.udpPort }}:{{ . }}{{ end }}
- --statsd.listen-tcp={{ with $port.tcpPort }}:{{ . }}{{ end }}
{{- if and (not .silent) (or $values.statsd.mappingConfig $values.statsd.mappingConfigMapName) }}
- --statsd.mapping-config=/etc/kstatd/statsd-mapping.conf
{{- end }}
{{- end }}
{{- range .extra }}
- {{ . }}
{{- end }}
{{- end -}}

{{/* Template of a pod. Takes the same as kstatd.args, and `component`, the label that tells pods of one release apart. */}}
{{- define "kstatd.pod" -}}
{{- $values := .root.Values -}}
{{- $kube := include "kstatd.kube" .root | not | not -}}
{{- $statsd := and (not .silent) (include "kstatd.statsd" .root) -}}
{{- $mapping := and $statsd (or $values.statsd.mappingConfig $values.statsd.mappingConfigMapName) -}}
{{- $custom := and $kube $values.customResourceState.enabled -}}
metadata:
  labels:
    {{- include "kstatd.labels" .root | nindent 4 }}
    kstatd/part: {{ .component }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $values.podAnnotations $mapping }}
  annotations:
    {{- if and $mapping $values.statsd.mappingConfig }}
    checksum/config: {{ $values.statsd.mappingConfig | sha256sum }}
    {{- end }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "kstatd.serviceAccountName" .root }}
  # StatsD alone has nothing to ask the API server.
  automountServiceAccountToken: {{ $kube }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  hostNetwork: {{ $values.hostNetwork }}
  dnsPolicy: {{ $values.dnsPolicy }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  securityContext:
    {{- toYaml $values.securityContext | nindent 4 }}
  {{- with $values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
  - name: {{ $values.personality | replace "_" "-" | replace "run" "kstatd" }}
    image: {{ include "kstatd.image" .root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    command: [/kstatd]
    args:
    {{- include "kstatd.args" . | nindent 4 }}
    {{- $env := list }}
    {{- range $name, $field := dict "POD_NAME" "metadata.name" "POD_NAMESPACE" "metadata.namespace" "NODE_NAME" "spec.nodeName" }}
    {{- if contains (printf "$(%s)" $name) (join " " $.extra) }}
    {{- $env = append $env (dict "name" $name "valueFrom" (dict "fieldRef" (dict "fieldPath" $field))) }}
    {{- end }}
    {{- end }}
    {{- with concat $env $values.env }}
    env:
    {{- toYaml . | nindent 4 }}
    {{- end }}
    ports:
    - name: http
      containerPort: {{ if $kube }}8080{{ else }}9102{{ end }}
    {{- if $kube }}
    - name: metrics
      containerPort: 8081
    {{- end }}
    {{- if and $statsd $values.statsd.tcpPort }}
    - name: statsd-tcp
      containerPort: {{ $values.statsd.tcpPort }}
    {{- end }}
    {{- if and $statsd $values.statsd.udpPort }}
    - name: statsd-udp
      containerPort: {{ $values.statsd.udpPort }}
      protocol: UDP
    {{- end }}
    # Says nothing of the API server: its outage is no reason to lose what is known.
    livenessProbe:
      httpGet:
        path: {{ if $kube }}/healthz{{ else }}/-/healthy{{ end }}
        port: http
        scheme: {{ $values.livenessProbe.scheme }}
      {{- omit $values.livenessProbe "scheme" | toYaml | nindent 6 }}
    readinessProbe:
      httpGet:
        path: {{ if $kube }}/readyz{{ else }}/-/ready{{ end }}
        port: {{ if eq $values.personality "kube-state-metrics" }}metrics{{ else }}http{{ end }}
        scheme: {{ $values.readinessProbe.scheme }}
      {{- omit $values.readinessProbe "scheme" | toYaml | nindent 6 }}
    {{- with $values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- toYaml $values.containerSecurityContext | nindent 6 }}
    {{- if or $mapping $custom $values.volumeMounts }}
    volumeMounts:
    {{- if $mapping }}
    - name: statsd-mapping-config
      mountPath: /etc/kstatd
      readOnly: true
    {{- end }}
    {{- if $custom }}
    - name: customresourcestate-config
      mountPath: /etc/customresourcestate
      readOnly: true
    {{- end }}
    {{- with $values.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- end }}
  {{- with $values.containers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if or $mapping $custom $values.volumes }}
  volumes:
  {{- if $mapping }}
  - name: statsd-mapping-config
    configMap:
      name: {{ include "kstatd.mappingName" .root }}
      items:
      - key: {{ $values.statsd.mappingConfigMapKey }}
        path: statsd-mapping.conf
  {{- end }}
  {{- if $custom }}
  - name: customresourcestate-config
    configMap:
      name: {{ include "kstatd.customResourceStateName" .root }}
  {{- end }}
  {{- with $values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* Metadata of an object. Takes `root` and `suffix`. */}}
{{- define "kstatd.metadata" -}}
name: {{ include "kstatd.fullname" .root }}{{ .suffix }}
namespace: {{ .namespace | default (include "kstatd.namespace" .root) }}
labels:
  {{- include "kstatd.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How one port is scraped. Takes `root`, `port` and `path`. */}}
{{- define "kstatd.endpoint" -}}
{{- $monitor := .root.Values.prometheus.monitor -}}
- port: {{ .port }}
  path: {{ .path }}
  honorLabels: {{ $monitor.honorLabels }}
  {{- with $monitor.interval }}
  interval: {{ . }}
  {{- end }}
  {{- with $monitor.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- with $monitor.scheme }}
  scheme: {{ . }}
  {{- end }}
  {{- with $monitor.tlsConfig }}
  tlsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and $monitor.bearerTokenFile .root.Values.prometheus.monitor.enabled }}
  bearerTokenFile: {{ $monitor.bearerTokenFile }}
  {{- end }}
  {{- with $monitor.metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if or $monitor.relabelings (ne .path "/metrics") }}
  relabelings:
    {{- if ne .path "/metrics" }}
    # Two paths of one port: `up` and its kin have to differ.
    - sourceLabels: [__metrics_path__]
      targetLabel: metrics_path
    {{- end }}
    {{- with $monitor.relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end -}}
