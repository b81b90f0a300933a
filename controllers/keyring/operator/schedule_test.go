// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

const month = 30 * 24 * time.Hour

// TestNext goes through the life of a ring, with steps at the times that the transitions say.
func TestNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rings := func(hosts ...string) (rings []consistency.PublishedRing) {
		for _, host := range hosts {
			rings = append(rings, consistency.PublishedRing{Host: host})
		}
		return rings
	}
	idle := w.state()
	w.start(testkeys.P256())
	published := w.state()
	w.must(w.Activate(t.Context(), ActivateOptions{Force: true, SkipProof: true}))
	activated := w.state()
	w.must(w.Complete(t.Context(), ActivateOptions{}))
	completed := w.state()
	w.must(w.Rollback(t.Context(), true))
	back := w.state()
	paused, err := ring.Pause(published, epoch)
	w.must(err)
	full := completed
	for i := range maxKeys - len(full.Keys) {
		key := full.Keys[0]
		key.ID, key.RetiredAt = string(rune('a'+i)), epoch.Add(10*month)
		full.Keys = append(full.Keys, key)
	}
	held := facts{unready: "the key is refused"}
	for name, tc := range map[string]struct {
		reason string
		state  ring.State
		after  time.Duration
		facts  facts
		step   Step
		waits  string
		at     time.Duration // of the next plan
		held   bool
	}{
		"new ring":            {state: idle, after: time.Hour, waits: "the next rotation starts at 2026-12-21T12:00:00Z", at: month},
		"due":                 {state: idle, after: month, step: StepStart},
		"published":           {reason: "the gate counts from the first answer, and the transition waits", state: published, step: StepActivate},
		"activated":           {state: activated, step: StepComplete},
		"activated, long ago": {reason: "the previous key is what a rollback needs", state: activated, after: 5 * month, step: StepComplete},
		"tokens live":         {state: completed, after: time.Hour, waits: "the next rotation starts", at: policy.TokenLifetime},
		"tokens are dead":     {state: completed, after: policy.TokenLifetime, step: StepPrune},
		"prune was tried": {
			reason: "all Secrets are read for it", state: completed, after: 50 * time.Hour,
			facts: facts{tried: map[string]time.Time{rsaID: epoch.Add(50 * time.Hour)}}, waits: "the next rotation starts", at: 51 * time.Hour,
		},
		"rolled back": {
			reason: "the operator has decided", state: back, after: month - time.Second,
			facts: facts{tried: map[string]time.Time{p256ID: epoch.Add(month)}}, waits: "the next rotation starts", at: month,
		},
		"paused":    {state: paused, waits: "it is paused since 2026-11-21T12:00:00Z: keys rotate resume", held: true, at: time.Hour},
		"not ready": {state: published, facts: held, waits: "the key is refused"},
		"drift":     {state: published, facts: facts{difference: "the rings are forked"}, waits: "the rings are forked"},
		"one host": {
			reason: "replicas of it share the file", state: idle, after: month, facts: facts{rings: rings("cp-1", "cp-1")}, step: StepStart,
		},
		"two hosts": {
			state: idle, after: month, facts: facts{rings: rings("cp-1", "cp-2")}, waits: "the hosts cp-1, cp-2 have a key ring each",
			held: true,
		},
		"eight keys": {
			state: full, after: month, facts: facts{tried: map[string]time.Time{rsaID: epoch.Add(month)}}, waits: "8 keys are published",
			held: true, at: month + time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.facts.now = epoch.Add(tc.after)
			got := Schedule{Every: month}.next(tc.state, policy, tc.facts)
			at := time.Duration(0)
			if !got.at.IsZero() {
				at = got.at.Sub(epoch)
			}
			if got.step != tc.step || got.held != tc.held || at != tc.at || !strings.HasPrefix(got.waits, tc.waits) ||
				(got.waits == "") != (tc.waits == "") {
				t.Errorf("%s: %+v after %s", tc.reason, got, at)
			}
		})
	}
}

// publish has a replica publish the ring, as it does when the file has changed.
func (w *world) publish() {
	w.t.Helper()
	state := w.state()
	line := consistency.PublishedRing{Host: "cp-1", Generation: state.Generation, Version: state.Version(), Keys: map[string]signing.Role{}}
	for _, key := range state.Keys {
		line.Keys[key.ID] = key.Role
	}
	data, err := json.Marshal(line)
	w.must(err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: consistency.SecretName},
		Data:       map[string][]byte{"schema-version": []byte("1"), "replica.cp-1_x": data},
	}
	secrets := w.kube.CoreV1().Secrets("kube-system")
	if _, err := secrets.Update(w.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		_, err = secrets.Create(w.t.Context(), secret, metav1.CreateOptions{})
		w.must(err)
	}
}

// TestAuto rotates from start to prune, each step only once its proof holds.
func TestAuto(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.signer = w.state().Active().Private
	tried := map[string]time.Time{}
	pass := func(want string) {
		t.Helper()
		outcome, err := w.Auto(t.Context(), Schedule{Every: month}, "", tried)
		w.must(err)
		if got := outcome.Did + "|" + outcome.Waits; !strings.Contains(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	pass("|the key ring of this process (generation 1, version " + w.state().Version() + ") is not published")
	w.publish()
	pass("|the next rotation starts at 2026-12-21T12:00:00Z")
	w.clock.Step(month)
	pass("published a new key, which does not sign yet|")
	pass("|the key ring of this process (generation 2")
	w.publish()
	pass("copies of the key set may be older")
	w.clock.Step(policy.CacheAge)
	pass("cannot sign yet: the apiserver refuses its tokens")
	next, _ := w.state().Next()
	w.accepts = append(w.accepts, next.ID)
	w.meanwhile(func() {
		w.must(w.Update(func(state ring.State) (ring.State, error) { return ring.Pause(state, w.clock.Now()) }))
	})
	pass("changed meanwhile")
	w.publish()
	pass("|it is paused since")
	w.must(w.Update(ring.Resume))
	w.publish()
	w.Gate = &gate{left: 1, later: true}
	pass("|not published")
	pass("activated key " + next.ID)
	w.publish()
	pass("|a kube-apiserver or a replica still signs with key " + rsaID)
	w.signer = w.state().Active().Private
	pass("completed the rotation to key " + next.ID)
	w.publish()
	w.clock.Step(policy.TokenLifetime)
	w.Gate = &gate{left: 1}
	pass("|not published")
	pass("|the next rotation starts at")
	w.clock.Step(time.Hour)
	pass("pruned key " + rsaID)
}
