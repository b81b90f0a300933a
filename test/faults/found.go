// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	found, err := w.struck(ctx, "planted-"+plant.Slug(), binary, func(race race) bool { return race.name == plant.Race })
	return plant.Shown(found), err
}

// Control has one replica of an ordinary build go through the races of all plants, and returns what it
// shows of any plant. That has to be nothing, or what is found in planted
// builds proves nothing.
func (w *World) Control(ctx context.Context, binary devcluster.Binary) ([]checker.Violation, error) {
	found, err := w.struck(ctx, "planted-nothing", binary, func(race) bool { return true })
	var shown []checker.Violation
	for _, plant := range planted.Plants() {
		shown = append(shown, plant.Shown(found)...)
	}
	return shown, err
}

// plantedRaces are all that a plant may show in.
func (w *World) plantedRaces() []race { return append(w.races(), race{"lease", w.writeWithoutLease}) }

// struck has one replica go through the races that are wanted, and returns all that is found.
func (w *World) struck(ctx context.Context, prefix string, binary devcluster.Binary, wanted func(race) bool) ([]checker.Violation, error) {
	w.forget()
	w.monitor.setRace(false)
	if err := w.deploy(ctx, binary, 1); err != nil {
		return nil, err
	}
	model, err := w.attack(ctx, prefix, slices.DeleteFunc(w.plantedRaces(), func(race race) bool { return !wanted(race) }))
	if err != nil {
		return nil, errors.Join(err, w.retire())
	}
	// Elsewhere in the cluster is what an earlier plant has left behind.
	outcome, err := w.check(ctx, scope{model: model, prefix: prefix}, nil, plantTimeout)
	for name := range model {
		err = errors.Join(err, w.client.DeleteNamespace(ctx, name))
	}
	return outcome.Violations, errors.Join(err, w.retire())
}

// writeWithoutLease keeps the leader from its Lease and gives it work all the time.
func (w *World) writeWithoutLease(ctx context.Context, n *workload.Namespace) error {
	heal, err := onLeader(hold(faultproxy.On("", "leases")))(ctx, w, Planned{Kind: "lease-held"})
	if err != nil {
		return err
	}
	end := time.Now().Add(afterDeadline)
	for i := 0; time.Now().Before(end); i++ {
		if err := w.makeAccount(ctx, n, fmt.Sprintf("account-%d", i)); err != nil {
			return err
		}
		await.Sleep(ctx, 200*time.Millisecond)
	}
	return heal(ctx)
}
