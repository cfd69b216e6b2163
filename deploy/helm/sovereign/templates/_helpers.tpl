{{/* The name of all objects: that of the release. */}}
{{- define "sovereign.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "sovereign.account" -}}
{{- .Values.serviceAccount.name | default (include "sovereign.name" .) -}}
{{- end -}}

{{- define "sovereign.selector" -}}
app.kubernetes.io/name: sovereign
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sovereign.labels" -}}
{{ include "sovereign.selector" . }}
app.kubernetes.io/version: {{ include "sovereign.tag" . | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "sovereign.metadata" -}}
name: {{ include "sovereign.name" . }}
namespace: {{ .Release.Namespace }}
labels: {{- include "sovereign.labels" . | nindent 2 }}
{{- end -}}

{{- define "sovereign.tag" -}}
{{- .Values.image.tag | default .Chart.AppVersion -}}
{{- end -}}

{{/* The configuration file: what the chart sets, over config. */}}
{{- define "sovereign.config" -}}
{{- $set := dict "limits" (dict "drain" (printf "%ds" (int .Values.drainSeconds))) -}}
{{- with .Values.engines }}
{{- if .enabled }}
{{- $kubernetes := dict "namespace" .namespace "gateway_namespace" $.Release.Namespace
      "gateway_labels" (list "app.kubernetes.io/name=sovereign"
        (printf "app.kubernetes.io/instance=%s" $.Release.Name)) -}}
{{- if .claim }}
{{- $_ := set $kubernetes "claim" .claim }}
{{- $_ := set $kubernetes "claim_path" "/data/store/engines" }}
{{- end }}
{{- $_ := set $set "kubernetes" $kubernetes }}
{{- $_ := set $set "serving" (dict "backend" "kubernetes") }}
{{- end }}
{{- end }}
{{- toYaml (mergeOverwrite (deepCopy .Values.config) $set) -}}
{{- end -}}

{{/* What the schema cannot say. */}}
{{- define "sovereign.check" -}}
{{- with .Values }}
{{- if not .rootKey.secret }}
{{- fail "rootKey.secret is missing: the Secret with the root key, the same for all servers (see README.md)" }}
{{- end }}
{{- if and (gt (int .replicas) 1) (not .database.secret) }}
{{- fail "database.secret is missing: several servers need one PostgreSQL, whose URL is in this Secret" }}
{{- end }}
{{- if and .engines.enabled (not .engines.namespace) }}
{{- fail "engines.namespace is missing: the namespace of engines and training Jobs" }}
{{- end }}
{{- if ne (empty .engines.claim) (empty .engines.serverClaim) }}
{{- fail "engines.claim and engines.serverClaim go together: two claims of one volume" }}
{{- end }}
{{- if and .serviceMonitor.enabled .networkPolicy.enabled (not .networkPolicy.metricsFrom) }}
{{- fail "networkPolicy.metricsFrom is empty: with serviceMonitor.enabled it must name who reads the metrics" }}
{{- end }}
{{- if and .ingress.enabled (not .ingress.hosts) }}
{{- fail "ingress.hosts is empty" }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The environment takes precedence over the configuration file, and admin commands in a pod need no --config. */}}
{{- define "sovereign.env" -}}
- {name: SOVEREIGN_LISTEN, value: "0.0.0.0:8080"}
- {name: SOVEREIGN_OPERATIONS_LISTEN, value: "0.0.0.0:9090"}
- {name: SOVEREIGN_DATA_DIR, value: /data/store}
- {name: SOVEREIGN_ROOT_KEY_FILE, value: /etc/sovereign-root-key/root.key}
{{- with .Values.database }}
{{- if .secret }}
- name: SOVEREIGN_DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ .key | quote }}}
{{- end }}
{{- end }}
{{- range $name, $from := .Values.secretEnv }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ $from.secret }}, key: {{ $from.key | quote }}}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}
