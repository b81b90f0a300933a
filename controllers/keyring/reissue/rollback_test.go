// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// model is a cluster of one account, in which steps are done as kube-apiserver and the
// token controller would.
type model struct {
	account *corev1.ServiceAccount
	secrets []*corev1.Secret
	ring    *signing.Ring
	pem     []byte // of the active key
	now     time.Time
	serial  int
}

// TestRollbackAnywhere enumerates every order of what this process does, what the token controller
// does and what a person does to the ring. Nobody is led to a token whose key is not the active
// one, and when all is quiet the account has a token of the active key and no Secret is left over.
func TestRollbackAnywhere(t *testing.T) {
	t.Parallel()
	const depth, acts = 6, 3
	runs := 1
	for range depth {
		runs *= acts
	}
	for run := range runs {
		m := &model{account: account(referencing("own")), secrets: []*corev1.Secret{tokenSecret("own", withOld(t))}, ring: rotated(),
			pem: newPEM(), now: noon()}
		var order []string
		turns := 0
		for left := run; len(order) < depth; left /= acts {
			switch left % acts {
			case 0:
				order = append(order, "act")
				m.act(t, order)
			case 1:
				order = append(order, "fill")
				m.fill(t)
			case 2:
				order = append(order, "swap")
				turns++
				m.swap(t)
			}
		}
		for range 10 {
			m.act(t, order)
			m.fill(t)
		}
		n := len(m.secrets)
		testutil.Require(t, n <= turns+2, "%q: %d Secrets after %d changes of the ring", order, n, turns)
		left := m.leftOver()
		testutil.Require(t, len(left) <= 0, "%q: %q", order, left)
		own := m.own()
		testutil.Require(t, own != nil && own.Token.KeyID() == m.ring.ActiveID(), "%q: the account's own Secret is %v", order, own)
		steps := m.plan()
		testutil.Require(t, len(steps) <= 0, "%q: it does not come to rest: %v", order, steps)
	}
}

// act does all steps that are planned now.
func (m *model) act(t *testing.T, order []string) {
	t.Helper()
	for _, step := range m.plan() {
		// Only a step that references has a successor to name.
		if step.action == reference && step.Successor.Token.KeyID() != m.ring.ActiveID() {
			t.Fatalf("%q: %s is led to %s, whose key is not the active one", order, step.Secret.Name, step.Successor.Name)
		}
		m.do(t, step)
	}
}

// swap makes the retired key the active one, and the other way round.
func (m *model) swap(t *testing.T) {
	t.Helper()
	retired := m.pem
	m.pem = oldPEM()
	if bytes.Equal(retired, m.pem) {
		m.pem = newPEM()
	}
	m.ring = ringOf(m.pem, retired)
}

func (m *model) own() *tokensecrets.TokenSecret {
	secrets := observeAll(m.secrets...)
	return tokensecrets.Own(m.account, secrets, Replacements(m.account, secrets))
}

func (m *model) plan() []step {
	m.now = m.now.Add(time.Second)
	return observe(m.account, observeAll(m.secrets...), m.ring).plan(false, m.now)
}

func (m *model) do(t *testing.T, step step) {
	t.Helper()
	switch step.action {
	case create:
		m.serial++
		i := slices.IndexFunc(m.secrets, func(s *corev1.Secret) bool { return s.Name == step.Secret.Name })
		secret := successorOf(&tokensecrets.Live{Secret: m.secrets[i], Account: m.account}, fmt.Sprintf("new-%02d", m.serial))
		secret.UID, secret.CreationTimestamp = types.UID("uid-"+secret.Name), metav1.NewTime(m.now)
		secret.Data = map[string][]byte{}
		createdBy(meta.FieldManager)(secret)
		m.secrets = append(m.secrets, secret)
	case reference:
		name := step.Successor.Name
		m.account.Secrets = slices.DeleteFunc(m.account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == name })
		m.account.Secrets = slices.Insert(m.account.Secrets, 0, corev1.ObjectReference{Name: name})
	case discard:
		// The precondition of a delete.
		m.secrets = slices.DeleteFunc(m.secrets, func(s *corev1.Secret) bool {
			return s.Name == step.Secret.Name && !tokensecrets.References(m.account, s.Name)
		})
	case warn:
		t.Fatalf("%s is not ambiguous", step.Secret.Name)
	}
}

// fill is what the token controller does.
func (m *model) fill(t *testing.T) {
	t.Helper()
	for _, secret := range m.secrets {
		if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			withToken(t, m.pem, testUID)(secret)
		}
	}
}

// leftOver are the Secrets that were made and that nothing references.
func (m *model) leftOver() []string {
	var names []string
	for _, secret := range observeAll(m.secrets...) {
		if secret.Name != "own" &&
			(secret.Predecessor == (tokensecrets.Predecessor{}) || !tokensecrets.References(m.account, secret.Name)) {
			names = append(names, secret.Name)
		}
	}
	return names
}
