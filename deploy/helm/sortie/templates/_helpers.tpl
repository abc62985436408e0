{{- define "sortie.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "sortie.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "sortie.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sortie.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.mode }}
{{- end }}

{{- define "sortie.labels" -}}
{{ include "sortie.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The name of an image. Context: image, and the version where it has no tag. */}}
{{- define "sortie.imageName" -}}
{{- $tag := default .version .image.tag }}
{{- if eq $tag "latest" }}
{{- fail (printf "image %s: the tag `latest` says nothing about what runs; name a version" .image.repository) }}
{{- end }}
{{- .image.repository }}:{{ $tag }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "sortie.image" -}}
{{- include "sortie.imageName" (dict "image" .Values.image "version" .Chart.AppVersion) }}
{{- end }}

{{- /* Seconds, rounded up, of a duration such as 500ms, 10s, 5m, 24h or 7d. */}}
{{- define "sortie.seconds" -}}
{{- $text := toString . }}
{{- if not (regexMatch "^[0-9]+(ms|s|m|h|d)$" $text) }}
{{- fail (printf "%s is not a duration such as 500ms, 10s, 5m, 24h or 7d" $text) }}
{{- end }}
{{- $number := regexFind "^[0-9]+" $text | int64 }}
{{- $unit := regexFind "[a-z]+$" $text }}
{{- if eq $unit "ms" }}
{{- div (add $number 999) 1000 }}
{{- else }}
{{- mul $number (get (dict "s" 1 "m" 60 "h" 3600 "d" 86400) $unit) }}
{{- end }}
{{- end }}

{{- /* The longest timeout of a tool in seconds: its own, or that of its profile. */}}
{{- define "sortie.longestTimeout" -}}
{{- $tools := default list .Values.config.tools }}
{{- $profiles := default list .Values.config.profiles }}
{{- range $name, $file := .Values.files }}
{{- $file := ternary (fromYaml (toString $file)) $file (kindIs "string" $file) }}
{{- $tools = concat $tools (default list $file.tools) }}
{{- $profiles = concat $profiles (default list $file.profiles) }}
{{- end }}
{{- $defaults := dict "envelope-v1" "10s" "bare-v1" "30s" "plain-v1" "30s" "standard-webhooks" "20s" }}
{{- range $profiles }}
{{- $_ := set $defaults .name (dig "timeout" "default" "30s" .) }}
{{- end }}
{{- $longest := 0 }}
{{- range $tools }}
{{- $timeout := default (get $defaults (default "envelope-v1" .profile)) .timeout | default "30s" }}
{{- if .timeoutSeconds }}
{{- $timeout = printf "%ds" (int64 .timeoutSeconds) }}
{{- else if .timeout_ms }}
{{- $timeout = printf "%dms" (int64 .timeout_ms) }}
{{- end }}
{{- $longest = max $longest (include "sortie.seconds" $timeout | int64) }}
{{- end }}
{{- $longest }}
{{- end }}

{{- /* The configuration's text: what the cluster decides, and the operator's own before it. */}}
{{- define "sortie.config" -}}
{{- $shared := eq .Values.mode "shared" }}
{{- $own := deepCopy .Values.config }}
{{- if and $shared (not $own.auth) }}
{{- fail "config.auth is needed with mode shared: say who may call, for example auth: {keys: [{name: agents, scopes: [agent, \"agent:call\"], key: {sha256: …}}]}; `sortie key new` makes a key" }}
{{- end }}
{{- $listeners := dict "api" (dict "address" (ternary ":8477" "127.0.0.1:8477" $shared)) "telemetry" (dict "address" ":9477") }}
{{- if .Values.admin.enabled }}
{{- $_ := set $listeners "admin" (dict "unix" (dict "path" "/run/sortie/admin.sock" "mode" "0600")) }}
{{- end }}
{{- $config := dict "version" 1 "listeners" $listeners }}
{{- if not $shared }}
{{- $_ := set $config "auth" (ternary "none" $own.auth (empty $own.auth)) }}
{{- end }}
{{- $_ := set $config "storage" (dict "url" "sqlite:/var/lib/sortie/sortie.db") }}
{{- $grace := max 25 (include "sortie.longestTimeout" . | int64) }}
{{- $_ := set $config "shutdown" (dict "accept_for" (ternary "5s" "0s" $shared) "grace" (printf "%ds" $grace)) }}
{{- if .Values.secrets }}
{{- $_ := set $config "secrets" (dict "dir" "/run/secrets/sortie") }}
{{- end }}
{{- $include := list }}
{{- range $name, $file := .Values.files }}
{{- if and (hasPrefix "tools-" $name) (hasSuffix ".yaml" $name) }}
{{- $include = list "tools-*.yaml" }}
{{- end }}
{{- end }}
{{- with $include }}
{{- $_ := set $config "include" . }}
{{- end }}
{{- if $shared }}
{{- $replicas := ternary .Values.autoscaling.maxReplicas .Values.replicaCount .Values.autoscaling.enabled }}
{{- $_ := set $config "defaults" (dict "rate_limit_replicas" (int64 $replicas)) }}
{{- end }}
{{- $config = mustMergeOverwrite $config $own }}
{{- $private := concat .Values.cluster.podCidrs .Values.cluster.serviceCidrs .Values.cluster.nodeCidrs }}
{{- with $private }}
{{- $egress := default dict $config.egress }}
{{- $_ := set $egress "private_cidrs" (uniq (concat (default list $egress.private_cidrs) .)) }}
{{- $_ := set $config "egress" $egress }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- /* How long Kubernetes waits after SIGTERM: until calls have ended, and until the slowest tool can have answered. */}}
{{- define "sortie.terminationGracePeriodSeconds" -}}
{{- $config := include "sortie.config" . | fromYaml }}
{{- $accept := include "sortie.seconds" $config.shutdown.accept_for | int64 }}
{{- $grace := include "sortie.seconds" $config.shutdown.grace | int64 }}
{{- max (add $accept $grace 5) (add (include "sortie.longestTimeout" . | int64) 5) }}
{{- end }}

{{- /* What needs a restart, or everything, as a digest: a change of it rolls the pods. */}}
{{- define "sortie.checksum" -}}
{{- $config := include "sortie.config" . | fromYaml }}
{{- if .Values.rollOnConfigChange }}
{{- print (toYaml $config) (toYaml .Values.files) | sha256sum }}
{{- else }}
{{- pick $config "listeners" "storage" | toYaml | sha256sum }}
{{- end }}
{{- end }}

{{- define "sortie.podAnnotations" -}}
checksum/config: {{ include "sortie.checksum" . }}
{{- if .Values.monitoring.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: "9477"
prometheus.io/path: /metrics
{{- end }}
{{- end }}
