// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/admission"
)

const (
	// enforceAnnotation on an account limits the Secrets of Pods that use it.
	enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

	// auditStrict is the audit annotation of a refusal that only strict mode makes.
	auditStrict = "strict-mountable-secrets"
)

// limitSecrets refuses a Pod that refers to a Secret its account does not list, if
// that is to be enforced.
func (p *Plugin) limitSecrets(request *admission.Request, account *corev1.ServiceAccount, spec *podSpec, response *admission.Response) error {
	if !p.config.LimitSecretReferences && !enforces(account) {
		return nil
	}
	mountable := mountableSecrets(account)
	pulls := pullSecrets(account)
	for _, reference := range spec.secretReferences() {
		allowed := mountable
		if reference.usage == pullSecret {
			allowed = pulls
		}
		if allowed.Has(reference.secret) || !p.limits(request, reference) {
			continue
		}
		refusal := reference.refusal(account.Name)
		if !reference.limitedUpstream() {
			annotate(response, auditStrict, refusal)
		}
		return admission.Forbidden(request, errors.New(refusal))
	}
	return nil
}

// limits tells whether request can be refused for reference. All that an update may
// have brought is ephemeral containers. A creation cannot bring any, but strict mode
// does not rely on it.
func (p *Plugin) limits(request *admission.Request, reference secretReference) bool {
	if addsEphemeralContainer(request) {
		return reference.role == roleEphemeral
	}
	return p.config.StrictMountableSecrets || reference.limitedUpstream() && reference.role != roleEphemeral
}

// limitedUpstream tells whether kube-apiserver's plugin checks such a field.
func (r secretReference) limitedUpstream() bool { return r.usage != otherVolume }

// enforces reads the account's annotation. What is no boolean means no.
func enforces(account *corev1.ServiceAccount) bool {
	enforce, err := strconv.ParseBool(account.Annotations[enforceAnnotation])
	return err == nil && enforce
}

func mountableSecrets(account *corev1.ServiceAccount) sets.Set[string] {
	names := sets.New[string]()
	for _, reference := range account.Secrets {
		names.Insert(reference.Name)
	}
	return names
}

func pullSecrets(account *corev1.ServiceAccount) sets.Set[string] {
	names := sets.New[string]()
	for _, reference := range account.ImagePullSecrets {
		names.Insert(reference.Name)
	}
	return names
}

// refusal has upstream's words for the fields that upstream limits, because people
// match on them. Names are not escaped, as upstream does not.
func (r secretReference) refusal(account string) string {
	var what string
	switch r.usage {
	case pullSecret:
		return "imagePullSecrets[" + strconv.Itoa(r.index) + "].name=\"" + r.secret +
			"\" is not allowed because service account " + account + " does not reference that imagePullSecret"
	case secretVolume:
		what = "volume with secret.secretName"
	case otherVolume:
		what = "volume " + r.owner + " with " + r.field
	case environment:
		what = r.role + " " + r.owner + " with envVar " + r.field + " referencing secret.secretName"
	case environmentFrom:
		what = r.role + " " + r.owner + " with envFrom referencing secret.secretName"
	}
	return what + "=\"" + r.secret + "\" is not allowed because service account " + account + " does not reference that secret"
}
