// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
	"sa-controller-manager/signing/testkeys"
)

var errKilled = errors.New("killed")

// killedAt is a disk on which a process dies ahead of step n (counted from 0) and does nothing any more. It counts in steps.
func killedAt(n int, steps *[]string) disk {
	return disk{flush: flushNothing, before: func(step string) error {
		*steps = append(*steps, step)
		if len(*steps) > n {
			return errKilled
		}
		return nil
	}}
}

func flushNothing(*os.File) error { return nil }

// command is what a person runs, and runs again if it was killed. A refusal says that it is done already.
type command struct {
	prepare func(t *testing.T) *Dir
	run     func(t *testing.T, d *Dir) error
	phase   rotation.Phase
	twice   bool // kill the second run too: it differs from the first where files come and go
}

func commands() map[string]command {
	update := func(transition func(rotation.State) (rotation.State, error)) func(*testing.T, *Dir) error {
		return func(_ *testing.T, d *Dir) error {
			snapshot, err := d.Read()
			if err != nil {
				return err
			}
			_, err = d.Update(snapshot.State.Generation, transition)
			return err
		}
	}
	after := func(transitions ...func(rotation.State) (rotation.State, error)) func(*testing.T) *Dir {
		return func(t *testing.T) *Dir {
			t.Helper()
			d := newRing(t)
			d.disk.flush = flushNothing
			publish(t, d, testkeys.P256())
			for _, transition := range transitions {
				must(t, update(transition)(t, d))
			}
			return d
		}
	}
	return map[string]command{
		"init": {
			prepare: func(t *testing.T) *Dir { t.Helper(); return At(filepath.Join(t.TempDir(), "keys")) },
			run: func(t *testing.T, d *Dir) error {
				t.Helper()
				_, err := d.Init(pair(t, testkeys.RSA2048()), []signing.PublicKey{pair(t, testkeys.P384()).Public()}, epoch, policy)
				if err != nil && strings.Contains(err.Error(), "holds a key ring already") {
					return &rotation.Refusal{Reason: err.Error()}
				}
				return err
			},
			twice: true,
		},
		"publish": {
			prepare: newRingOf,
			run: func(t *testing.T, d *Dir) error {
				t.Helper()
				snapshot, err := d.Read()
				if err != nil {
					return err
				}
				_, err = d.Publish(snapshot.State.Generation, pair(t, testkeys.P256()), epoch, policy)
				return err
			},
			phase: rotation.Published,
			twice: true,
		},
		"activate":             {prepare: after(), run: update(activate), phase: rotation.Activated},
		"complete":             {prepare: after(activate), run: update(complete), phase: rotation.Completed},
		"withdraw":             {prepare: after(), run: update(rollback), phase: rotation.RolledBack},
		"roll back activated":  {prepare: after(activate), run: update(rollback), phase: rotation.RolledBack},
		"roll back completed":  {prepare: after(activate, complete), run: update(rollback), phase: rotation.RolledBack},
		"prune":                {prepare: after(activate, complete), run: update(pruneOf(rsaID)), phase: rotation.Completed, twice: true},
		"prune an import":      {prepare: after(), run: update(pruneOf(p384ID)), phase: rotation.Published},
		"prune after rollback": {prepare: after(activate, rollback), run: update(pruneOf(p256ID)), phase: rotation.RolledBack},
	}
}

func newRingOf(t *testing.T) *Dir { t.Helper(); return newRing(t) }

const (
	rsaID  = "08iLkgQ_1toJ0m7DOaK-qM-kpePj85P8ak2auCJDaGY"
	p256ID = "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4"
	p384ID = "ndNms7FPZ8s0S_IEu2oMbq1NJEIdqHD7aJWnSarOhh4"
)

// TestKilledAtEveryStep kills each command ahead of each of its steps, holds what is left against the rules, runs the command
// again, and wants the end that an undisturbed run has. For some of the first deaths the second run is killed at each of its
// steps too.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, c := range commands() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole, undisturbed := []string(nil), c.prepare(t)
			undisturbed.disk = killedAt(1<<20, &whole)
			must(t, c.run(t, undisturbed))
			want := outcome(t, undisturbed)
			if want.state.Phase() != c.phase {
				t.Fatalf("the phase is %q, want %q", want.state.Phase(), c.phase)
			}
			for first := range whole {
				killTwice(t, c, first, -1, want)
				for second := 0; c.twice && first%4 == 0 && killTwice(t, c, first, second, want); second++ {
				}
			}
			t.Logf("%d steps: %s", len(whole), strings.Join(whole, ", "))
		})
	}
}

// killTwice kills the first run at step first and, unless second is negative, the next run at step second. It reports whether
// the second run did die.
func killTwice(t *testing.T, c command, first, second int, want end) (died bool) {
	t.Helper()
	d := c.prepare(t)
	when := fmt.Sprintf("killed at %d", first)
	var steps []string
	d.disk = killedAt(first, &steps)
	if err := c.run(t, d); !errors.Is(err, errKilled) {
		t.Fatalf("%s: %v", when, err)
	}
	check(t, d, when+", ahead of "+steps[first])
	if second >= 0 {
		steps = nil
		d.disk = killedAt(second, &steps)
		died = errors.Is(c.run(t, d), errKilled)
		when += fmt.Sprintf(" and %d", second)
		check(t, d, when)
	}
	d.disk = disk{flush: flushNothing}
	var refusal *rotation.Refusal
	if err := c.run(t, d); err != nil && !errors.As(err, &refusal) {
		t.Fatalf("%s: run again: %v", when, err)
	}
	// Leftovers of a run whose transition was made already are the next writer's to clear.
	if snapshot := read(t, d); len(snapshot.State.Leftovers) > 0 || refusal != nil {
		_, err := d.write(snapshot.State.Generation, func(*writer) error { return nil })
		must(t, err)
	}
	got := outcome(t, d)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(end{})); diff != "" {
		t.Errorf("%s: the end differs: -want +got:\n%s", when, diff)
	}
	return died
}

// end is what every way to it has in common: all but the generation.
type end struct {
	state rotation.State
	files map[string]os.FileMode
}

func outcome(t *testing.T, d *Dir) end {
	t.Helper()
	state := read(t, d).State.Clone()
	state.Generation = 0
	return end{state: state, files: files(t, d)}
}

// check holds whatever a killed writer leaves against the rules of the package comment.
func check(t *testing.T, d *Dir, when string) {
	t.Helper()
	if _, err := os.Stat(d.path); err != nil {
		return
	}
	for name, mode := range files(t, d) {
		if mode != 0o600 {
			t.Errorf("%s: %s has mode %v", when, name, mode)
		}
	}
	if _, err := os.Stat(d.statePath()); err != nil {
		if _, err := d.Read(); err == nil {
			t.Errorf("%s: a ring without a state was read", when)
		}
		return
	}
	snapshot, err := d.Read()
	if err != nil {
		t.Fatalf("%s: the ring cannot be read: %v", when, err)
	}
	for name := range files(t, d) {
		known := name == stateName || strings.HasPrefix(name, ".")
		for _, key := range snapshot.State.Keys {
			known = known || key.File == name
		}
		for _, leftover := range snapshot.State.Leftovers {
			known = known || leftover == name
		}
		if !known {
			t.Errorf("%s: nobody knows of %s", when, name)
		}
	}
}

func TestStepsTakeNoTime(t *testing.T) {
	t.Parallel()
	// The outcome of a command that was killed must not depend on when it is run again, so a transition made once stays.
	d := newRing(t)
	publish(t, d, testkeys.P256())
	before := read(t, d).State
	_, err := d.Publish(before.Generation, pair(t, testkeys.P521()), epoch.Add(time.Minute), policy)
	if _, refused := errors.AsType[*rotation.Refusal](err); !refused {
		t.Fatalf("a second key was published: %v", err)
	}
	if diff := cmp.Diff(before, read(t, d).State); diff != "" {
		t.Errorf("a refused transition changed the ring: -want +got:\n%s", diff)
	}
}

// TestAnotherKeyAfterADeath wants nothing left of a key whose publication was killed, when the next run makes another one.
func TestAnotherKeyAfterADeath(t *testing.T) {
	t.Parallel()
	for n := 0; ; n++ {
		d := newRing(t)
		var steps []string
		d.disk = killedAt(n, &steps)
		_, err := d.Publish(1, pair(t, testkeys.P256()), epoch, policy)
		if err == nil {
			return
		}
		d.disk = disk{flush: flushNothing}
		snapshot := read(t, d)
		if snapshot.State.Phase() == rotation.Published {
			continue
		}
		_, err = d.Publish(snapshot.State.Generation, pair(t, testkeys.P521()), epoch, policy)
		must(t, err)
		for name := range files(t, d) {
			if strings.Contains(name, p256ID) {
				t.Errorf("killed ahead of %s: %s is left", steps[n], name)
			}
		}
	}
}
