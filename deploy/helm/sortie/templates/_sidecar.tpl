{{- /*
For the pods of another chart, which has this one as a dependency with `mode: sidecar`. Each takes `.Subcharts.sortie`:

  metadata:
    labels:      {{- include "sortie.sidecar.labels" .Subcharts.sortie | nindent 8 }}
    annotations: {{- include "sortie.podAnnotations" .Subcharts.sortie | nindent 8 }}
  spec:
    terminationGracePeriodSeconds: {{ include "sortie.terminationGracePeriodSeconds" .Subcharts.sortie }}
    initContainers: {{- include "sortie.sidecar.initContainers" .Subcharts.sortie | nindent 8 }}
    volumes:        {{- include "sortie.volumes" .Subcharts.sortie | nindent 8 }}

These two come first in their lists. The app runs as another UID than 65532 and not as root, and calls 127.0.0.1:8477.
*/}}
{{- define "sortie.sidecar.labels" -}}
sortie/sidecar: {{ .Release.Name | quote }}
{{- end }}

{{- /* The fence, where it is on, and the gateway as a native sidecar: it starts before the app and ends after it. */}}
{{- define "sortie.sidecar.initContainers" -}}
{{- if ne .Values.mode "sidecar" }}
{{- fail "the sidecar's templates need mode: sidecar" }}
{{- end }}
{{- if .Values.fence.enabled -}}
- {{ include "sortie.fence" . | nindent 2 | trim }}
{{- end }}
- {{ include "sortie.container" . | nindent 2 | trim }}
  restartPolicy: Always
{{- end }}

{{- define "sortie.fence" -}}
name: sortie-fence
image: {{ include "sortie.imageName" (dict "image" .Values.fence.image "version" .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.fence.image.pullPolicy }}
env:
  - name: GATEWAY_UID
    value: "65532"
  - name: APP_DNS
    value: {{ .Values.fence.appDns | quote }}
  - name: APP_TCP
    value: {{ join " " .Values.fence.appTcp | quote }}
resources:
  requests: {cpu: 10m, memory: 16Mi}
  limits: {memory: 32Mi}
securityContext:
  runAsNonRoot: false
  runAsUser: 0
  runAsGroup: 0
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL], add: [NET_ADMIN]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}
