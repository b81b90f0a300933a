// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/podsecrets"
)

// enforceAnnotation on an account limits the Secrets of Pods that use it.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

// limitSecrets refuses a Pod that refers to a Secret its account does not list, if limits are
// enforced.
func (p *Plugin) limitSecrets(ctx context.Context, request *admission.Request, account *corev1.ServiceAccount, spec *podSpec) error {
	if !p.config.LimitSecretReferences && !enforces(account) {
		return nil
	}
	mountable, pullable := sets.New[string](), sets.New[string]()
	for _, one := range account.Secrets {
		mountable.Insert(one.Name)
	}
	for _, one := range account.ImagePullSecrets {
		pullable.Insert(one.Name)
	}
	// An update can only add ephemeral containers, and a creation cannot have any.
	update := addsEphemeralContainer(request)
	for _, reference := range spec.References() {
		if err := ctx.Err(); err != nil {
			return err
		}
		// kube-apiserver's plugin does not limit volumes of other types, so neither do we.
		limited, listed := reference.Kind != podsecrets.OtherVolume && update == (reference.Role == podsecrets.RoleEphemeral), mountable
		if reference.Kind == podsecrets.PullSecret {
			listed = pullable
		}
		if limited && !listed.Has(reference.Secret) {
			return admission.Forbidden(request, errors.New(refusal(reference, account.Name)))
		}
	}
	return nil
}

// enforces reports whether the account's annotation is true. An invalid value counts as false.
func enforces(account *corev1.ServiceAccount) bool {
	enforce, err := strconv.ParseBool(account.Annotations[enforceAnnotation])
	return err == nil && enforce
}

// refusal has upstream's text, because users match on it. Like upstream it does not escape names.
func refusal(r podsecrets.Reference, account string) string {
	var what string
	r.Secret, r.Container, r.Variable = admission.Short(r.Secret), admission.Short(r.Container), admission.Short(r.Variable)
	switch r.Kind {
	case podsecrets.PullSecret:
		return "imagePullSecrets[" + strconv.Itoa(r.Index) + "].name=\"" + r.Secret +
			"\" is not allowed because service account " + account + " does not reference that imagePullSecret"
	case podsecrets.SecretVolume:
		what = "volume with secret.secretName"
	case podsecrets.Environment:
		what = r.Role + " " + r.Container + " with envVar " + r.Variable + " referencing secret.secretName"
	case podsecrets.EnvironmentFrom:
		what = r.Role + " " + r.Container + " with envFrom referencing secret.secretName"
	case podsecrets.OtherVolume: // not limited
	}
	return what + "=\"" + r.Secret + "\" is not allowed because service account " + account + " does not reference that secret"
}

// checkMirror refuses a mirror pod that uses accounts or Secrets: a kubelet must not obtain an
// account's identity or Secrets by creating Pods.
func (p *Plugin) checkMirror(request *admission.Request, pod *pod) error {
	if pod.Spec.accountName() != "" {
		return admission.Forbidden(request, errors.New("a mirror pod may not reference service accounts"))
	}
	for _, reference := range pod.Spec.References() {
		if reference.Secret != "" {
			return admission.Forbidden(request, errors.New("a mirror pod may not reference secrets"))
		}
	}
	for i := range pod.Spec.Volumes {
		if projectsToken(&pod.Spec.Volumes[i]) {
			return admission.Forbidden(request, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
		}
	}
	return nil
}

func projectsToken(v *podsecrets.Volume) bool {
	return slices.ContainsFunc(v.Projected.Sources, func(p podsecrets.Projection) bool { return p.ServiceAccountToken != nil })
}
