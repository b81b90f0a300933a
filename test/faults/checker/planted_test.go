// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/planted"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// TestPlantsShow has every check say what it says of a plant, and of what looks like one:
// each is taken for its own plant and no other.
func TestPlantsShow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		found  []checker.Violation
		want   string // a plant, "" for none
	}{
		"WrongKey": {found: judged(func(now checker.Snapshot, _ workload.Model) {
			now.Secrets[checker.Key("shop", "mine")].Data["token"] = []byte("h.e30.bad")
		}), want: "wrong signing key"},
		"NotTakenByTheAPIServer": {
			reason: "it may not know the Secret yet",
			found:  []checker.Violation{checker.Violated(4, "kube-apiserver does not take the token of x/y for z: unknown")},
		},
		"Dangling": {found: judged(func(now checker.Snapshot, _ workload.Model) {
			account := &corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: "missed-token-abcde"}}}
			account.Namespace, account.Name = "x-missed-deletion", "missed"
			account.ManagedFields = []metav1.ManagedFieldsEntry{checker.Listed(workload.ProductManager, "missed-token-abcde")}
			now.Accounts[checker.Key(account.Namespace, account.Name)] = account
		}), want: "dropped tombstones"},
		"DanglingElsewhere": {
			reason: "its watch told of the deletion, which is worked on",
			found: judged(func(now checker.Snapshot, _ workload.Model) {
				delete(now.Secrets, checker.Key("shop", "cart-token-abcde"))
			}),
		},
		"TwoAutoCreated": {found: []checker.Violation{checker.Violated(3, `account x-missed-deletion/missed references 2 auto-created Secrets, want 1: ["missed-token-abcde" "missed-token-zzzzz"]`)}},
		"ReusedDeleted": {found: judged(func(_ checker.Snapshot, model workload.Model) {
			model["x-late-deletion"] = workload.NewNamespace("x-late-deletion")
			model["x-late-deletion"].Accounts["live"] = &workload.Account{UID: "live-uid"}
			model["x-late-deletion"].Secrets["reused"] = &workload.TokenSecret{UID: "reused-uid", Account: "live", Owner: "live-uid"}
		}), want: "missing UID precondition"},
		"UnreferencedDeleted": {found: judged(func(_ checker.Snapshot, model workload.Model) {
			model["x-dropped-reference"] = workload.NewNamespace("x-dropped-reference")
			model["x-dropped-reference"].Accounts["edited"] = &workload.Account{UID: "edited-uid"}
			model["x-dropped-reference"].Secrets["edited-token-abcde"] = &workload.TokenSecret{UID: "u", Account: "edited", Owner: "edited-uid"}
		}), want: "deletion of what nothing references"},
		"AnotherDeleted": {
			reason: "no deletion of it is late",
			found:  judged(func(now checker.Snapshot, _ workload.Model) { delete(now.Secrets, checker.Key("shop", "mine")) }),
		},
		"Outlives": {
			reason: "its grace is not over yet",
			found:  judged(func(now checker.Snapshot, _ workload.Model) { delete(now.Accounts, checker.Key("shop", "default")) }),
		},
		"ListRewritten": {found: judged(func(now checker.Snapshot, _ workload.Model) {
			account := now.Accounts[checker.Key("shop", "cart")]
			account.Secrets = account.Secrets[1:2]
		}), want: "patch that rewrites a list"},
		"NoteRewritten": {found: judged(func(now checker.Snapshot, _ workload.Model) {
			now.Accounts[checker.Key("shop", "cart")].Annotations = nil
		})},
		"LogHoldsSecret": {found: []checker.Violation{checker.Violated(6, "a log holds %s", checker.Leak("ZXlKaGJHY2lPaUpTVXpJMU5pSjk", checker.Signatures{}))}, want: "token in a log line"},
		"LogHoldsKey":    {found: []checker.Violation{checker.Violated(6, "a log holds %s", checker.Leak("-----BEGIN RSA PRIVATE KEY-----", checker.Signatures{}))}},
		"LateWrite":      {found: lateWrite("x-lease", time.Unix(1000, 0)), want: "leader without a fence"},
		"LateElsewhere":  {reason: "nobody kept it from its Lease", found: lateWrite("x-late-token", time.Unix(1000, 0))},
		"NeverLed":       {reason: "this is about who has led", found: lateWrite("x-lease", time.Time{})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(tc.found) == 0 {
				t.Fatal("no check says anything")
			}
			for _, plant := range planted.Plants() {
				if got := len(plant.Shown(tc.found)) > 0; got != (plant.Name == tc.want) {
					t.Errorf("%s: taken for plant %q: %t, want %q alone: %v", tc.reason, plant.Name, got, tc.want, tc.found)
				}
			}
		})
	}
}

// judged is what is found in a settled world that is spoiled.
func judged(spoil func(checker.Snapshot, workload.Model)) []checker.Violation {
	now, model := checker.Settled()
	now.Accounts[checker.Key("shop", "cart")].ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	model["shop"].Accounts["cart"].Pulls = []string{"pull"}
	spoil(now, model)
	return checker.Judge(now, model, workload.Auto, "CA", func(token string) error {
		if !strings.HasSuffix(token, ".good") {
			return errors.New("no key of the ring has signed its token")
		}
		return nil
	})
}

// lateWrite is what is found of a write ten seconds after the Lease was renewed; zero
// means that it never was.
func lateWrite(namespace string, renewed time.Time) []checker.Violation {
	write := faultproxy.Request{Verb: "create", Resource: "secrets", Namespace: namespace, Served: 201, Began: time.Unix(1010, 0)}
	journal := []faultproxy.Request{write}
	if !renewed.IsZero() {
		renewal := faultproxy.Request{Verb: "update", Resource: "leases", Name: workload.LeaseName, Code: 200, Served: 200, Began: renewed}
		journal = []faultproxy.Request{renewal, write}
	}
	_, found := checker.JudgeWrites(journal, 3*time.Second, checker.PodNamespaces(nil), nil)
	return found
}
