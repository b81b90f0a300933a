// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/keyring/reissue"
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

var (
	referencing  = controllertest.Referencing
	annotated    = controllertest.Annotated
	usedOn       = controllertest.UsedOn
	invalidSince = controllertest.InvalidSince
	createdAt    = controllertest.CreatedAt
	autoCreated  = controllertest.AutoCreated
	replacing    = controllertest.Replacing
	terminating  = controllertest.Terminating
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

		Replacements: reissue.Replacements,
	}
	if change != nil {
		change(&config)
	}
	w.Controller = New(config)
	controllertest.EndQueues(t, w.Run)
	w.Cache(t, live...)
	return w
}

// tryRun does one run, with every namespace once, in order.
func (w *world) tryRun(t *testing.T) error {
	t.Helper()
	if err := w.sync(t.Context(), wholeCluster); err != nil {
		return err
	}
	var namespaces []string
	for namespace := range w.run.candidates {
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

// runOnce does one run, and fails the test if that fails.
func (w *world) runOnce(t *testing.T) {
	t.Helper()
	testutil.Must(t, w.tryRun(t))
}

// actions are the requests without those for the tracking ConfigMap and the nodes' Leases.
func (w *world) actions(t *testing.T) []string {
	t.Helper()
	return w.Actions(t, "configmaps", "leases")
}

// decisions are the counts of the last run.
func (w *world) decisions(t *testing.T) map[string]float64 {
	return w.Series(t, "sacm_legacy_token_cleaner_secrets")
}

// account is ServiceAccount ns/app, which references Secret app-token.
func account(changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	return controllertest.Account(append([]func(*corev1.ServiceAccount){referencing("app-token")}, changes...)...)
}

func unreferencing(account *corev1.ServiceAccount) { account.Secrets = nil }

// tokenSecret is Secret ns/app-token, made for account app long ago and not used since.
func tokenSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	created, err := time.Parse(dateFormat, longAgo)
	if err != nil {
		panic(err)
	}
	made := []func(*corev1.Secret){controllertest.BoundTo(controllertest.UID), createdAt(created), func(secret *corev1.Secret) {
		secret.Data[corev1.ServiceAccountTokenKey] = []byte("e30.e30.c2lnbmF0dXJl")
	}}
	return controllertest.TokenSecret("app-token", append(made, changes...)...)
}

// renamed is the same Secret of the same account under another name.
func renamed(name string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Name, secret.UID = name, types.UID("uid-"+name) }
}

// tracking is the ConfigMap that kube-apiserver writes.
func tracking(since string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: TrackingConfigMap},
		Data:       map[string]string{"since": since},
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
