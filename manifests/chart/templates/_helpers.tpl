{{- /* Copyright The sa-controller-manager Authors. */ -}}
{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The Pods of the Deployment, by these labels alone: a selector cannot be changed. */ -}}
{{- define "selector" -}}
app.kubernetes.io/name: sa-controller-manager
app.kubernetes.io/component: manager
{{- end -}}

{{- define "labels" -}}
{{ include "selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A document, with the common labels and more. */ -}}
{{- define "labelled" -}}
{{- $object := fromYaml .document -}}
{{- with merge (deepCopy .root.Values.commonLabels) (.labels | default dict) -}}
{{- $_ := merge $object (dict "metadata" (dict "labels" .)) -}}
{{- end -}}
{{- toYaml $object -}}
{{- end -}}

{{- /* What a container of the program has, whatever it runs. */ -}}
{{- define "container" -}}
name: sa-controller-manager
{{- with .Values.image }}
image: {{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command:
  - /usr/local/bin/sa-controller-manager
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  - name: token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  - name: pki
    mountPath: /etc/sa-controller-manager/pki
    readOnly: true
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- /* What its Pod has. Account and token are named here, so that it needs no admission plugin, and no
controller but the one that made it. */ -}}
{{- define "pod" -}}
serviceAccountName: sa-controller-manager
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: token
    projected:
      defaultMode: 0440
      sources:
        - serviceAccountToken:
            path: token
            expirationSeconds: 3607
        # Not kube-root-ca.crt, which this program may be what publishes.
        - secret:
            name: sa-controller-manager-pki
            items:
              - key: ca.crt
                path: ca.crt
        - downwardAPI:
            items:
              - path: namespace
                fieldRef:
                  apiVersion: v1
                  fieldPath: metadata.namespace
  - name: pki
    secret:
      secretName: sa-controller-manager-pki
      defaultMode: 0440
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
