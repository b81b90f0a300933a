// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	_ "embed"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

const (
	testNamespace = controllertest.Namespace
	testUID       = controllertest.UID
	otherUID      = controllertest.OtherUID
	testGrace     = 30 * time.Second
	testSuffix    = "bcdfg"
)

var (
	//go:embed testdata/ca.crt
	testCA string
	//go:embed testdata/other-ca.crt
	otherCA string

	account     = controllertest.Account
	withData    = controllertest.WithData
	withToken   = controllertest.WithToken
	atVersion   = controllertest.AtVersion
	referencing = controllertest.Referencing
	recreated   = controllertest.Recreated
	tokenSecret = controllertest.TokenSecret
	boundTo     = controllertest.BoundTo
	replacing   = controllertest.Replacing
	autoCreated = controllertest.AutoCreated
	immutable   = controllertest.Immutable
	terminating = controllertest.Terminating
)

// world is a controller and what surrounds it.
type world struct {
	*controllertest.World
	*Controller
	ring *signing.Keyring
}

func newWorld(t testing.TB, live ...runtime.Object) *world {
	t.Helper()
	return worldAt(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), live...)
}

// worldAt begins at a time. If that is zero, the clock is that of the synctest bubble and may jump.
func worldAt(t testing.TB, now time.Time, live ...runtime.Object) *world {
	t.Helper()
	w := &world{World: controllertest.NewWorld(now, live...),
		ring: signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(testkeys.P256())))}
	config := Config{
		Client:        w.Client,
		Metadata:      onlyMetadata{client: w.Client},
		Informers:     w.Informers,
		Issuer:        tokens.NewIssuer(w.ring, tokens.CompatClaims),
		Keys:          w.ring,
		RootCA:        rootca.NewSource(testBundle(t), nil),
		Recorder:      w.Recorder(),
		Metrics:       NewMetrics(w.Registry.MustRegister),
		RootCAMetrics: rootca.NewMetrics(w.Registry.MustRegister),
		OrphanGrace:   testGrace,
		Workers:       1,
		Clock:         w.Clock,
		NewSuffix:     func() string { return testSuffix },
	}
	if now.IsZero() {
		config.Clock = testutil.NewJumpingClock()
	}
	w.Controller = New(config)
	return w
}

// onlyMetadata lists the Secrets of a client as its List of metadata.
type onlyMetadata struct {
	metadata.Interface
	metadata.ResourceInterface
	client kubernetes.Interface
	ns     string
}

func (m onlyMetadata) Resource(schema.GroupVersionResource) metadata.Getter { return m }

func (m onlyMetadata) Namespace(namespace string) metadata.ResourceInterface {
	m.ns = namespace
	return m
}

func (m onlyMetadata) List(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if o.FieldSelector != "" || o.Limit == 0 || o.Limit > 50 {
		return nil, fmt.Errorf("a list of metadata with selector %q and limit %d: it would miss Secrets, or take much memory",
			o.FieldSelector, o.Limit)
	}
	secrets, err := m.client.CoreV1().Secrets(m.ns).List(ctx, o)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{ListMeta: secrets.ListMeta}
	for i := range secrets.Items {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: secrets.Items[i].ObjectMeta})
	}
	return list, nil
}

// syncsAccount has the account be looked at, and wants these actions.
func (w *world) syncsAccount(t *testing.T, reason string, want ...string) {
	t.Helper()
	testutil.Must(t, w.syncAccount(t.Context(), named("app")))
	testutil.Check(t, reason, want, w.Actions(t))
}

// syncsSecret does the same with a Secret, which the rollout of a root CA then reaches.
func (w *world) syncsSecret(t *testing.T, name, reason string, want ...string) {
	t.Helper()
	for _, sync := range []func(context.Context, cache.ObjectName) error{w.syncSecret, w.replaceCA} {
		testutil.Must(t, sync(t.Context(), named(name)))
	}
	testutil.Check(t, reason, want, w.Actions(t))
}

func testBundle(t testing.TB) *rootca.Bundle {
	t.Helper()
	return testutil.Get(rootca.ParseBundle([]byte(testCA)))(t)
}

func madeAt(second int64) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) { account.CreationTimestamp = metav1.Unix(second, 0) }
}

// listed references names, and has managedFields say that manager wrote that.
func listed(manager string, names ...string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		referencing(names...)(account)
		for _, name := range names {
			account.ManagedFields = append(account.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:secrets":{".":{},"k:{\"name\":\"` + name + `\"}":{}}}`),
			})
		}
	}
}

// filled makes the Secret one that lacks nothing.
func filled(t testing.TB) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		boundTo(testUID)(secret)
		withToken(t, testkeys.P256(), testUID)(secret)
		withData(corev1.ServiceAccountRootCAKey, testCA)(secret)
		withData(corev1.ServiceAccountNamespaceKey, testNamespace)(secret)
	}
}

func invalidSince(secret *corev1.Secret) { controllertest.InvalidSince("2026-01-01")(secret) }

func createdAt(second int64) func(*corev1.Secret) {
	return controllertest.CreatedAt(time.Unix(second, 0))
}

func named(name string) cache.ObjectName { return cache.NewObjectName(testNamespace, name) }
