// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"

	"sa-controller-manager/test/simulation/model"
)

// users is how many users there are, each in namespaces of its own.
const users = 2

// acts is how long users and faults act.
const acts = 150 * time.Second

// plan is what users do and what goes wrong, as the seed has it.
type plan struct {
	seed       uint64
	upstream   bool // kube-controller-manager's controllers are judged
	operations []operation
}

// operation is one of a user, or a fault. Each draws numbers of its own, so that others may be dropped.
type operation struct {
	at   time.Duration
	user int    // -1 for a fault
	name string // of the fault
	id   int
	// number is its place in the plan of the seed.
	number int
}

func (o operation) String() string {
	if o.user < 0 {
		return fmt.Sprintf("%3d  %7.3fs  fault %d: %s", o.number, o.at.Seconds(), o.id, o.name)
	}
	return fmt.Sprintf("%3d  %7.3fs  operation %d of user %d", o.number, o.at.Seconds(), o.id, o.user)
}

func newPlan(seed uint64) *plan {
	random := draw(seed, "plan")
	p := &plan{seed: seed}
	moment := func() time.Duration { return time.Duration(random.Int64N(int64(acts))) }
	for id := range 24 + random.IntN(24) {
		p.operations = append(p.operations, operation{at: moment(), user: random.IntN(users), id: id})
	}
	for id := range 2 + random.IntN(6) {
		p.operations = append(p.operations, operation{at: moment(), user: -1, name: faults[random.IntN(len(faults)-1)].name, id: id})
	}
	// The first user after the others has accounts that nobody edits. What the rest do is rarer, because it costs more or
	// leaves less to be seen of the rest.
	p.operations = append(p.operations, operation{at: time.Second, user: users, name: base, id: 100})
	for i, rare := range []string{many, reuse} {
		if of := draw(seed, rare); of.IntN(5) == 0 {
			at := 20*time.Second + time.Duration(of.Int64N(int64(acts/2)))
			p.operations = append(p.operations, operation{at: at, user: users + 1 + i, name: rare, id: 101 + i})
			if rare == many { // nobody else acts then: the order of goroutines decides which orphans are read one by one
				p.operations = slices.DeleteFunc(p.operations, func(o operation) bool {
					return o.user < 0 || o.at > at+20*time.Second && o.at < at+40*time.Second
				})
				break
			}
		}
	}
	if random.IntN(8) == 0 {
		p.operations = append(p.operations, operation{user: -1, name: "strange keys", id: 103})
	}
	slices.SortFunc(p.operations, func(a, b operation) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	for i := range p.operations {
		p.operations[i].number = i
	}
	return p
}

// act has all operations happen, and returns when the last one has ended.
func (w *world) act() {
	ends := acts
	var acting sync.WaitGroup
	for user := range users + 3 {
		u := w.user(user)
		acting.Go(func() {
			w.churn(u, user)
			w.mu.Lock()
			defer w.mu.Unlock()
			u.Add(w.model)
		})
	}
	for _, o := range w.plan.operations {
		if o.user >= 0 {
			continue
		}
		random := draw(w.plan.seed, fmt.Sprintf("fault %d", o.id))
		lasts := time.Second + time.Duration(random.Int64N(int64(24*time.Second)))
		ends = max(ends, o.at+lasts)
		w.network.later(o.at, "fault: "+o.name, func() { strikeOf(o.name)(w, random, lasts) })
	}
	acting.Wait()
	time.Sleep(time.Until(w.network.began.Add(ends + time.Second)))
}

// churn has a user do one operation after another.
func (w *world) churn(u *workload.User, user int) {
	for _, o := range w.plan.operations {
		if o.user != user {
			continue
		}
		time.Sleep(time.Until(w.network.began.Add(o.at)))
		random := draw(w.plan.seed, fmt.Sprintf("operation %d", o.id))
		what := o.name
		var err error
		switch o.name {
		case base:
			err = w.makeBase(u.Client)
		case many:
			err = w.deleteMany(u.Client, random)
		case reuse:
			err = w.reuse(u.Client, random)
		default:
			what, err = u.Step(context.Background(), random)
		}
		if err != nil {
			w.violated(0, "operation %d of user %d: %s: %v", o.id, user, what, err)
		}
	}
}

// What users do that is no step of the workload.
const (
	base  = "make accounts that nobody edits"
	many  = "delete many accounts"
	reuse = "use the name of an orphan again"
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

// deleteBase is somebody who deletes a Secret of these accounts, at a time that others decide.
func (w *world) deleteBase(random *rand.Rand) {
	account := fmt.Sprintf("account-%d", random.IntN(4))
	for _, secret := range w.server.Objects("secrets") {
		if secret.GetNamespace() != "base" || !workload.IsOwnName(account, secret.GetName()) || time.Since(w.network.began) <= 15*time.Second {
			continue
		}
		w.mu.Lock()
		delete(w.model["base"].Secrets, secret.GetName())
		w.mu.Unlock()
		w.server.Serve(&model.Request{Verb: "delete", Resource: "secrets", Namespace: "base", Name: secret.GetName()})
		return
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

// deleteMany deletes so many accounts at once that they are listed, while somebody edits their Secrets.
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
	return nil
}

// later plans a thing at a time of the run.
func (n *network) later(at time.Duration, name string, do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.planned = append(n.planned, &thing{name: name, due: n.began.Add(at), do: func(fate) string { do(); return "" }})
	n.wakeUp()
}

// now has the goroutine of run, which has the server, do a thing, and waits for it.
func (n *network) now(do func()) {
	done := make(chan struct{})
	n.later(time.Since(n.began), "", func() { do(); close(done) })
	<-done
}

// leader is the replica that has written the Lease last.
func (w *world) leader() int { return w.network.holder }

// holding is whose token it is.
type holding struct{ secret, account types.UID }

// committed sees each change.
func (w *world) committed(resource string, _, after model.Object) {
	secret, ok := after.(*corev1.Secret)
	if !ok || resource != "secrets" {
		return
	}
	token := string(secret.Data[corev1.ServiceAccountTokenKey])
	if token == "" || secret.Type != corev1.SecretTypeServiceAccountToken {
		return
	}
	if _, known := w.held[token]; !known && w.unproven && !w.plan.upstream { // which does not ask
		w.violated(4, "token Secret %s/%s was filled before kube-apiserver had accepted the key", secret.Namespace, secret.Name)
	}
	w.held[token] = holding{secret.UID, checker.ClaimedUID(token)}
}
