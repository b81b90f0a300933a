// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/admission/registration"
)

// State is what became of a Pod that was to be created anew.
type State string

// The states.
const (
	Replaced State = "replaced"  // another Pod is in its place, with all that it is owed
	Planned  State = "planned"   // it would be tried, were this no dry run
	Left     State = "left"      // it was not touched
	Gone     State = "gone"      // it was gone already
	Evicted  State = "evicted"   // and no other Pod has come in time
	InVain   State = "no-better" // the Pod in its place lacks something too
)

// Result is the state with what is to be known about it, for people.
type Result struct {
	State  State  `json:"state"`
	Detail string `json:"detail,omitempty"`
}

// Healed tells whether no Pod lacks anything any more.
func (r Result) Healed() bool { return r.State == Replaced || r.State == Gone }

func (r Result) String() string {
	if r.Detail == "" {
		return string(r.State)
	}
	return string(r.State) + ": " + r.Detail
}

// Recreator has Pods created anew by the controllers that own them. A Pod goes by
// eviction, so that PodDisruptionBudgets are respected, and only if it still has its
// UID. One Pod goes after the other; the next one has to wait until the former has a
// successor, which has to be ready if the former was.
type Recreator struct {
	Finder

	// Patience bounds the wait for a budget that allows the eviction, and then that for
	// the successor.
	Patience time.Duration
	// DryRun only says what would be done.
	DryRun bool
	// Progress is told what is being waited for. It may be nil.
	Progress func(pod *Pod, what string)
}

// Run tells done about each Pod. An error means that the API could not be asked, and
// ends it.
func (r Recreator) Run(ctx context.Context, pods []Pod, done func(*Pod, Result)) error {
	run := &run{Recreator: r, keepers: keepers{r.Client, map[types.UID]int{}}, trials: map[string]error{}}
	for i := range pods {
		pod := &pods[i]
		result, err := run.one(ctx, pod)
		if err != nil {
			return fmt.Errorf("have Pod %s created anew: %w", pod, err)
		}
		run.inVain = run.inVain || result.State == InVain
		done(pod, result)
	}
	return nil
}

// run is what has been learned so far.
type run struct {
	Recreator

	keepers keepers
	trials  map[string]error // by namespace
	inVain  bool             // a new Pod was no better than the old one
}

func (r *run) one(ctx context.Context, pod *Pod) (Result, error) {
	refusal, err := r.keepers.refusal(ctx, pod)
	if err != nil || refusal != "" {
		return Result{Left, refusal}, err
	}
	if r.inVain {
		return Result{Left, "not tried: another one was no better than before"}, nil
	}
	if _, known := r.trials[pod.Namespace]; !known {
		r.trials[pod.Namespace] = r.try(ctx, pod.Namespace)
	}
	if err := r.trials[pod.Namespace]; err != nil {
		return Result{Left, err.Error()}, ctx.Err()
	}
	if r.DryRun {
		return Result{Planned, pod.Owner.String() + " creates it anew"}, nil
	}
	result, err := r.replace(ctx, pod)
	if result.State != Left && result.State != Gone && pod.Owner.Kind == "Job" {
		r.keepers.evicted[pod.Owner.UID]++
	}
	return result, err
}

// try tells why Pods of the namespace would be no better now. It creates one with
// dryRun, so that nobody's Pod has to go for it.
func (r *run) try(ctx context.Context, namespace string) error {
	pod, err := r.Client.CoreV1().Pods(namespace).Create(ctx, registration.TrialPod(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("a trial Pod is refused: %w", err)
	}
	if r.Config.Owed(pod, nil).Account {
		return errors.New("a new Pod would have no account either: the webhook is not called here")
	}
	return nil
}

func (r Recreator) progress(pod *Pod, what string) {
	if r.Progress != nil {
		r.Progress(pod, what)
	}
}
