// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

// refusedPods are further oddPods: account names that cannot exist, mirror pods with every kind of reference, limits that
// are broken in several places, of which the first is named, and kinds of volumes.
func refusedPods() map[string]odd {
	const (
		mirror  = `"annotations":{"kubernetes.io/config.mirror":"h"}`
		onNode  = oneContainer + `,"nodeName":"n"`
		secrets = `"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"e","key":"k"}}}],"envFrom":[{"secretRef":{"name":"f"}}]`
		iscsi   = `{"name":"v","iscsi":{"targetPortal":"1.2.3.4","iqn":"iqn.2001-04.com.example:x","lun":0,"secretRef":{"name":"s"}}}`
	)
	projected := func(source string) string { return `{"name":"v","projected":{"sources":[` + source + `]}}` }
	volumes := func(list string) string { return oneContainer + `,"volumes":[` + list + `]` }
	pods := map[string]odd{
		"account with a slash":    {spec: oneContainer + `,"serviceAccountName":"a/b"`},
		"account with a percent":  {spec: oneContainer + `,"serviceAccountName":"a%b"`},
		"account of a dot":        {spec: oneContainer + `,"serviceAccountName":"."`},
		"account of dots":         {spec: oneContainer + `,"serviceAccountName":".."`},
		"account with a blank":    {spec: oneContainer + `,"serviceAccountName":" default"`},
		"mirror pod, old name":    {mirror, onNode + `,"serviceAccount":"default"`},
		"mirror pod, variable":    {mirror, `"nodeName":"n","containers":[{"name":"a","image":"i",` + secrets + `}]`},
		"mirror pod, init":        {mirror, onNode + `,"initContainers":[{"name":"b","image":"i",` + secrets + `}]`},
		"mirror pod, pull secret": {mirror, onNode + `,"imagePullSecrets":[{"name":"p"}]`},
		"mirror pod, nameless":    {mirror, onNode + `,"imagePullSecrets":[{}]`},
		"mirror pod, config map":  {mirror, onNode + `,"volumes":[{"name":"v","configMap":{"name":"c"}}]`},
		"mirror pod, host path":   {mirror, onNode + `,"volumes":[{"name":"v","hostPath":{"path":"/x"}}]`},
		"mirror pod, token":       {mirror, onNode + `,"volumes":[` + projected(`{"serviceAccountToken":{"path":"t"}}`) + `]`},
		"mirror pod, projected":   {mirror, onNode + `,"volumes":[` + projected(`{"secret":{"name":"s"}}`) + `]`},
		"mirror pod, iscsi":       {mirror, onNode + `,"volumes":[` + iscsi + `]`},
		"mirror pod, nowhere":     {mirror, oneContainer},
		"limits, all": {spec: `"volumes":[{"name":"v","secret":{"secretName":"s"}}],"imagePullSecrets":[{"name":"p"}],` +
			`"containers":[{"name":"a","image":"i",` + secrets + `}]`},
		"limits, init first": {spec: `"containers":[{"name":"a","image":"i",` + secrets + `}],` +
			`"initContainers":[{"name":"b","image":"i",` + secrets + `}]`},
		"limits, pull secret last": {spec: `"containers":[{"name":"a","image":"i","envFrom":[{"secretRef":{"name":"listed"}}]}],` +
			`"imagePullSecrets":[{"name":"mirror-registry"},{"name":"p"}]`},
		"iscsi secret": {spec: volumes(iscsi)},
		"image volume": {spec: volumes(`{"name":"v","image":{"reference":"r"}}`)},
		"trust bundle": {spec: volumes(projected(`{"clusterTrustBundle":{"name":"b","path":"p"}}`))},
		"pod certificate": {spec: volumes(projected(
			`{"podCertificate":{"signerName":"a.example/b","keyType":"ED25519","credentialBundlePath":"c"}}`))},
		"claims": {spec: oneContainer + `,"resourceClaims":[{"name":"c","resourceClaimName":"r"}]`},
		"nameless variable": {
			spec: `"containers":[{"name":"a","image":"i",` + `"env":[{"name":"A","valueFrom":{"secretKeyRef":{"key":"k"}}}]}]`,
		},
		"six hundred containers": {spec: `"containers":[` + many(600) + `]`},
	}
	return pods
}
