// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/notify"
	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

// apiserver is a clientset that calls webhooks for probe Pods the way kube-apiserver
// does, as far as a proof depends on it.
type apiserver struct {
	*fake.Clientset

	mu       sync.Mutex
	down     error          // what calling the webhook fails with
	noToken  error          // what the mutating webhook says of a probe that wants a token
	accepted []byte         // the caBundle that the serving certificate is of
	bound    func() []entry // what is called in place of the configuration in the API, if not nil
	url      string         // where the webhook is; anywhere if empty
	ca       *servingCA
	responds ProbeResponder
	warnings []string
	refuses  error // what comes after the webhook says
	idle     int   // connections that it has and would use first
	dial     error // what a new one fails with
}

// servingCA is a source of caBundles. It keeps which of them are registered.
type servingCA struct {
	notify.Change[[]byte]

	mu         sync.Mutex
	bundle     []byte
	registered [][]byte
	inherited  bool
}

func (s *servingCA) CABundle() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bundle
}

func (s *servingCA) set(bundle []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bundle = bundle
	s.Notify(bundle)
}

func (s *servingCA) Registered(caBundles [][]byte, inherited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registered, s.inherited = caBundles, inherited
}

// has is what is registered, each caBundle once.
func (s *servingCA) has() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, bundle := range s.registered {
		all = append(all, string(bundle))
	}
	return slices.Compact(all)
}

func newAPIServer(t *testing.T, objects ...runtime.Object) *apiserver {
	t.Helper()
	a := &apiserver{Clientset: fake.NewClientset(objects...), accepted: caPEM(t)}
	a.ca = &servingCA{bundle: a.accepted}
	a.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod, err := a.admit(action.(clienttesting.CreateActionImpl))
		return true, pod, err
	})
	return a
}

// admit calls the webhooks that match a probe Pod.
func (a *apiserver) admit(action clienttesting.CreateActionImpl) (*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := action.GetObject().(*corev1.Pod).DeepCopy()
	if !slices.Equal(action.CreateOptions.DryRun, []string{metav1.DryRunAll}) {
		return nil, errors.New("a Pod was really created")
	}
	for _, one := range a.mutatingEntries() {
		if exempt(one) {
			continue
		}
		if !bytes.Equal(one.ClientConfig.CABundle, a.accepted) {
			return nil, apierrors.NewInternalError(errors.New(`failed calling webhook "` + one.Name + `": x509: unknown authority`))
		}
		first := a.idle == 0
		if a.down != nil || first && a.dial != nil {
			return nil, apierrors.NewInternalError(cmp.Or(a.down, a.dial))
		}
		a.idle = max(0, a.idle-1) // each answer closes one
		if a.url != "" && *one.ClientConfig.URL != a.url {
			return nil, apierrors.NewInternalError(errors.New(`failed calling webhook "` + one.Name + `": connection refused`))
		}
		if wants := pod.Spec.AutomountServiceAccountToken; a.noToken != nil && (wants == nil || *wants) {
			return nil, a.noToken
		}
		a.answer(pod, first)
		if a.refuses != nil {
			return nil, a.refuses
		}
	}
	return pod, nil
}

func (a *apiserver) mutatingEntries() []entry {
	if a.bound != nil {
		return a.bound()
	}
	obj, err := a.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"), "", Name)
	if err != nil {
		return nil // no configuration, no call
	}
	return obj.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks
}

func exempt(one entry) bool {
	return slices.ContainsFunc(one.MatchConditions,
		func(c admissionregistrationv1.MatchCondition) bool { return c.Name == exceptProbeName })
}

func (a *apiserver) answer(pod *corev1.Pod, first bool) {
	encoded, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	response := &admission.Response{}
	a.responds.Probe(&admission.Request{DryRun: true, First: first, Object: encoded}, response, true)
	if !response.Close {
		panic("the connection stays")
	}
	for _, operation := range response.Patch {
		var value string
		if err := json.Unmarshal(operation.Value, &value); err != nil {
			panic(err)
		}
		pod.Annotations[strings.ReplaceAll(strings.TrimPrefix(operation.Path, "/metadata/annotations/"), "~1", "/")] = value
	}
}

func (a *apiserver) breaks(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = err
}

// lets sets what a does from now on.
func (a *apiserver) lets(now func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now()
}

func (a *apiserver) accepts(caBundle []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.accepted = caBundle
	a.ca.set(caBundle)
}

// counts returns the number of probes, and of writes of a configuration.
func (a *apiserver) counts() (probes, writes int) {
	for _, action := range a.Actions() {
		switch resource := action.GetResource().Resource; {
		case action.Matches("create", "pods"):
			probes++
		case strings.HasSuffix(resource, "webhookconfigurations") && (action.GetVerb() == "create" || action.GetVerb() == "update"):
			writes++
		}
	}
	return probes, writes
}

// Event makes it a sink of Events.
func (a *apiserver) Event(_ runtime.Object, _, reason, note string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warnings = append(a.warnings, reason+": "+note)
}

// recorded are the warnings so far.
func (a *apiserver) recorded() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.warnings)
}

// holds is what a configuration holds, by the names of its webhooks; "gone" without one.
func (a *apiserver) holds(t *testing.T, k kind) string {
	t.Helper()
	o := testutil.Get(k.in(a).get(t.Context()))(t)
	if o == nil {
		return "gone"
	}
	var names []string
	for _, one := range o.entries {
		if !bytes.Equal(one.ClientConfig.CABundle, a.accepted) {
			names = append(names, "damaged")
			continue
		}
		names = append(names, strings.Split(one.Name, ".")[0])
	}
	return strings.Join(names, ",")
}

func (a *apiserver) expect(t *testing.T, when, mutatingHolds, validatingHolds string) {
	t.Helper()
	testutil.Check(t, when+": the mutating one", mutatingHolds, a.holds(t, mutating))
	testutil.Check(t, when+": the validating one", validatingHolds, a.holds(t, validating))
}

func (a *apiserver) change(t *testing.T, k kind, change func(*object) *object) {
	t.Helper()
	testutil.Must(t, edit(t.Context(), a, k, change))
}

func (a *apiserver) remove(t *testing.T, k kind) {
	t.Helper()
	remove := a.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete
	if k == validating {
		remove = a.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete
	}
	testutil.Must(t, remove(t.Context(), Name, metav1.DeleteOptions{}))
}

func caPEM(t *testing.T) []byte {
	t.Helper()
	ca, _, err := pki.Issue(&x509.Certificate{NotAfter: time.Now().Add(time.Hour), IsCA: true}, nil, nil)
	testutil.Must(t, err)
	return pki.CertPEM(ca)
}
