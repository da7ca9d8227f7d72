{{- define "agentrun.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "agentrun.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "agentrun.labels" -}}
{{ include "agentrun.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "agentrun.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "agentrun.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "agentrun.image" -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .appVersion) -}}
{{- end -}}

{{- define "agentrun.installation" -}}
{{- .Values.installation | default (printf "%s.%s" .Release.Namespace .Release.Name) -}}
{{- end -}}

{{- /* The one way to the store, or a refusal that says what to set. */ -}}
{{- define "agentrun.storeKind" -}}
{{- $kinds := list -}}
{{- if .Values.store.url }}{{ $kinds = append $kinds "store.url" }}{{ end -}}
{{- if .Values.store.existingSecret.name }}{{ $kinds = append $kinds "store.existingSecret.name" }}{{ end -}}
{{- if .Values.postgres.enabled }}{{ $kinds = append $kinds "postgres.enabled" }}{{ end -}}
{{- if ne (len $kinds) 1 -}}
{{- fail (printf "set exactly one of store.url, store.existingSecret.name and postgres.enabled=true; it is %s" (ternary "none" (join " and " $kinds) (empty $kinds))) -}}
{{- end -}}
{{- first $kinds -}}
{{- end -}}

{{- /* The operator's Secret: one that is there, or the chart's. */ -}}
{{- define "agentrun.storeSecret" -}}
{{- if eq (include "agentrun.storeKind" .) "store.existingSecret.name" -}}
{{- .Values.store.existingSecret.name -}}
{{- else -}}
{{- include "agentrun.fullname" . }}-operator-store
{{- end -}}
{{- end -}}

{{- define "agentrun.postgres" -}}
{{- include "agentrun.fullname" . }}-postgres
{{- end -}}

{{- /* Given, or that of the release so far, or a new one. Once a rendering: it is random. */ -}}
{{- define "agentrun.postgresPassword" -}}
{{- if not (hasKey .Values.postgres "generated") -}}
{{- $password := .Values.postgres.password -}}
{{- if not $password -}}
{{- with lookup "v1" "Secret" .Release.Namespace (include "agentrun.postgres" .) -}}
{{- $password = index .data "password" | b64dec -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values.postgres "generated" ($password | default (randAlphaNum 24)) -}}
{{- end -}}
{{- .Values.postgres.generated -}}
{{- end -}}

{{- define "agentrun.url" -}}
{{- if .Values.postgres.enabled -}}
{{- printf "postgresql://agentrun:%s@%s.%s.svc:5432/agentrun" (include "agentrun.postgresPassword" . | urlquery | replace "+" "%20") (include "agentrun.postgres" .) .Release.Namespace -}}
{{- else -}}
{{- .Values.store.url -}}
{{- end -}}
{{- end -}}

{{- define "agentrun.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "agentrun.containerSecurity" -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}
