{{/* The begin of every name. 40 characters leave room for what follows it. */}}
{{- define "quotient.name" -}}
{{- $name := ternary .Release.Name (printf "%s-quotient" .Release.Name) (contains "quotient" .Release.Name) -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels by which pods of a component are selected: (list $ "etcd"). */}}
{{- define "quotient.selector" -}}
app.kubernetes.io/name: quotient
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "quotient.labels" -}}
{{ include "quotient.selector" . }}
{{- with index . 0 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- end -}}

{{/* What all objects begin with: (list $ component suffix). */}}
{{- define "quotient.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "quotient.name" $root }}{{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "quotient.labels" . | nindent 2 }}
{{- end -}}

{{/* The metadata of a component's pods: (list $ component). No label of the chart's version:
an upgrade that changes nothing restarts nothing. */}}
{{- define "quotient.podMetadata" -}}
labels:
  {{- include "quotient.selector" . | nindent 2 }}
{{- with (index . 0).Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What all pods have: (list $ user group). */}}
{{- define "quotient.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ include "quotient.name" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ index . 1 }}
  runAsGroup: {{ index . 2 }}
  fsGroup: {{ index . 2 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "quotient.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "quotient.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "quotient.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.pullPolicy }}
{{- end -}}

{{/* The host names of etcd's members. */}}
{{- define "quotient.members" -}}
{{- $etcd := printf "%s-etcd" (include "quotient.name" .) -}}
{{- $names := list -}}
{{- range until (int .Values.etcd.members) -}}
{{- $names = append $names (printf "%s-%d.%s.%s.svc.%s" $etcd . $etcd $.Release.Namespace $.Values.clusterDomain) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{- define "quotient.endpoints" -}}
{{- if .Values.etcd.enabled -}}
{{- $urls := list -}}
{{- range splitList "," (include "quotient.members" .) -}}
{{- $urls = append $urls (printf "https://%s:2379" .) -}}
{{- end -}}
{{- join "," $urls -}}
{{- else -}}
{{- join "," .Values.etcd.endpoints -}}
{{- end -}}
{{- end -}}

{{/* The Secret with a user's certificate: (list $ "quotad"). */}}
{{- define "quotient.secret" -}}
{{- $root := index . 0 -}}
{{- $key := index . 1 -}}
{{- $given := index $root.Values.certificates.secrets $key -}}
{{- if $given -}}
{{- $given -}}
{{- else if $root.Values.certificates.certManager.enabled -}}
{{- include "quotient.name" $root }}-{{ $key }}
{{- else -}}
{{- fail (printf "certificates.secrets.%s is empty: name a Secret with ca.crt, tls.crt and tls.key, or set certificates.certManager.enabled" $key) -}}
{{- end -}}
{{- end -}}

{{/* How quota-admin and quotad reach etcd; the certificate is mounted at /etc/quotient/KEY. */}}
{{- define "quotient.etcdEnv" -}}
{{- $root := index . 0 -}}
{{- $at := printf "/etc/quotient/%s" (index . 1) -}}
- name: QUOTIENT_ENDPOINTS
  value: {{ include "quotient.endpoints" $root | quote }}
- name: QUOTIENT_PREFIX
  value: {{ $root.Values.etcd.prefix | quote }}
- name: QUOTIENT_CACERT
  value: {{ $at }}/ca.crt
- name: QUOTIENT_CERT
  value: {{ $at }}/tls.crt
- name: QUOTIENT_KEY
  value: {{ $at }}/tls.key
{{- end -}}

{{- define "quotient.tlsMount" -}}
- name: tls-{{ . }}
  mountPath: /etc/quotient/{{ . }}
  readOnly: true
{{- end -}}

{{- define "quotient.tlsVolume" -}}
- name: tls-{{ index . 1 }}
  secret:
    secretName: {{ include "quotient.secret" . }}
    defaultMode: 0440
{{- end -}}

{{/* Who may use which providers, as JSON: quotad, and the consumers. */}}
{{- define "quotient.consumers" -}}
{{- $all := deepCopy .Values.consumers -}}
{{- range list "etcd" "root" "operator" "dashboard" "quotad" "ca" "self-signed" -}}
{{- if hasKey $all . -}}
{{- fail (printf "consumers.%s: the chart uses this name itself; choose another" .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.quotad.enabled -}}
{{- $_ := set $all "quotad" (.Values.quotad.providers | default (keys .Values.policies | sortAlpha)) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* The rules by which a pod reaches names and etcd. */}}
{{- define "quotient.egress" }}
    - ports: # DNS
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
{{- if .Values.etcd.enabled }}
    - to:
        - podSelector:
            matchLabels:
              {{- include "quotient.selector" (list . "etcd") | nindent 14 }}
      ports:
        - {port: 2379, protocol: TCP}
{{- else }}
    - ports: # etcd is elsewhere
        {{- $ports := list }}
        {{- range .Values.etcd.endpoints }}
        {{- $ports = append $ports (regexFind "[0-9]+$" .) }}
        {{- end }}
        {{- range uniq $ports }}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
{{- end }}
{{- end }}
