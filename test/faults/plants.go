// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/planted"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// plantTimeout is how long a planted build has to get well, which it must not, and an
// ordinary one beside it, which must show nothing of any plant by then.
const plantTimeout = 2500 * time.Millisecond

// Planted has one replica of a planted build go through the race that shows the plant, and
// returns what it shows of it.
func (w *World) Planted(ctx context.Context, plant planted.Plant, binary devcluster.Binary) ([]checker.Violation, error) {
	binary.Env = []string{planted.Variable + "=" + plant.Name}
	found, err := w.struck(ctx, "planted-"+strings.ReplaceAll(plant.Name, " ", "-"), binary, plant.Race)
	return plant.Shown(found), err
}

// Control has one replica of an ordinary build go through the races of all plants, and returns what it
// shows of any plant. That has to be nothing, or what is found in planted
// builds proves nothing.
func (w *World) Control(ctx context.Context, binary devcluster.Binary) ([]checker.Violation, error) {
	found, err := w.struck(ctx, "planted-nothing", binary, slices.Collect(maps.Keys(races))...)
	var shown []checker.Violation
	for _, plant := range planted.Plants() {
		shown = append(shown, plant.Shown(found)...)
	}
	return shown, err
}

// raceTimeout bounds a race, on a machine that is busy.
const raceTimeout = time.Minute

// races are what plants show in.
var races = map[string]func(w *World, ctx context.Context, in *workload.Namespace) error{
	"fills": (*World).fill,
	"lease": (*World).writeWithoutLease,
}

// struck has one replica go through races, each in a namespace of its own, and returns all that is found.
func (w *World) struck(ctx context.Context, prefix string, binary devcluster.Binary,
	names ...string) (found []checker.Violation, err error) {
	defer func() { err = errors.Join(err, w.retire()) }()
	if err := w.deploy(ctx, binary, 1); err != nil {
		return nil, err
	}
	model := workload.Model{}
	for _, name := range names {
		n := workload.NewNamespace(prefix + "-" + name)
		model[n.Name] = n
		limit, cancel := context.WithTimeout(ctx, raceTimeout)
		err := errors.Join(w.client.CreateNamespace(limit, n.Name), races[name](w, limit, n))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	// Elsewhere in the cluster is what an earlier plant has left behind.
	outcome, err := w.check(ctx, scope{model: model, prefix: prefix, timeout: plantTimeout})
	for name := range model {
		err = errors.Join(err, w.client.DeleteNamespace(ctx, name))
	}
	return outcome.Violations, err
}

// fill has a Secret filled.
func (w *World) fill(ctx context.Context, n *workload.Namespace) error {
	if err := errors.Join(w.makeAccount(ctx, n, "someone"), w.client.MakeTokenSecret(ctx, n, "token", "someone", "extra")); err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error {
		secret, err := w.client.CoreV1().Secrets(n.Name).Get(ctx, "token", metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			err = errors.New("the Secret has no token")
		}
		return err
	})
}

// writeWithoutLease keeps the leader from its Lease and gives it work all the time.
func (w *World) writeWithoutLease(ctx context.Context, n *workload.Namespace) error {
	leader, err := w.leader(ctx)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	defer close(over)
	leader.now().proxy.Hold(faultproxy.On("", "leases"), over)
	end := time.Now().Add(afterDeadline)
	for i := 0; time.Now().Before(end); i++ {
		if err := w.makeAccount(ctx, n, fmt.Sprintf("account-%d", i)); err != nil {
			return err
		}
		await.Sleep(ctx, 200*time.Millisecond)
	}
	return nil
}

// makeAccount gives it lists of the user's.
func (w *World) makeAccount(ctx context.Context, n *workload.Namespace, name string) error {
	account := &workload.Account{Note: "note", Foreign: []string{"first", "second"}, Pulls: []string{"pull"}}
	n.Accounts[name] = account
	return w.client.CreateAccount(ctx, n.Name, name, account)
}
