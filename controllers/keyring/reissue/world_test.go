// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const (
	testUID  = controllertest.UID
	otherUID = controllertest.OtherUID
)

var (
	account     = controllertest.Account
	referencing = controllertest.Referencing
	recreated   = controllertest.Recreated
	withToken   = controllertest.WithToken
	annotated   = controllertest.Annotated
	labelled    = controllertest.Labelled
	replacing   = controllertest.Replacing
	createdAt   = controllertest.CreatedAt
	terminating = controllertest.Terminating
)

func noon() time.Time { return time.Date(2026, 5, 10, 12, 0, 0, 0, time.UTC) }

// The keys of the tests. Others are what the ring does not have.
func newPEM() []byte     { return testkeys.P256() }
func oldPEM() []byte     { return testkeys.P256Other() }
func strangePEM() []byte { return testkeys.P384() }

// rotated is a ring in which the new key has taken the place of the old one.
func rotated() *signing.Ring { return ringOf(newPEM(), oldPEM()) }

// ringOf is a ring with an active and a retired key.
func ringOf(active, retired []byte) *signing.Ring {
	return signing.NewRing(testkeys.Parse(active).As(signing.Active), testkeys.Parse(retired).Public().As(signing.Retired))
}

// tokenSecret is one that a token controller has made for account app.
func tokenSecret(name string, changes ...func(*corev1.Secret)) *corev1.Secret {
	made := []func(*corev1.Secret){
		controllertest.BoundTo(testUID), controllertest.AutoCreated, createdAt(noon().Add(-time.Minute)), createdBy(meta.FieldManager),
	}
	return controllertest.TokenSecret(name, append(made, changes...)...)
}

func userMade(secret *corev1.Secret) { secret.Labels = nil; copied(secret) }

func mode(value string) func(*corev1.Secret) { return annotated(tokensecrets.ReissueAnnotation, value) }

// createdBy has managedFields say who made the Secret.
func createdBy(manager string) func(*corev1.Secret) { return managed(manager, `{"f:type":{}}`) }

// filledBy has them say who wrote the token as well.
func filledBy(manager string) func(*corev1.Secret) {
	return managed(manager, `{"f:data":{"f:token":{}},"f:type":{}}`)
}

func managed(manager, fields string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		unmanaged(secret)
		controllertest.WrittenBy(manager, fields)(secret)
	}
}

// unmanaged is a Secret from before managedFields were kept.
func unmanaged(secret *corev1.Secret) { secret.ManagedFields = nil }

// copied is a Secret that a user has made of the YAML of another one.
func copied(secret *corev1.Secret) { createdBy("kubectl-create")(secret) }

func withOld(t *testing.T) func(*corev1.Secret) { t.Helper(); return withToken(t, oldPEM(), testUID) }
func withNew(t *testing.T) func(*corev1.Secret) { t.Helper(); return withToken(t, newPEM(), testUID) }

// spaced appends a line feed to the token. kube-apiserver accepts the token if it is presented with it.
func spaced(secret *corev1.Secret) {
	secret.Data[corev1.ServiceAccountTokenKey] = append(secret.Data[corev1.ServiceAccountTokenKey], '\n')
}

func observeAll(secrets ...*corev1.Secret) []*tokensecrets.TokenSecret {
	var observed []*tokensecrets.TokenSecret
	for _, secret := range secrets {
		observed = append(observed, tokensecrets.Observe(secret))
	}
	return observed
}

// world is a controller and what surrounds it.
type world struct {
	*controllertest.World
	*Controller
	suffixes int
	// unconfirmed: kube-apiserver does not accept the active key.
	unconfirmed bool
	// held is why the published rings forbid it.
	held error
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{World: controllertest.NewWorld(noon(), objects...)}
	w.Controller = New(Config{
		Client: w.Client, Informers: w.Informers,
		Ring:       signing.NewKeyring(rotated()),
		MayReissue: func() error { return w.held },
		Confirmed:  func(string) bool { return !w.unconfirmed },
		Recorder:   w.Recorder(), Metrics: NewMetrics(w.Registry.MustRegister), Clock: w.Clock,
		NewSuffix: func() string { w.suffixes++; return fmt.Sprintf("new%02d", w.suffixes) },
	})
	w.created, w.refused, w.slots = expectations{}, refusals{}, map[types.UID]time.Time{}
	controllertest.EndQueues(t, func(ctx context.Context) error { w.loop.Run(ctx); return nil })
	w.Cache(t, objects...)
	return w
}

// reissues has the account be looked at, and wants these actions.
func (w *world) reissues(t *testing.T, reason string, want ...string) {
	t.Helper()
	testutil.Must(t, w.reissue(t.Context(), app))
	testutil.Check(t, reason+": actions", want, w.Actions(t))
}
