// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"path"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/manifests"
)

const (
	registrationGroup = "admissionregistration.k8s.io"
	configuration     = "00-sa-controller-manager"
	servingCA         = "sa-controller-manager-webhook-ca"
)

// configurations are the resources of webhooks in the API.
var configurations = []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}

func webhookRules() []Rule {
	rules := []Rule{
		{Verbs: verbs("get", "list", "watch"), Resource: accounts, Why: "The account of a Pod. get: one that the cache does not have."},
		{
			If: issuesCertificate, Verbs: verbs("create"), Resource: secrets, Namespace: system,
			Why: "The serving CA. Not needed with --webhook-tls-cert-file. RBAC cannot restrict create to a name.",
		},
		{
			If: issuesCertificate, Verbs: verbs("list", "watch", "update"), Resource: secrets, Namespace: system, Name: servingCA,
			Why: "The serving CA is one Secret, which all replicas share.",
		},
		{
			If: registers, Verbs: verbs("create"), Resource: pods, Namespace: system,
			Why: "The probe Pod, created with dryRun only, by which kube-apiserver proves that it reaches the webhook.",
		},
		{
			If: registersStatic, Verbs: verbs("get"), Path: "/metrics",
			Why: "Only for --webhook-registration=static: which files kube-apiserver has loaded.",
		},
		{
			If: findsHosts, Verbs: verbs("list"), Group: leasesGroup, Resource: leases, Namespace: system,
			Why: "On which hosts kube-apiserver runs, by its identity Leases. Only for --webhook-registration=url with a loopback " +
				"address, and static. RBAC cannot restrict list to a label.",
		},
	}
	for _, resource := range configurations {
		rules = append(rules,
			Rule{
				If: registersInAPI, Verbs: verbs("create"), Group: registrationGroup, Resource: resource,
				Why: "Only for --webhook-registration=url or service. RBAC cannot restrict create to a name.",
			},
			Rule{
				If: registersInAPI, Verbs: verbs("get", "list", "watch"), Group: registrationGroup, Resource: resource, Name: configuration,
				Why: "list: for a kube-apiserver that does not send the first list through the watch. " +
					`get: for "webhook unregister" and "webhook register".`,
			},
			Rule{
				If: registersInAPI, Verbs: verbs("update"), Group: registrationGroup, Resource: resource, Name: configuration,
				Why: "Only for --webhook-registration=url or service.",
			})
	}
	completion, err := manifests.Completion()
	if err != nil {
		panic(err) // it is embedded
	}
	for _, object := range completion {
		rules = append(rules, Rule{
			If: registers, Verbs: verbs("get"), Group: registrationGroup, Resource: path.Base(path.Dir(object.Path())), Name: object.Name,
			Why: "Whether kube-apiserver completes ordinary Pods itself.",
		})
	}
	return append(rules,
		Rule{
			If: registers, Verbs: verbs("get"), Group: registrationGroup, Resource: "validatingadmissionpolicies", Name: podpolicy.Name,
			Why: "Whether Pods without an account are refused while the webhook is away.",
		},
		Rule{
			If: registers, Verbs: verbs("get", "patch"), Group: registrationGroup, Resource: "validatingadmissionpolicybindings",
			Name: podpolicy.Name,
			Why:  `The same. patch: for "webhook unregister" and "webhook register".`,
		})
}

// webhookOptionRules are for what no manifest turns on.
func webhookOptionRules() []Rule {
	return []Rule{
		{
			If: mountsTokenSecrets, Verbs: verbs("list", "watch"), Resource: secrets,
			Why: "Only for --pod-token=secret: which token Secret a Pod can be given. The process lists and watches only type " +
				"kubernetes.io/service-account-token.",
		},
	}
}
