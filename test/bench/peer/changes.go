// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
)

// unlimited are the flags of a program that limits no requests of its own.
var unlimited = []string{"--kube-api-qps=1e6", "--kube-api-burst=1000000"}

// tokenNamespaces is over how many namespaces the token Secrets are spread.
const tokenNamespaces = 100

// changes are namespaces and token Secrets, while the program runs: the slow key with the flags of every day, and the
// fast one where nothing else limits a program. The programs alternate: A B A B.
func (o *Options) changes(ctx context.Context) {
	for range o.Sizes.Repetitions {
		for _, v := range []struct {
			name  string
			flags []string
			key   devcluster.KeyType
		}{{"default flags, RSA", nil, devcluster.RSA}, {"unlimited QPS, P-256", unlimited, devcluster.ECDSA}} {
			for _, program := range []string{kcm, ours} {
				o.statusf("changes, %s, %s", v.name, program)
				onFresh(ctx, devcluster.Options{SigningKey: v.key}, func(ctx context.Context, w *world) {
					o.fill(ctx, w, must.Get(o.start(ctx, w, program, v.flags...)), ", "+v.name)
				})
			}
		}
	}
}

// fill has the program complete namespaces, then token Secrets, each of an account of its own. Without a variant nothing is measured.
func (o *Options) fill(ctx context.Context, w *world, r *running, variant string) {
	var namespaces, accounts, secrets []string
	for i := range o.Sizes.Namespaces {
		namespaces = append(namespaces, accountOf(bench(i), "default"), rootCA(bench(i)))
	}
	for i := range o.Sizes.Secrets {
		namespace, name := o.place(i)
		accounts, secrets = append(accounts, accountOf(namespace, name)), append(secrets, filled(namespace, name))
	}
	scenario := func(of string) string {
		if variant == "" {
			return ""
		}
		return of + variant
	}
	o.measured(ctx, w, r, scenario("namespaces"), namespaces, o.Sizes.Namespaces, func(ctx context.Context, i int) error {
		return w.makeNamespace(ctx, bench(i))
	})
	must.Get(w.complete(ctx, r, accounts, o.Sizes.Secrets, func(ctx context.Context, i int) error {
		namespace, name := o.place(i)
		return w.makeAccount(ctx, namespace, name)
	}))
	o.measured(ctx, w, r, scenario("token Secrets"), secrets, o.Sizes.Secrets, func(ctx context.Context, i int) error {
		namespace, name := o.place(i)
		return w.makeTokenSecret(ctx, namespace, name, name)
	})
	w.accepted(ctx, o)
}

// place is the namespace and the name of a token Secret and of its account.
func (o *Options) place(i int) (namespace, name string) {
	return bench(i % min(tokenNamespaces, o.Sizes.Namespaces)), fmt.Sprintf("t-%06d", i)
}

// measured loads objects and measures what completing them costs. Without a scenario nothing is kept.
func (o *Options) measured(ctx context.Context, w *world, r *running, scenario string, names []string, size int,
	load func(ctx context.Context, i int) error) {
	must.Do(sleep(ctx, between))
	before := r.cost(ctx)
	took := must.Get(w.complete(ctx, r, names, size, load))
	must.Do(sleep(ctx, time.Second)) // Events are sent later
	after := r.cost(ctx)
	if scenario == "" {
		return
	}
	o.add(scenario, "time, s", r.name, took.Seconds())
	o.add(scenario, "CPU, s", r.name, after.cpu-before.cpu)
	o.add(scenario, "requests for each", r.name, (after.requests-before.requests)/float64(size))
}

// accepted has kube-apiserver review one of the tokens: what was measured otherwise is no measurement.
func (w *world) accepted(ctx context.Context, o *Options) {
	namespace, name := o.place(0)
	secret := must.Get(w.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}))
	review, err := w.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(secret.Data[corev1.ServiceAccountTokenKey])},
	}, metav1.CreateOptions{})
	must.Do(err)
	want := "system:serviceaccount:" + namespace + ":" + name
	must.Not(review.Status.User.Username != want, "a token of %s is reviewed as one of %q: %s", want, review.Status.User.Username,
		review.Status.Error)
}

// failover ends the leading one of two replicas: how long it takes until the next token Secret is filled. How many Pods
// are refused meanwhile, TestServiceDrain counts. The standby of one repetition leads in the next.
func (o *Options) failover(ctx context.Context) {
	onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world) {
		for _, program := range []string{kcm, ours} {
			leader := must.Get(o.replica(ctx, w, program))
			must.Get(w.complete(ctx, leader, []string{accountOf(program, "default")}, 1, func(ctx context.Context, _ int) error {
				return w.makeNamespace(ctx, program)
			}))
			for i := range 2 * o.Sizes.Repetitions {
				leader = o.succeed(ctx, w, leader, i%2 == 0)
			}
			must.Get(leader.Stop())
		}
	})
}

// replica starts one that takes part in the election, and waits until it is ready to take over.
func (o *Options) replica(ctx context.Context, w *world, program string, flags ...string) (*running, error) {
	r, err := o.start(ctx, w, program, append(flags, "--leader-elect=true")...)
	return r, errors.Join(err, sleep(ctx, between))
}

// succeed ends the leader and returns the next one.
func (o *Options) succeed(ctx context.Context, w *world, leader *running, told bool) *running {
	scenario, signal := "the leader killed", syscall.SIGKILL
	if told {
		scenario, signal = "the leader told to stop", syscall.SIGTERM
	}
	o.statusf("failover, %s, %s", leader.name, scenario)
	standby := must.Get(o.replica(ctx, w, leader.name))
	before := must.Get(w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leader.name, metav1.GetOptions{}))
	begun := time.Now()
	must.Do(syscall.Kill(leader.PID(), signal))
	at := w.filledBy(ctx, standby, before)
	o.add(scenario, "time until the next token Secret is filled, s", leader.name, at.Sub(begun).Seconds())
	<-leader.Done()
	return standby
}

// filledBy returns when a Secret is filled by the standby, which holds the Lease then. What the old leader fills in its
// last moments does not count.
func (w *world) filledBy(ctx context.Context, standby *running, before *coordinationv1.Lease) time.Time {
	for {
		begun := time.Now()
		name := fmt.Sprintf("next-%d", begun.UnixNano())
		took := must.Get(w.complete(ctx, standby, []string{filled(standby.name, name)}, 1, func(ctx context.Context, _ int) error {
			return w.makeTokenSecret(ctx, standby.name, name, "default")
		}))
		now := must.Get(w.client.CoordinationV1().Leases(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{}))
		at, holder := begun.Add(took), *now.Spec.HolderIdentity
		if holder != "" && holder != *before.Spec.HolderIdentity && now.Spec.AcquireTime.Time.Before(at) {
			return at
		}
	}
}
