{{/* Arguments, probes, volumes and the template of pods. */}}

{{/* The arguments. Takes `root`, `collectors`, `silent` to disable StatsD, and `extra` arguments. */}}
{{- define "kstatd.args" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $personality := $values.personality -}}
{{- $kube := include "kstatd.kube" $root -}}
{{- $custom := include "kstatd.takesCustomResources" . }}
{{- if ne $personality "statsd_exporter" }}
{{- /* The value of such a flag may be the next argument. */}}
{{- $isValue := false }}
{{- range $values.extraArgs }}
{{- if or $custom (not (or $isValue (regexMatch "^--custom-resource-state-" .))) }}
- {{ . | quote }}
{{- end }}
{{- $isValue = regexMatch "^--custom-resource-state-config(-file)?$" . }}
{{- end }}
{{- end }}
{{- if eq $personality "run" }}
- --listen=:{{ include "kstatd.httpPort" $root }}
{{- $host := $values.selfMonitor.telemetryHost | default "" }}
- --telemetry-listen={{ ternary (printf "[%s]" $host) $host (and (contains ":" $host) (not (hasPrefix "[" $host))) }}:{{ include "kstatd.telemetryPort" $root }}
{{- else if eq $personality "kube-state-metrics" }}
- --port={{ include "kstatd.httpPort" $root }}
{{- with $values.selfMonitor.telemetryHost }}
- --telemetry-host={{ . }}
{{- end }}
{{- with $values.selfMonitor.telemetryPort }}
- --telemetry-port={{ . }}
{{- end }}
{{- else }}
- --web.listen-address=:{{ include "kstatd.httpPort" $root }}
- --web.telemetry-path={{ $values.service.path | default "/metrics" }}
{{- end }}
{{- if $kube }}
{{- with .collectors }}
- --resources={{ join "," . }}
{{- end }}
{{- range $flag, $list := dict "metric-labels-allowlist" $values.metricLabelsAllowlist "metric-annotations-allowlist" $values.metricAnnotationsAllowList "metric-allowlist" $values.metricAllowlist "metric-denylist" $values.metricDenylist "metric-opt-in-list" $values.metricOptInList "namespaces" (include "kstatd.namespaces" $root) "namespaces-denylist" $values.namespacesDenylist }}
{{- with tpl (include "kstatd.commas" ($list | default list)) $root }}
- {{ printf "--%s=%s" $flag . | quote }}
{{- end }}
{{- end }}
{{- if $values.kubernetesEvents }}
- --kubernetes-events
{{- end }}
{{- if include "kstatd.authFilter" $root }}
- --auth-filter
{{- end }}
{{- if include "kstatd.rbacProxy" $root }}
- --tls-config=/etc/kube-rbac-proxy-config/web-config.yaml
{{- end }}
{{- if $values.kubeconfig.enabled }}
- --kubeconfig=/opt/k8s/.kube/config
{{- end }}
{{- if and $values.customResourceState.enabled $custom }}
- --custom-resource-state-config-file=/etc/customresourcestate/{{ $values.customResourceState.key | default "config.yaml" }}
{{- end }}
{{- end }}
{{- if include "kstatd.statsd" $root }}
{{- $port := ternary (dict) $values.statsd (default false .silent) }}
- --statsd.listen-udp={{ with $port.udpPort }}:{{ . }}{{ end }}
- --statsd.listen-tcp={{ with $port.tcpPort }}:{{ . }}{{ end }}
{{- /* The processes next to a DaemonSet must not bind a socket that extraArgs give it, on the nodes that they are on. */}}
{{- if and .silent (regexMatch "--statsd\\.listen-unixgram[= ]" (join " " $values.extraArgs)) }}
- --statsd.listen-unixgram=
{{- end }}
{{- if eq $personality "statsd_exporter" }}
{{- range list "cacheSize" "eventQueueSize" "eventFlushThreshold" "eventFlushInterval" }}
{{- $value := index $values.statsd . }}
{{- if not (kindIs "invalid" $value) }}
- --statsd.{{ kebabcase . }}={{ $value }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (not .silent) (include "kstatd.mapping" $root) }}
- --statsd.mapping-config=/etc/{{ include "kstatd.chartName" $root }}/statsd-mapping.conf
{{- end }}
{{- end }}
{{- range .extra }}
- {{ . }}
{{- end }}
{{- if eq $personality "statsd_exporter" }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Non-empty if the values configure custom resources. */}}
{{- define "kstatd.customResources" -}}
{{- if or .Values.customResourceState.enabled (regexMatch "(^| )--custom-resource-state-config" (join " " (.Values.extraArgs | default list))) }}yes{{ end -}}
{{- end -}}

{{/* Non-empty if the pods expose custom resources. Next to a DaemonSet one Deployment does: each process would expose all of them. */}}
{{- define "kstatd.takesCustomResources" -}}
{{- if or (not .root.Values.daemonset.enabled) (eq .component "others") }}yes{{ end -}}
{{- end -}}

{{- define "kstatd.mapping" -}}
{{- if and (include "kstatd.statsd" .) (or .Values.statsd.mappingConfig .Values.statsd.mappingConfigMapName) }}yes{{ end -}}
{{- end -}}

{{/* One probe. Takes `root`, `probe` (its values), `path`, `port`, and `hostNetwork` of the pod. */}}
{{- define "kstatd.probe" -}}
{{- $http := .probe.httpGet | default dict -}}
{{- $get := dict "path" .path "port" .port -}}
{{- $secure := include "kstatd.rbacProxy" .root -}}
{{- if include "kstatd.kube" .root -}}
{{- $_ := set $get "scheme" (ternary "HTTPS" (upper (default "HTTP" $http.scheme)) (not (not $secure))) -}}
{{- else if $http.scheme -}}
{{- $_ := set $get "scheme" (upper $http.scheme) -}}
{{- end -}}
{{- with $http.host | default (ternary "127.0.0.1" "" (and (not (not (include "kstatd.kube" .root))) .hostNetwork)) -}}
{{- $_ := set $get "host" . -}}
{{- end -}}
{{- range $key := list "httpHeaders" "path" "port" -}}
{{- with index $http $key -}}
{{- $_ := set $get $key . -}}
{{- end -}}
{{- end -}}
httpGet:
  {{- toYaml $get | nindent 2 }}
{{- with omit .probe "enabled" "httpGet" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Security contexts of pod and container, as JSON. */}}
{{- define "kstatd.podSecurity" -}}
{{- $strict := dict "runAsNonRoot" true "runAsUser" 65534 "runAsGroup" 65534 "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if include "kstatd.kube" . -}}
{{- $given := .Values.securityContext | default dict -}}
{{- if not (eq (toString $given.enabled) "false") -}}{{- omit $given "enabled" | toJson -}}{{- else -}}{}{{- end -}}
{{- else if or .Values.podSecurityContext .Values.securityContext -}}
{{- .Values.podSecurityContext | default dict | toJson -}}
{{- else -}}
{{- toJson $strict -}}
{{- end -}}
{{- end -}}
{{- define "kstatd.containerSecurity" -}}
{{- $strict := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- if include "kstatd.kube" . -}}
{{- .Values.containerSecurityContext | default dict | toJson -}}
{{- else if or .Values.podSecurityContext .Values.securityContext -}}
{{- .Values.securityContext | default dict | toJson -}}
{{- else -}}
{{- toJson $strict -}}
{{- end -}}
{{- end -}}

{{/* Template of a pod. Takes the same as kstatd.args, and `component`, the label that distinguishes the pods of a release. */}}
{{- define "kstatd.pod" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $kube := include "kstatd.kube" $root | not | not -}}
{{- $exporter := eq $values.personality "statsd_exporter" -}}
{{- $statsd := and (not .silent) (include "kstatd.statsd" $root | not | not) -}}
{{- $mapping := and $statsd (include "kstatd.mapping" $root | not | not) -}}
{{- $proxy := include "kstatd.rbacProxy" $root -}}
{{- /* The Deployments next to a DaemonSet would need ports that its pods have on every node. */ -}}
{{- $hostNetwork := and (default false $values.hostNetwork) (not .silent) -}}
metadata:
  labels:
    {{- if $exporter }}
    {{- include "kstatd.selector" $root | nindent 4 }}
    {{- else }}
    {{- include "kstatd.labels" $root | nindent 4 }}
    {{- end }}
    {{- with .component }}
    kstatd/part: {{ . }}
    {{- end }}
    {{- with $values.podLabels }}
    {{- tpl (toYaml .) $root | nindent 4 }}
    {{- end }}
  {{- $annotations := deepCopy ($values.podAnnotations | default dict) }}
  {{- if or $exporter (and $mapping $values.statsd.mappingConfig) }}
  {{- $annotations = merge (dict "checksum/config" ($values.statsd.mappingConfig | default "" | sha256sum)) $annotations }}
  {{- end }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "kstatd.serviceAccountName" $root }}
  # StatsD alone has nothing to ask the API server.
  automountServiceAccountToken: {{ and $kube (ne (toString $values.automountServiceAccountToken) "false") }}
  {{- with include "kstatd.pullSecrets" (dict "root" $root "of" $values.imagePullSecrets) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if or $kube $hostNetwork }}
  hostNetwork: {{ $hostNetwork }}
  {{- end }}
  {{- if not (kindIs "invalid" $values.hostUsers) }}
  hostUsers: {{ $values.hostUsers }}
  {{- end }}
  {{- $standby := and $kube (default false $values.standby) }}
  {{- /* In the host network ClusterFirst is the node's own name server, which does not know the Service of the replicas. */}}
  {{- with ternary "ClusterFirstWithHostNet" $values.dnsPolicy (and $standby $hostNetwork (eq (toString $values.dnsPolicy) "ClusterFirst")) }}
  dnsPolicy: {{ . }}
  {{- end }}
  {{- with $values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if not (kindIs "invalid" $values.terminationGracePeriodSeconds) }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- end }}
  {{- with include "kstatd.podSecurity" $root | fromJson }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
  - name: {{ include "kstatd.chartName" $root }}
    image: {{ include "kstatd.image" $root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    command: [/kstatd, {{ $values.personality }}]
    args:
    {{- include "kstatd.args" . | trim | nindent 4 }}
    {{- $env := list }}
    {{- range $name, $field := dict "POD_NAME" "metadata.name" "POD_NAMESPACE" "metadata.namespace" "NODE_NAME" "spec.nodeName" }}
    {{- if contains (printf "$(%s)" $name) (join " " $.extra) }}
    {{- $env = append $env (dict "name" $name "valueFrom" (dict "fieldRef" (dict "fieldPath" $field))) }}
    {{- end }}
    {{- end }}
    {{- with concat $env ($values.env | default list) }}
    env:
    {{- toYaml . | nindent 4 }}
    {{- end }}
    ports:
    - name: http
      containerPort: {{ include "kstatd.httpPort" $root }}
      {{- if $exporter }}
      protocol: TCP
      {{- end }}
    {{- if $kube }}
    - name: metrics
      containerPort: {{ include "kstatd.telemetryPort" $root }}
    {{- end }}
    {{- if and $statsd $values.statsd.tcpPort }}
    - name: statsd-tcp
      containerPort: {{ $values.statsd.tcpPort }}
      {{- if $exporter }}
      protocol: TCP
      {{- end }}
    {{- end }}
    {{- if and $statsd $values.statsd.udpPort }}
    - name: statsd-udp
      containerPort: {{ $values.statsd.udpPort }}
      protocol: UDP
    {{- end }}
    {{- $own := eq $values.personality "run" }}
    {{- if and $kube $values.startupProbe.enabled }}
    startupProbe:
      {{- include "kstatd.probe" (dict "root" $root "hostNetwork" $hostNetwork "probe" $values.startupProbe "path" "/healthz" "port" "http") | nindent 6 }}
    {{- end }}
    # Says nothing of the API server (of kstatd's own name): its outage is no reason to lose what is known.
    livenessProbe:
      {{- include "kstatd.probe" (dict "root" $root "hostNetwork" $hostNetwork "probe" $values.livenessProbe "path" (ternary "/health" (ternary "/healthz" "/livez" $own) $exporter) "port" "http") | nindent 6 }}
    readinessProbe:
      {{- include "kstatd.probe" (dict "root" $root "hostNetwork" $hostNetwork "probe" $values.readinessProbe "path" (ternary "/health" "/readyz" $exporter) "port" (ternary "metrics" "http" (eq $values.personality "kube-state-metrics"))) | nindent 6 }}
    {{- with $values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with include "kstatd.containerSecurity" $root | fromJson }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- $mounts := list }}
    {{- $volumes := list }}
    {{- if $mapping }}
    {{- $mounts = append $mounts (dict "name" "statsd-mapping-config" "mountPath" (printf "/etc/%s" (include "kstatd.chartName" $root))) }}
    {{- $volumes = append $volumes (dict "name" "statsd-mapping-config" "configMap" (dict "name" (include "kstatd.mappingName" $root) "items" (list (dict "key" $values.statsd.mappingConfigMapKey "path" "statsd-mapping.conf")))) }}
    {{- end }}
    {{- if $kube }}
    {{- if $values.kubeconfig.enabled }}
    {{- $mounts = append $mounts (dict "name" "kubeconfig" "mountPath" "/opt/k8s/.kube/" "readOnly" true) }}
    {{- $volumes = append $volumes (dict "name" "kubeconfig" "secret" (dict "secretName" (printf "%s-kubeconfig" (include "kstatd.fullname" $root)))) }}
    {{- end }}
    {{- if and $values.customResourceState.enabled (include "kstatd.takesCustomResources" .) }}
    {{- $mounts = append $mounts (dict "name" "customresourcestate-config" "mountPath" "/etc/customresourcestate" "readOnly" true) }}
    {{- $volumes = append $volumes (dict "name" "customresourcestate-config" "configMap" (dict "name" (include "kstatd.customResourceStateName" $root))) }}
    {{- end }}
    {{- if $proxy }}
    {{- $mounts = concat $mounts (list (dict "name" "kube-rbac-proxy-config" "mountPath" "/etc/kube-rbac-proxy-config" "readOnly" true) (dict "name" "kube-rbac-proxy-tls" "mountPath" "/etc/kube-rbac-proxy-tls" "readOnly" true)) }}
    {{- $volumes = concat $volumes (list (dict "name" "kube-rbac-proxy-config" "configMap" (dict "name" (printf "%s-rbac-config" (include "kstatd.fullname" $root)))) (dict "name" "kube-rbac-proxy-tls" "secret" (dict "secretName" (include "kstatd.tlsSecretName" $root)))) }}
    {{- end }}
    {{- end }}
    {{- with concat $mounts ($values.volumeMounts | default list) }}
    volumeMounts:
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.containers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $affinity := $values.affinity }}
  {{- if and $standby (not $affinity) }}
  {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "kstatd.selector" $root | fromYaml)) }}
  {{- $affinity = dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list (dict "weight" 100 "podAffinityTerm" $term))) }}
  {{- end }}
  {{- with $affinity }}
  affinity:
    {{- if kindIs "string" . }}
    {{- tpl . $root | nindent 4 }}
    {{- else }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- $tolerations := $values.tolerations }}
  {{- if eq (default "" .kind) "DaemonSet" }}
  {{- $tolerations = $values.daemonset.tolerations | default $tolerations }}
  {{- end }}
  {{- with $tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with concat $volumes ($values.volumes | default list) }}
  volumes:
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "kstatd.tlsSecretName" -}}
{{- .Values.kubeRBACProxy.tlsSecretName | default (printf "%s-tls" (include "kstatd.fullname" .)) -}}
{{- end -}}
