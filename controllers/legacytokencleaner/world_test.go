// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// The tests live on 2023-05-10 at noon with a period of 30 days, so that the cutoff
// is 2023-04-10 at noon.
const (
	testPeriod = 30 * 24 * time.Hour
	today      = "2023-05-10"
	cutoffDay  = "2023-04-10"
	longAgo    = "2022-12-27"
)

func noon() time.Time { return time.Date(2023, 5, 10, 12, 0, 0, 0, time.UTC) }

// world is a cleaner and what surrounds it. Its caches hold what is live unless a test says
// otherwise.
type world struct {
	*controllertest.World
	*Controller
}

func newWorld(t testing.TB, change func(*Config), live ...runtime.Object) *world {
	t.Helper()
	w := &world{World: controllertest.NewWorld(noon(), live...)}
	config := Config{
		Client:    w.Client,
		Informers: w.Informers,
		Recorder:  w.Recorder(),
		Metrics:   NewMetrics(w.Registry.MustRegister),
		Period:    testPeriod,
		Clock:     w.Clock,
	}
	if change != nil {
		change(&config)
	}
	w.Controller = New(config)
	controllertest.EndQueues(t, w.Run)
	w.Cache(t, live...)
	return w
}

// runRound does one round, with every namespace once, in order.
func (w *world) runRound(t *testing.T) error {
	t.Helper()
	if err := w.sync(t.Context(), wholeCluster); err != nil {
		return err
	}
	var namespaces []string
	for namespace := range w.round.candidates {
		namespaces = append(namespaces, namespace)
	}
	slices.Sort(namespaces)
	for _, namespace := range namespaces {
		if err := w.sync(t.Context(), namespace); err != nil {
			return err
		}
	}
	return nil
}

// actions says what was asked of the API, a line each, with every precondition. The
// looks at the tracking ConfigMap and at the nodes' Leases are left out.
func (w *world) actions(t *testing.T) []string {
	t.Helper()
	return w.Actions(t, func(t testing.TB, action clienttesting.Action) string {
		if slices.Contains([]string{"configmaps", "leases"}, action.GetResource().Resource) {
			return ""
		}
		return describe(t, action)
	})
}

func describe(t testing.TB, action clienttesting.Action) string {
	t.Helper()
	what := action.GetVerb() + " " + action.GetResource().Resource + " " + action.GetNamespace() + "/"
	switch action := action.(type) {
	case clienttesting.PatchActionImpl:
		if action.PatchType != types.MergePatchType {
			t.Errorf("a patch of type %s", action.PatchType)
		}
		var patch map[string]map[string]any
		if err := json.Unmarshal(action.Patch, &patch); err != nil {
			t.Fatalf("patch %s: %v", action.Name, err)
		}
		return fmt.Sprintf("%s%s %v", what, action.Name, patch)
	case clienttesting.DeleteActionImpl:
		only := action.DeleteOptions.Preconditions
		return fmt.Sprintf("%s%s [%s %s]", what, action.Name, *only.UID, *only.ResourceVersion)
	case clienttesting.GetActionImpl:
		return what + action.Name
	case clienttesting.ListActionImpl:
		return fmt.Sprintf("%s limit %d continue %q", what, action.ListOptions.Limit, action.ListOptions.Continue)
	}
	t.Fatalf("unexpected action %#v", action)
	return ""
}

// decisions are the counts of the last round.
func (w *world) decisions(t *testing.T) map[string]float64 {
	return w.Series(t, "sacm_legacy_token_cleaner_secrets")
}

// account is ServiceAccount ns/app, which references Secret app-token.
func account(change ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "uid-app", ResourceVersion: "10"},
		Secrets:    []corev1.ObjectReference{{Name: "app-token"}},
	}
	for _, apply := range change {
		apply(account)
	}
	return account
}

// tokenSecret is Secret ns/app-token, made for account app long ago and not used
// since.
func tokenSecret(change ...func(*corev1.Secret)) *corev1.Secret {
	created, err := time.Parse(dateFormat, longAgo)
	if err != nil {
		panic(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "app-token", UID: "uid-token", ResourceVersion: "20", CreationTimestamp: metav1.NewTime(created),
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "app", corev1.ServiceAccountUIDKey: "uid-app"},
			Labels:      map[string]string{},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("e30.e30.c2lnbmF0dXJl")},
	}
	for _, apply := range change {
		apply(secret)
	}
	return secret
}

func usedOn(date string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Labels[tokensecrets.LastUsedLabel] = date }
}

func invalidSince(date string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Labels[tokensecrets.InvalidSinceLabel] = date }
}

func createdAt(moment time.Time) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.CreationTimestamp = metav1.NewTime(moment) }
}

func annotated(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[name] = value }
}

func autoCreated(secret *corev1.Secret) { secret.Labels[tokensecrets.AutoCreatedLabel] = "true" }

// renamed is the same Secret of the same account under another name.
func renamed(name string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Name, secret.UID = name, types.UID("uid-"+name) }
}

func terminating(secret *corev1.Secret) {
	secret.DeletionTimestamp = &metav1.Time{Time: noon()}
	secret.Finalizers = []string{"example.com/wait"}
}

// tracking is the ConfigMap that kube-apiserver writes.
func tracking(since string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: TrackingConfigMap},
		Data:       map[string]string{trackingKey: since},
	}
}

// mounting is a Pod that names the Secret in a volume.
func mounting(secret string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + secret},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{
			Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		}}},
	}
}
