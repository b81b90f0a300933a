// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	_ "k8s.io/apimachinery/pkg/util/rand" // likewise
	_ "k8s.io/apimachinery/pkg/util/wait" // likewise
	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/workload"

	"sa-controller-manager/test/simulation/model"
)

// What users do that is no step of the workload.
const (
	base  = "make accounts that nobody edits"
	many  = "delete many accounts"
	reuse = "use the name of an orphan again"
	// Rare ones.
	long      = "list hundreds of Secrets"
	finalized = "hold accounts and Secrets by finalizers"
	unlisted  = "make a namespace while Secrets cannot be listed"
)

func (w *world) makeNamespace(c workload.Client, name string) (*workload.Namespace, error) {
	n := workload.NewNamespace(name)
	w.mu.Lock()
	w.model[name] = n
	w.mu.Unlock()
	return n, c.CreateNamespace(context.Background(), name)
}

func makeAccount(c workload.Client, n *workload.Namespace, name string) error {
	n.Accounts[name] = &workload.Account{Note: "note", Foreign: []string{"first", "second"}, Pulls: []string{"pull"}}
	return c.CreateAccount(context.Background(), n.Name, name, n.Accounts[name])
}

func (w *world) makeBase(c workload.Client) error {
	n, err := w.makeNamespace(c, "base")
	for i := 0; i < 4 && err == nil; i++ {
		name := fmt.Sprintf("account-%d", i)
		if err = makeAccount(c, n, name); err == nil && w.mode == workload.Manual { // a former token controller has made these
			err = errors.Join(c.MakeTokenSecret(context.Background(), n, name+"-token-bcdfg", name, "extra"),
				c.AddReference(context.Background(), n.Name, name, name+"-token-bcdfg"))
		}
	}
	return err
}

// deleteBase is a user who deletes a Secret of these accounts, at a time that others decide.
func (w *world) deleteBase(random *rand.Rand) {
	account := fmt.Sprintf("account-%d", random.IntN(4))
	for _, secret := range w.server.Objects("secrets") {
		if secret.GetNamespace() != "base" || !workload.IsOwnName(account, secret.GetName()) ||
			time.Since(w.network.began) <= 15*time.Second {
			continue
		}
		w.mu.Lock()
		delete(w.model["base"].Secrets, secret.GetName())
		w.mu.Unlock()
		w.server.Serve(&model.Request{Verb: "delete", Resource: "secrets", Namespace: "base", Name: secret.GetName()})
		return
	}
}

// replaceBase is a user who has another account of the name of one of these, at a time that others decide.
func (w *world) replaceBase(random *rand.Rand) {
	name := fmt.Sprintf("account-%d", random.IntN(4))
	old, _ := w.server.Get("serviceaccounts", "base", name).(*corev1.ServiceAccount)
	if old == nil || time.Since(w.network.began) <= 15*time.Second {
		return
	}
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "base", Name: name, Annotations: old.Annotations}}
	other.ImagePullSecrets = old.ImagePullSecrets
	w.mu.Lock()
	account := w.model["base"].Accounts[name]
	other.Secrets = []corev1.ObjectReference{{Name: account.Foreign[0]}, {Name: account.Foreign[1]}}
	w.mu.Unlock()
	request := model.Request{Client: "another client", Resource: "serviceaccounts", Namespace: "base", Name: name}
	remove, create := request, request
	remove.Verb, create.Verb, create.Body = "delete", "create", model.Encoded(other)
	w.server.Serve(&remove)
	w.server.Serve(&create)
	if made := w.server.Get("serviceaccounts", "base", name); made != nil {
		w.mu.Lock()
		account.UID = made.GetUID()
		w.mu.Unlock()
	}
}

// reuse replaces the Secret of a deleted account by one of the same name, whose account lives.
func (w *world) reuse(c workload.Client, random *rand.Rand) error {
	ctx := context.Background()
	n, err := w.makeNamespace(c, "reuse")
	if err == nil {
		err = makeAccount(c, n, "live")
	}
	for i := 0; i < 8 && err == nil; i++ {
		dead, secret := fmt.Sprintf("dead-%d", i), fmt.Sprintf("reused-%d", i)
		if err = makeAccount(c, n, dead); err != nil {
			break
		}
		err = c.MakeTokenSecret(ctx, n, secret, dead, "extra")
		await.Sleep(ctx, 3*time.Second)
		uid := n.Secrets[secret].UID
		err = errors.Join(err, c.RemoveAccount(ctx, n, dead))
		await.Sleep(ctx, time.Duration(random.Int64N(int64(40*time.Millisecond))))
		err = errors.Join(err, c.DeleteSecret(ctx, n.Name, secret, uid), c.MakeTokenSecret(ctx, n, secret, "live", "extra"))
	}
	return err
}

// longLists has accounts with hundreds of references, of one of which managedFields say that the product has written them,
// and edits both again and again.
func (w *world) longLists(c workload.Client) error {
	ctx := context.Background()
	n, err := w.makeNamespace(c, "long")
	if err != nil {
		return err
	}
	var refs []corev1.ObjectReference
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("users-token-%05d", i))
		refs = append(refs, corev1.ObjectReference{Name: fmt.Sprintf("forged-token-%05d", i)})
	}
	n.Accounts["users"] = &workload.Account{Note: "note", Foreign: names}
	err = c.CreateAccount(ctx, n.Name, "users", n.Accounts["users"])
	forged := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "forged"}, Secrets: refs}
	err = errors.Join(err, workload.Retry(ctx, "forge an account", func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts(n.Name).Create(ctx, forged, metav1.CreateOptions{FieldManager: workload.ProductManager})
		return workload.Ignore(err, apierrors.IsAlreadyExists)
	}))
	for i := range 5 {
		await.Sleep(ctx, 2*time.Second)
		n.Accounts["users"].Note = fmt.Sprint("note ", i)
		err = errors.Join(err, c.AnnotateAccount(ctx, n.Name, "users", n.Accounts["users"].UID, n.Accounts["users"].Note))
	}
	return err
}

// finalizers has an account and Secrets that are being deleted for a while.
func (w *world) finalizers(c workload.Client) error {
	ctx := context.Background()
	n, err := w.makeNamespace(c, "held")
	if err != nil {
		return err
	}
	err = errors.Join(makeAccount(c, n, "going"), makeAccount(c, n, "lives"), c.MakeTokenSecret(ctx, n, "going-first", "going", "extra"),
		c.MakeTokenSecret(ctx, n, "lives-first", "lives", "extra"))
	await.Sleep(ctx, 12*time.Second)
	hold := func(finalizers ...string) {
		done := make(chan struct{})
		w.network.later(time.Since(w.network.began), "finalizers change", func() {
			set := func(o model.Object) { o.SetFinalizers(finalizers) }
			for _, secret := range w.server.Objects("secrets") {
				if secret.GetNamespace() == n.Name {
					w.server.Change("secrets", n.Name, secret.GetName(), set)
				}
			}
			w.server.Change("serviceaccounts", n.Name, "going", set)
			close(done)
		})
		<-done
	}
	hold("users/finalizer")
	going := n.Accounts["going"]
	err = errors.Join(err, c.RemoveAccount(ctx, n, "going"), c.DeleteSecret(ctx, n.Name, "lives-first", n.Secrets["lives-first"].UID))
	delete(n.Secrets, "lives-first")
	await.Sleep(ctx, 2*acting)
	// It names an account that is being deleted.
	err = errors.Join(err, c.CreateTokenSecret(ctx, n.Name, "going-second", &workload.TokenSecret{Account: "going", Owner: going.UID}))
	await.Sleep(ctx, 20*time.Second)
	hold()
	return err
}

// unlisted is one Secret that kube-apiserver cannot decrypt, when all replicas start: nothing of a new namespace needs Secrets.
func (w *world) unlisted(c workload.Client) error {
	ctx := context.Background()
	const lasts = 100 * time.Second
	w.network.later(time.Since(w.network.began), "fault: Secrets cannot be listed", func() {
		w.network.strike(&fault{resource: "secrets", until: time.Now().Add(lasts), fate: forbidden, only: []string{"list", "watch"}})
		for i := range w.processes {
			w.crash(i)
			w.network.later(time.Since(w.network.began)+time.Second, "restart", func() { w.start(i) })
		}
	})
	await.Sleep(ctx, 30*time.Second)
	n, err := w.makeNamespace(c, "unlisted")
	await.Sleep(ctx, 30*time.Second)
	w.network.now(func() {
		if w.plan.upstream {
			return
		}
		for resource, name := range map[string]string{"serviceaccounts": workload.DefaultAccount, "configmaps": workload.RootCAConfigMap} {
			if err == nil && w.server.Get(resource, n.Name, name) == nil {
				w.violated(10, "namespace %s has no %s after 30 s, because Secrets cannot be listed", n.Name, name)
			}
		}
	})
	await.Sleep(ctx, lasts-60*time.Second)
	return err
}

// deleteMany deletes so many accounts at once that they are listed, while a user edits their Secrets.
func (w *world) deleteMany(c workload.Client, random *rand.Rand) error {
	ctx := context.Background()
	n, err := w.makeNamespace(c, "many")
	if err != nil {
		return err
	}
	const accounts = 24 // more than are read one by one
	for i := range accounts {
		if err := makeAccount(c, n, fmt.Sprintf("account-%d", i)); err != nil {
			return err
		}
	}
	for i := 0; i < accounts && w.mode == workload.Manual; i++ {
		if err := c.MakeTokenSecret(ctx, n, fmt.Sprintf("token-%d", i), fmt.Sprintf("account-%d", i), "extra"); err != nil {
			return err
		}
	}
	await.Sleep(ctx, 20*time.Second)
	secrets, err := c.CoreV1().Secrets(n.Name).List(ctx, metav1.ListOptions{})
	if err != nil || len(secrets.Items) == 0 {
		return err
	}
	var deleting sync.WaitGroup
	for i := range accounts {
		name := fmt.Sprintf("account-%d", i)
		uid := n.Accounts[name].UID
		delete(n.Accounts, name)
		deleting.Go(func() { _ = c.DeleteAccount(ctx, n.Name, name, uid) })
	}
	for _, i := range random.Perm(len(secrets.Items)) { // no second edit repairs what becomes of the first one
		await.Sleep(ctx, time.Duration(random.Int64N(int64(20*time.Millisecond))))
		_, err := c.CoreV1().Secrets(n.Name).Patch(ctx, secrets.Items[i].Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"user/edited":"yes"}}}`), metav1.PatchOptions{})
		if workload.Ignore(err, apierrors.IsNotFound) != nil {
			return err
		}
	}
	deleting.Wait()
	await.Sleep(ctx, 20*time.Second)
	w.mu.Lock()
	delete(w.model, n.Name)
	w.mu.Unlock()
	return c.DeleteNamespace(ctx, n.Name) // the account default goes before its Secret, or after it
}
