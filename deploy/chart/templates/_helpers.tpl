{{/* The name of the release's objects; those of a role have "-ROLE" after it. */}}
{{- define "forgerun.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels by which the pods of the release are found. They never change: a Deployment's selector cannot. */}}
{{- define "forgerun.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "forgerun.labels" -}}
{{ include "forgerun.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "forgerun.account" -}}
{{- default (ternary (include "forgerun.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "forgerun.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What a role is set to: .Values.common, and over it the role's own. Call it with (dict "root" $ "role" "api"). */}}
{{- define "forgerun.role" -}}
{{- mergeOverwrite (deepCopy .root.Values.common) (index .root.Values .role) | toJson -}}
{{- end -}}

{{/* The base of links: as set, or the ingress's host, or the Service's name. */}}
{{- define "forgerun.publicURL" -}}
{{- if .Values.publicURL -}}
{{- .Values.publicURL -}}
{{- else if .Values.ingress.enabled -}}
{{- printf "%s://%s" (ternary "https" "http" (not (empty .Values.ingress.tlsSecret))) .Values.ingress.host -}}
{{- else -}}
{{- printf "http://%s.%s" (include "forgerun.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{/* The whole seconds, rounded up, of a duration as ForgeRun reads it: 1h2m, 1.5s, 500ms, 0. */}}
{{- define "forgerun.seconds" -}}
{{- $seconds := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ns|us|ms|h|m|s)" . -1 -}}
{{- $unit := get (dict "h" 3600 "m" 60 "s" 1 "ms" 0.001 "us" 0.000001 "ns" 0.000000001) (regexFind "[a-z]+" .) -}}
{{- $seconds = addf $seconds (mulf (regexFind "[0-9.]+" . | float64) $unit) -}}
{{- end -}}
{{- $seconds | ceil | int64 -}}
{{- end -}}

{{/* How long a pod may take to end: what runs has its time, then the process closes what it has within the half minute. */}}
{{- define "forgerun.grace" -}}
{{- $config := .config -}}
{{- $work := include "forgerun.seconds" (default "30s" $config.FORGERUN_SHUTDOWN_GRACE) | int64 -}}
{{- $delivery := include "forgerun.seconds" (default "10s" $config.FORGERUN_WEBHOOK_TIMEOUT) | int64 -}}
{{- $request := include "forgerun.seconds" (default "5s" $config.FORGERUN_DB_TIMEOUT) | int64 | mul 2 -}}
{{- add (default 0 .preStopSeconds) (max $work $delivery $request) 30 -}}
{{- end -}}

{{/* Nine tenths of a memory limit in Mi or Gi: Go does not look at the container's. Another unit: nothing. */}}
{{- define "forgerun.memory" -}}
{{- if regexMatch "^[0-9]+(Mi|Gi)$" . -}}
{{- printf "%dMiB" (div (mul (regexFind "[0-9]+" . | int64) (ternary 1024 1 (hasSuffix "Gi" .)) 9) 10) -}}
{{- end -}}
{{- end -}}

{{/* A variable whose value is in a Secret that is there. Call it with (dict "root" $ "variable" NAME "of" .Values.secrets.NAME). */}}
{{- define "forgerun.secret" -}}
- name: {{ .variable }}
  valueFrom:
    secretKeyRef: {name: {{ default .root.Values.secrets.existingSecret .of.secret | quote }}, key: {{ .of.key | quote }}, optional: false}
{{- end -}}

{{/* The environment of a role: variables with values of the chart, then those of "config", then extraEnv as it is. */}}
{{- define "forgerun.env" -}}
{{- $secrets := .root.Values.secrets -}}
{{ include "forgerun.secret" (dict "root" .root "variable" "FORGERUN_DATABASE_URL" "of" $secrets.databaseURL) }}
{{ include "forgerun.secret" (dict "root" .root "variable" "FORGERUN_REDIS_URL" "of" $secrets.redisURL) }}
{{ include "forgerun.secret" (dict "root" .root "variable" "FORGERUN_ADMIN_TOKEN" "of" $secrets.adminToken) }}
{{- if $secrets.adminReadToken.key }}
{{ include "forgerun.secret" (dict "root" .root "variable" "FORGERUN_ADMIN_READ_TOKEN" "of" $secrets.adminReadToken) }}
{{- end }}
{{- if ne .role "worker" }}
{{ include "forgerun.secret" (dict "root" .root "variable" "FORGERUN_MASTER_KEY" "of" $secrets.masterKey) }}
{{- end }}
{{- if eq .role "api" }}
- {name: FORGERUN_HTTP_ADDR, value: "0.0.0.0:8080"}
{{- end }}
- {name: FORGERUN_ADMIN_ADDR, value: "0.0.0.0:8081"}
- {name: FORGERUN_PUBLIC_URL, value: {{ include "forgerun.publicURL" .root | quote }}}
{{- with include "forgerun.memory" (toString (dig "limits" "memory" "" .of.resources)) }}
- {name: GOMEMLIMIT, value: {{ . | quote }}}
{{- end }}
{{- range $name, $value := .of.config }}
- name: {{ $name }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- with .of.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What holds for each pod: no root, no token of the cluster's API, nothing written but /tmp. The number is the
     user of the image. */}}
{{- define "forgerun.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "forgerun.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsNonRoot: true, capabilities: {drop: [ALL]}}
{{- end -}}
