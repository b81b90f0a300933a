// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sa-controller-manager/test/devcluster"
)

// plantPatience is how long a planted build has to get well, which it must not, and an
// ordinary one beside it, which must show nothing of any plant by then.
const plantPatience = 2500 * time.Millisecond

// Planted has one replica of a planted build work under the attacks, and returns what it
// shows of the plant.
func (w *World) Planted(ctx context.Context, plant Plant, binary devcluster.Binary) ([]Violation, error) {
	found, err := w.struck(ctx, "planted-"+plant.slug(), binary, plant.Promise == 9)
	return plant.shown(found), err
}

// Control has one replica of an ordinary build go the same way in the same time, and
// returns what it shows of any plant. That has to be nothing, or what is found in planted
// builds proves nothing.
func (w *World) Control(ctx context.Context, binary devcluster.Binary) ([]Violation, error) {
	found, err := w.struck(ctx, "planted-nothing", binary, true)
	var shown []Violation
	for _, plant := range Plants() {
		shown = append(shown, plant.shown(found)...)
	}
	return shown, err
}

// struck has one replica work under the attacks, and without its Lease in the end if that
// is wanted, and returns all that is found.
func (w *World) struck(ctx context.Context, prefix string, binary devcluster.Binary, withoutLease bool) ([]Violation, error) {
	w.forget()
	w.monitor.setRace(false)
	if err := w.deploy(ctx, binary, 1); err != nil {
		return nil, err
	}
	model, err := w.attack(ctx, prefix)
	if err == nil && withoutLease {
		err = w.writeWithoutLease(ctx, model, prefix)
	}
	if err != nil {
		return nil, errors.Join(err, w.retire())
	}
	// Elsewhere in the cluster is what an earlier plant has left behind.
	outcome, err := w.check(ctx, scope{model: model, prefix: prefix}, nil, plantPatience)
	for name := range model {
		err = errors.Join(err, w.client.deleteNamespace(ctx, name))
	}
	return outcome.Violations, errors.Join(err, w.retire())
}

// writeWithoutLease keeps the leader from its Lease and gives it work all the time.
func (w *World) writeWithoutLease(ctx context.Context, model Model, prefix string) error {
	heal, err := holdLease(ctx, w, Planned{Kind: "lease-held"})
	if err != nil {
		return err
	}
	n := newNamespace(prefix + "-lease")
	model[n.Name] = n
	if err := w.client.createNamespace(ctx, n.Name); err != nil {
		return err
	}
	end := time.Now().Add(afterDeadline)
	for i := 0; time.Now().Before(end); i++ {
		if err := w.makeAccount(ctx, n, fmt.Sprintf("account-%d", i)); err != nil {
			return err
		}
		sleep(ctx, 200*time.Millisecond)
	}
	return heal(ctx)
}
