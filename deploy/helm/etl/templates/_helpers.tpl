{{- define "etl.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for names of pods, whose hash Kubernetes puts behind it into a label. */}}
{{- define "etl.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "etl.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "etl.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "etl.selector" -}}
app.kubernetes.io/name: {{ include "etl.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "etl.labels" -}}
{{ include "etl.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "etl.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "etl.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "etl.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "etl.scheme" -}}
{{- if .Values.api.tlsSecret -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{/* The settings file: what the chart's mounts imply, and the user's own on top. */}}
{{- define "etl.settings" -}}
{{- $name := include "etl.fullname" . -}}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) -}}
{{- $http := dict "listen" (list (printf ":%v" .Values.api.port)) "hosts" (concat $hosts .Values.api.hosts) "metrics_public" .Values.api.metricsPublic -}}
{{- if .Values.api.tlsSecret -}}
{{- $_ := merge $http (dict "cert_file" "/run/tls/tls.crt" "key_file" "/run/tls/tls.key") -}}
{{- end -}}
{{- if .Values.api.tokens -}}
{{- $tokens := list -}}
{{- range .Values.api.tokens -}}
{{- $tokens = append $tokens (dict "name" .name "role" .role "token_file" (printf "/run/tokens/%s" .name)) -}}
{{- end -}}
{{- $_ := set $http "tokens" $tokens -}}
{{- else -}}
{{- $_ := set $http "local_role" .Values.api.localRole -}}
{{- end -}}
{{- if not (and .Values.api.tlsSecret .Values.api.tokens) -}}
{{- $_ := set $http "insecure" true -}}
{{- end -}}
{{- $own := dict "log" (dict "format" "json") "shutdown_timeout" (printf "%vs" .Values.shutdownTimeoutSeconds) "pipelines" "/etc/etl/pipelines" "state_dir" "/var/lib/etl" "http" $http -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.settings)) -}}
{{- end -}}

{{- define "etl.probe" -}}
{{- $probe := deepCopy .probe -}}
{{- toYaml (set $probe "httpGet" (dict "path" .path "port" "api" "scheme" .scheme)) -}}
{{- end -}}
