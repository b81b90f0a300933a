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
)

// enforceAnnotation on an account limits the Secrets of Pods that use it.
const enforceAnnotation = "kubernetes.io/enforce-mountable-secrets"

// usage is the kind of a field that names a Secret.
type usage int

const (
	secretVolume usage = iota
	otherVolume        // of another type; kube-apiserver's plugin does not limit these, so neither do we
	environment
	environmentFrom
	pullSecret
)

const roleEphemeral = "ephemeral container"

// secretReference is one field of a Pod that names a Secret of its namespace.
type secretReference struct {
	usage  usage
	secret string // may be empty
	role   string // of the container, as in messages
	owner  string // the name of the container
	field  string // the name of the variable
	index  int    // of the pull secret
}

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
	for _, reference := range spec.secretReferences() {
		if err := ctx.Err(); err != nil {
			return err
		}
		limited, listed := reference.usage != otherVolume && update == (reference.role == roleEphemeral), mountable
		if reference.usage == pullSecret {
			listed = pullable
		}
		if limited && !listed.Has(reference.secret) {
			return admission.Forbidden(request, errors.New(reference.refusal(account.Name)))
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
func (r secretReference) refusal(account string) string {
	var what string
	r.secret, r.owner, r.field = admission.Short(r.secret), admission.Short(r.owner), admission.Short(r.field)
	switch r.usage {
	case pullSecret:
		return "imagePullSecrets[" + strconv.Itoa(r.index) + "].name=\"" + r.secret +
			"\" is not allowed because service account " + account + " does not reference that imagePullSecret"
	case secretVolume:
		what = "volume with secret.secretName"
	case environment:
		what = r.role + " " + r.owner + " with envVar " + r.field + " referencing secret.secretName"
	case environmentFrom:
		what = r.role + " " + r.owner + " with envFrom referencing secret.secretName"
	case otherVolume: // not limited
	}
	return what + "=\"" + r.secret + "\" is not allowed because service account " + account + " does not reference that secret"
}

// secretReferences returns every field of the spec that names a Secret: volumes first, then
// containers, pull secrets last. No other code knows these fields.
func (s *podSpec) secretReferences() []secretReference {
	var found []secretReference
	for i := range s.Volumes {
		found = append(found, s.Volumes[i].secretReferences()...)
	}
	for _, list := range s.containerLists() {
		for _, c := range list.containers {
			found = append(found, c.secretReferences(list.role)...)
		}
	}
	for i, pull := range s.ImagePullSecrets {
		found = append(found, secretReference{usage: pullSecret, secret: pull.Name, index: i})
	}
	return found
}

func (c *container) secretReferences(role string) []secretReference {
	var found []secretReference
	for _, env := range c.Env {
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			found = append(found, secretReference{usage: environment, secret: ref.Name, role: role, owner: c.Name, field: env.Name})
		}
	}
	for _, source := range c.EnvFrom {
		if ref := source.SecretRef; ref != nil {
			found = append(found, secretReference{usage: environmentFrom, secret: ref.Name, role: role, owner: c.Name})
		}
	}
	return found
}

func (v *volume) secretReferences() []secretReference {
	var found []secretReference
	if v.Secret != nil {
		found = append(found, secretReference{usage: secretVolume, secret: v.Secret.SecretName})
	}
	others := []*named{
		v.CSI.NodePublishSecretRef, v.CephFS.SecretRef, v.Cinder.SecretRef, v.FlexVolume.SecretRef, v.ISCSI.SecretRef,
		v.RBD.SecretRef, v.ScaleIO.SecretRef, v.StorageOS.SecretRef,
	}
	for _, source := range v.Projected.Sources {
		others = append(others, source.Secret)
	}
	if v.AzureFile != nil {
		others = append(others, &named{v.AzureFile.SecretName})
	}
	for _, other := range others {
		if other != nil {
			found = append(found, secretReference{usage: otherVolume, secret: other.Name})
		}
	}
	return found
}

// checkMirror refuses a mirror pod that uses accounts or Secrets: a kubelet must not obtain an
// account's identity or Secrets by creating Pods.
func (p *Plugin) checkMirror(request *admission.Request, pod *pod) error {
	if pod.Spec.accountName() != "" {
		return admission.Forbidden(request, errors.New("a mirror pod may not reference service accounts"))
	}
	for _, reference := range pod.Spec.secretReferences() {
		if reference.secret != "" {
			return admission.Forbidden(request, errors.New("a mirror pod may not reference secrets"))
		}
	}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].projectsToken() {
			return admission.Forbidden(request, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
		}
	}
	return nil
}

func (v *volume) projectsToken() bool {
	return slices.ContainsFunc(v.Projected.Sources, func(p projection) bool { return p.ServiceAccountToken != nil })
}
