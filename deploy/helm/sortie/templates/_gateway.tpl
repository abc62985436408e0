{{- /* The gateway's container, the same in both modes. */}}
{{- define "sortie.container" -}}
name: gateway
image: {{ include "sortie.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/sortie/sortie.yaml]
env:
  - name: TOKIO_WORKER_THREADS
    value: {{ .Values.threads | quote }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: api, containerPort: 8477, protocol: TCP}
  - {name: telemetry, containerPort: 9477, protocol: TCP}
# An invalid configuration ends the start with its reasons on stderr: the pod's status shows them.
terminationMessagePolicy: FallbackToLogsOnError
startupProbe:
  httpGet: {path: /readyz, port: telemetry}
  periodSeconds: 1
  failureThreshold: 30
readinessProbe:
  httpGet: {path: /readyz, port: telemetry}
  periodSeconds: 2
  failureThreshold: 1
livenessProbe:
  httpGet: {path: /livez, port: telemetry}
  periodSeconds: 10
  failureThreshold: 3
resources:
  {{- toYaml (get .Values.resources .Values.mode) | nindent 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: sortie-config, mountPath: /etc/sortie, readOnly: true}
  {{- if .Values.secrets }}
  - {name: sortie-secrets, mountPath: /run/secrets/sortie, readOnly: true}
  {{- end }}
  {{- if eq (include "sortie.stateful" .) "true" }}
  - {name: sortie-state, mountPath: /var/lib/sortie}
  {{- end }}
  {{- if .Values.admin.enabled }}
  - {name: sortie-run, mountPath: /run/sortie}
  {{- end }}
{{- end }}

{{- /* Whether the store is a file in the pod. */}}
{{- define "sortie.stateful" -}}
{{- $config := include "sortie.config" . | fromYaml }}
{{- hasPrefix "sqlite:/var/lib/sortie/" (toString $config.storage.url) }}
{{- end }}

{{- define "sortie.volumes" -}}
- name: sortie-config
  configMap:
    name: {{ include "sortie.fullname" . }}-config
{{- with .Values.secrets }}
- name: sortie-secrets
  projected:
    {{- /* Of a pod with an app the files belong to root alone; only the gateway mounts them. */}}
    defaultMode: {{ ternary "0440" "0444" (eq $.Values.mode "shared") }}
    sources:
      {{- range . }}
      - secret:
          name: {{ .name }}
          {{- with .items }}
          items:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if .optional }}
          optional: true
          {{- end }}
      {{- end }}
{{- end }}
{{- if eq (include "sortie.stateful" .) "true" }}
- name: sortie-state
  emptyDir:
    sizeLimit: {{ .Values.state.sizeLimit }}
{{- end }}
{{- if .Values.admin.enabled }}
- name: sortie-run
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- end }}
