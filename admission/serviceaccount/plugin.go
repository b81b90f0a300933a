// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount makes the decisions of kube-apiserver's own ServiceAccount plugin
// (k8s.io/kubernetes plugin/pkg/admission/serviceaccount, v1.37.2).
//
// A new Pod gets an account, the account's pull secrets and a volume with a token. It is refused if
// its account does not exist or if it refers to Secrets that the account does not allow. The latter
// also applies to added ephemeral containers. Mirror pods are never changed.
//
// The plugin decodes only the fields of the Pod that it needs and returns operations that add to
// it. It never encodes a Pod, so that fields of newer APIs survive. Admission is idempotent,
// because kube-apiserver calls again after other webhooks have changed the Pod.
//
// A Plugin is immutable and safe for concurrent use. Admit may wait for an account or a token that
// is being created, Validate never waits. Waiting does not poll: the informers' handlers wake the
// waiting requests.
package serviceaccount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
)

const (
	defaultAccount     = "default"
	ephemeralContainer = "ephemeralcontainers"

	// auditCreated is the audit annotation on a request that has created its account.
	auditCreated = "created-service-account"
)

// Plugin is the ServiceAccount admission plugin. Build it with New.
type Plugin struct {
	admission.Handler

	config     Config
	from       Dependencies
	projection jsontext.Value // the content of every projected token volume
}

var _ admission.Plugin = (*Plugin)(nil)

// New returns the plugin. It is ready; use SetReadyChannels to wait for the first lists of
// the informers.
func New(config Config, from Dependencies) *Plugin {
	return &Plugin{config: config, from: from, projection: encodedProjection()}
}

// Rules are those of a webhook configuration for Admit and for Validate: ephemeral containers are validated and not changed.
func Rules() (mutating, validating []admissionregistrationv1.RuleWithOperations) {
	created := admission.PodRule("pods", admission.Create)
	return []admissionregistrationv1.RuleWithOperations{created},
		[]admissionregistrationv1.RuleWithOperations{created, admission.PodRule("pods/"+ephemeralContainer, admission.Update)}
}

// Admit adds to a new Pod what it lacks and then refuses it for the reasons of Validate, so that a
// cluster with the mutating webhook alone enforces everything. It may wait until ctx ends.
func (p *Plugin) Admit(ctx context.Context, request *admission.Request, response *admission.Response) error {
	if !createsPod(request) {
		return nil
	}
	pod, err := decodePod(request)
	if err != nil || pod == nil {
		return err
	}
	// The kubelet deletes a mirror pod that differs from its static pod.
	if pod.isMirror() {
		return p.checkMirror(request, pod)
	}
	edits := newEdits(pod)
	account, err := p.complete(ctx, request, edits, response)
	if err != nil {
		return err
	}
	if err := p.limitSecrets(ctx, request, account, pod.Spec); err != nil {
		return err
	}
	operations, err := edits.result()
	if err != nil {
		return admission.Internal(err)
	}
	response.Patch = append(response.Patch, operations...)
	return nil
}

// complete adds to the Pod what it lacks and returns its account.
func (p *Plugin) complete(ctx context.Context, request *admission.Request, edits *edits,
	response *admission.Response) (*corev1.ServiceAccount, error) {
	edits.setAccount(cmp.Or(edits.pod.Spec.accountName(), defaultAccount))
	account, err := p.account(ctx, request, edits.pod, response, create)
	if err != nil {
		return nil, err
	}
	if p.config.wantsToken(edits.pod, account) {
		if account, err = p.mountToken(ctx, request, edits, account); err != nil {
			return nil, err
		}
	}
	if len(edits.pod.Spec.ImagePullSecrets) == 0 {
		edits.addPullSecrets(account.ImagePullSecrets)
	}
	return account, nil
}

// Validate refuses a Pod whose account does not exist or does not allow the Pod's references.
func (p *Plugin) Validate(ctx context.Context, request *admission.Request, response *admission.Response) error {
	if !createsPod(request) && !addsEphemeralContainer(request) {
		return nil
	}
	pod, err := decodePod(request)
	if err != nil || pod == nil {
		return err
	}
	if createsPod(request) && pod.isMirror() {
		return p.checkMirror(request, pod)
	}
	if pod.Spec.accountName() == "" {
		return admission.Forbidden(request, fmt.Errorf("no service account specified for pod %s/%s", request.Namespace,
			admission.Short(pod.Metadata.Name)))
	}
	account, err := p.account(ctx, request, pod, response, lookupOnly)
	if err != nil {
		return err
	}
	return p.limitSecrets(ctx, request, account, pod.Spec)
}

// account returns the account that the Pod names, or a refusal.
func (p *Plugin) account(ctx context.Context, request *admission.Request, pod *pod, response *admission.Response,
	mode lookupMode) (*corev1.ServiceAccount, error) {
	name := cache.NewObjectName(request.Namespace, pod.Spec.accountName())
	if request.DryRun || request.NoWait && p.from.Ensure == nil {
		mode = lookupOnly // a dry run must not create anything
	}
	account, made, err := p.from.findAccount(ctx, name, mode)
	if made {
		response.Annotate(auditCreated, name.String())
	}
	if err != nil {
		return nil, accountRefusal(request, name, err)
	}
	return account, nil
}

// accountRefusal has upstream's text, and its status unless the API fails: then the Pod may be fine. What
// else the API says is about the name or the namespace, also where it cannot create the account.
func accountRefusal(request *admission.Request, name cache.ObjectName, err error) error {
	if errors.Is(err, errTooManyWaiters) {
		return tooManyWaiters()
	}
	refused := len(content.IsPathSegmentName(name.Name)) > 0 // client-go does not ask
	if api := apierrors.APIStatus(nil); errors.As(err, &api) {
		code := api.Status().Code
		refused = code < http.StatusInternalServerError && code != http.StatusTooManyRequests && code != http.StatusUnauthorized
	}
	err = fmt.Errorf("error looking up service account %s: %w", name, err)
	if refused {
		return admission.Forbidden(request, textOnlyError{err})
	}
	return admission.Internal(err)
}

// textOnlyError hides the status of an error, so that it is not the answer's.
type textOnlyError struct{ error }

// automounts reports whether the Pod wants a token mounted. The Pod's field takes precedence over
// the account's.
func automounts(pod *pod, account *corev1.ServiceAccount) bool {
	wish := cmp.Or(pod.Spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken)
	return wish == nil || *wish
}

func createsPod(request *admission.Request) bool {
	return isPod(request) && request.SubResource == "" && request.Operation == admission.Create
}

func addsEphemeralContainer(request *admission.Request) bool {
	return isPod(request) && request.SubResource == ephemeralContainer && request.Operation == admission.Update
}

func isPod(request *admission.Request) bool {
	return request.Resource.Group == "" && request.Resource.Resource == "pods" && request.Kind == podKind && request.Object != nil
}
