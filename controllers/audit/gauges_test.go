// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// TestGauges count what the command finds, of all that a cache answers, as long as the process leads.
func TestGauges(t *testing.T) {
	t.Parallel()
	copied := holding(string(tokenSecret(t, "other", testkeys.P256()).Data["token"]))
	secrets := []*corev1.Secret{
		tokenSecret(t, "listed", testkeys.P256()),
		tokenSecret(t, "copied", testkeys.P256(), copied),
		tokenSecret(t, "marked", testkeys.P256(), labelled(tokensecrets.InvalidSinceLabel, "2026-01-01")),
		tokenSecret(t, "empty", testkeys.P256(), holding("")),
		tokenSecret(t, "nobody", testkeys.P256(), annotated(corev1.ServiceAccountNameKey, "gone"), holding("")),
		tokenSecret(t, "earlier", testkeys.P256(), annotated(corev1.ServiceAccountUIDKey, "uid-before"), holding("")),
		tokenSecret(t, "invalid", testkeys.P256(), annotated(corev1.ServiceAccountNameKey, "/"), holding("")),
	}
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: "uid-robot"}}
	robot.Secrets = []corev1.ObjectReference{{Name: "listed"}, {Name: "marked"}}
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(robot)
		for _, secret := range secrets {
			testutil.Must(t, client.Tracker().Add(secret))
		}
		auditor := &Auditor{Client: client, Keys: testKeys(t), Rules: Rules{Now: now}, Progress: func(int) {}}
		found := testutil.Get(auditor.Run(t.Context()))(t).Summary.Findings
		testutil.Check(t, "what the command finds", []int{1, 3, 1, 5}, []int{
			found[BadToken], found[Orphan], found[Invalidated], found[Unreferenced],
		})

		registry := metrics.NewKubeRegistry()
		all := informers.New(client, 0)
		run := NewGauges(all.View(), registry.MustRegister)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		all.Start(ctx)
		synctest.Wait()
		client.ClearActions()
		go func() { _ = run(ctx) }()
		series := func() []string { synctest.Wait(); return testutil.Series(registry, "sacm_") }
		shown := func(orphans, unreferenced string) []string {
			return []string{
				`sacm_token_findings{finding="bad-token"} 1`, `sacm_token_findings{finding="invalid"} 1`,
				`sacm_token_findings{finding="orphan"} ` + orphans, `sacm_token_findings{finding="unreferenced"} ` + unreferenced,
			}
		}
		testutil.Check(t, "gauges", shown("3", "5"), series())
		testutil.Must(t, client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), "shop", "earlier"))
		time.Sleep(interval)
		testutil.Check(t, "gauges after a deletion", shown("2", "4"), series())
		testutil.Check(t, "requests", 0, len(client.Actions()))
		stop()
		testutil.Check(t, "gauges of who does not lead", []string{}, series())
		all.Stop()
	})
}
