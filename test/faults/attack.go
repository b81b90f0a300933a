// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// raceTimeout bounds a race, on a machine that is busy.
const raceTimeout = time.Minute

// race is one that random faults would rarely hit. Each is a case of upstream's issues that the
// product must survive.
type race struct {
	name string
	play func(ctx context.Context, in *workload.Namespace) error
}

func (w *World) races() []race {
	return []race{
		{"missed-deletion", w.missDeletion},
		{"late-deletion", w.lateDeletion},
		{"late-token", w.lateToken},
		{"late-account", w.lateAccount},
		{"changed-account", w.changedAccount},
		{"dropped-reference", w.dropReference},
	}
}

// attack plays the races, each in a namespace of its own, and returns what there must be
// afterwards.
func (w *World) attack(ctx context.Context, prefix string, races []race) (workload.Model, error) {
	model := workload.Model{}
	for _, race := range races {
		n := workload.NewNamespace(prefix + "-" + race.name)
		model[n.Name] = n
		ctx, cancel := context.WithTimeout(ctx, raceTimeout)
		err := errors.Join(w.client.CreateNamespace(ctx, n.Name), race.play(ctx, n))
		cancel()
		w.use()
		w.gate.release()
		if err != nil {
			return model, fmt.Errorf("%s: %w", race.name, err)
		}
	}
	return model, nil
}

// missDeletion deletes an account's token Secret while the watch of Secrets is silent, and has
// etcd compacted: the informer learns of the deletion by a tombstone alone. Nothing happens to
// the watch of accounts, because each event of an account has its references looked up.
func (w *World) missDeletion(ctx context.Context, n *workload.Namespace) error {
	if err := w.makeAccount(ctx, n, "missed"); err != nil {
		return err
	}
	own, err := w.ownSecret(ctx, n, "missed")
	if err != nil {
		return err
	}
	w.gate.shut("secrets")
	delete(n.Secrets, own)
	if err := w.client.DeleteSecret(ctx, n.Name, own, ""); err != nil {
		return err
	}
	if err := w.compact(ctx); err != nil {
		return err
	}
	for _, r := range w.all() {
		r.now().proxy.CutWatches(faultproxy.On("watch", "secrets"))
	}
	w.gate.release()
	return nil
}

// lateDeletion holds the deletion of an orphan until another Secret of its name is there,
// whose account lives.
func (w *World) lateDeletion(ctx context.Context, n *workload.Namespace) error {
	if err := errors.Join(w.makeAccount(ctx, n, "dead"), w.makeAccount(ctx, n, "live")); err != nil {
		return err
	}
	if err := w.client.MakeTokenSecret(ctx, n, "reused", "dead", "extra"); err != nil {
		return err
	}
	if err := w.awaitFilled(ctx, n.Name, "reused"); err != nil {
		return err
	}
	release := make(chan struct{})
	match := faultproxy.On("delete", "secrets").In(n.Name).Named("reused")
	w.use(&faultproxy.Rule{Match: match, Times: 1, Fault: faultproxy.Hold(release, faultproxy.Forward)})
	defer close(release)
	if err := w.client.RemoveAccount(ctx, n, "dead"); err != nil {
		return err
	}
	if err := w.awaitRequest(ctx, match); err != nil {
		return err
	}
	if err := w.client.DeleteSecret(ctx, n.Name, "reused", n.Secrets["reused"].UID); err != nil {
		return err
	}
	return w.client.MakeTokenSecret(ctx, n, "reused", "live", "extra")
}

// lateToken holds the token for an account until that account has a successor.
func (w *World) lateToken(ctx context.Context, n *workload.Namespace) error {
	if err := w.makeAccount(ctx, n, "twice"); err != nil {
		return err
	}
	if _, err := w.ownSecret(ctx, n, "twice"); err != nil {
		return err
	}
	release := make(chan struct{})
	match := faultproxy.On("patch", "secrets").In(n.Name).Named("token")
	w.use(&faultproxy.Rule{Match: match, Times: 1, Fault: faultproxy.Hold(release, faultproxy.Forward)})
	defer close(release)
	if err := w.client.MakeTokenSecret(ctx, n, "token", "twice", "extra"); err != nil {
		return err
	}
	if err := w.awaitRequest(ctx, match); err != nil {
		return err
	}
	if err := w.client.RemoveAccount(ctx, n, "twice"); err != nil {
		return err
	}
	return w.makeAccount(ctx, n, "twice")
}

// lateAccount has a Secret filled for an account that is dead already: no watch tells of it,
// nor of its successor, which the Secret is meant for. Nothing may be left of it.
func (w *World) lateAccount(ctx context.Context, n *workload.Namespace) error {
	const name = "late"
	if err := w.makeAccount(ctx, n, name); err != nil {
		return err
	}
	if _, err := w.ownSecret(ctx, n, name); err != nil {
		return err
	}
	w.gate.shut("serviceaccounts")
	if err := w.client.RemoveAccount(ctx, n, name); err != nil {
		return err
	}
	if err := errors.Join(w.makeAccount(ctx, n, name), w.client.MakeTokenSecret(ctx, n, "token", name, "extra")); err != nil {
		return err
	}
	return w.awaitFilled(ctx, n.Name, "token")
}

// changedAccount does so, and the first that is seen of the successor is a later version of it.
func (w *World) changedAccount(ctx context.Context, n *workload.Namespace) error {
	if err := w.lateAccount(ctx, n); err != nil {
		return err
	}
	account := n.Accounts["late"]
	account.Note = "another note"
	return w.client.AnnotateAccount(ctx, n.Name, "late", account.UID, account.Note)
}

// dropReference replaces the reference to an auto-created Secret by one to a user's Secret, and
// copies the former with its labels. Nothing may delete either of them.
func (w *World) dropReference(ctx context.Context, n *workload.Namespace) error {
	const name = "edited"
	if err := w.makeAccount(ctx, n, name); err != nil {
		return err
	}
	own, err := w.ownSecret(ctx, n, name)
	if err != nil {
		return err
	}
	if err := w.client.MakeTokenSecret(ctx, n, "mine", name, "extra"); err != nil {
		return err
	}
	if err := w.awaitFilled(ctx, n.Name, "mine"); err != nil {
		return err
	}
	if err := w.client.CopySecret(ctx, n, own, "copy", "extra"); err != nil {
		return err
	}
	if _, err := w.client.EditReferences(ctx, n, name, 0); err != nil {
		return err
	}
	account := n.Accounts[name]
	account.Note = "another note"
	return w.client.AnnotateAccount(ctx, n.Name, name, account.UID, account.Note)
}

// makeAccount gives it lists of the user's.
func (w *World) makeAccount(ctx context.Context, n *workload.Namespace, name string) error {
	account := &workload.Account{Note: "note", Foreign: []string{"first", "second"}, Pulls: []string{"pull"}}
	n.Accounts[name] = account
	return w.client.CreateAccount(ctx, n.Name, name, account)
}

// ownSecret returns the token Secret that the account references and that has the name of one
// made for it. In Manual a former token controller has left it.
func (w *World) ownSecret(ctx context.Context, n *workload.Namespace, account string) (string, error) {
	if w.mode == workload.Auto {
		return w.awaitOwn(ctx, n.Name, account)
	}
	own := account + "-token-bcdfg"
	if err := errors.Join(w.client.MakeTokenSecret(ctx, n, own, account, "extra"),
		w.client.AddReference(ctx, n.Name, account, own)); err != nil {
		return "", err
	}
	return own, w.awaitFilled(ctx, n.Name, own)
}

func (w *World) awaitOwn(ctx context.Context, namespace, account string) (string, error) {
	var own string
	err := await.Poll(ctx, func(ctx context.Context) error {
		object, err := w.client.CoreV1().ServiceAccounts(namespace).Get(ctx, account, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, ref := range object.Secrets {
			if workload.IsOwnName(account, ref.Name) {
				own = ref.Name
				return nil
			}
		}
		return fmt.Errorf("account %s has no token Secret of its own", account)
	})
	return own, err
}

func (w *World) awaitFilled(ctx context.Context, namespace, name string) error {
	return await.Poll(ctx, func(ctx context.Context) error {
		secret, err := w.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			err = fmt.Errorf("secret %s has no token", name)
		}
		return err
	})
}

// awaitRequest returns once any replica has sent such a request.
func (w *World) awaitRequest(ctx context.Context, match faultproxy.Match) error {
	return await.Poll(ctx, func(context.Context) error {
		for _, r := range w.all() {
			if len(r.now().proxy.Requests(match)) > 0 {
				return nil
			}
		}
		return errors.New("no such request has come")
	})
}
