{{- define "nameservice.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "nameservice.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nameservice.labels" -}}
{{ include "nameservice.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* Where the key set is, as --jwks names it. */ -}}
{{- define "nameservice.jwks" -}}
{{- if .Values.auth.jwksUrl }}{{ .Values.auth.jwksUrl }}{{ else if or .Values.auth.jwksSecret .Values.auth.jwksConfigMap }}/keys/jwks.json{{ end }}
{{- end }}

{{- /* How a probe asks: without a certificate of a client, TCP alone. */ -}}
{{- define "nameservice.probe" -}}
{{- if .Values.tls.clientCaSecret -}}
tcpSocket:
  port: http
{{- else -}}
httpGet:
  path: /v1/health
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" (ne .Values.tls.secret "") }}
{{- end }}
{{- end }}
