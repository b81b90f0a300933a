// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package missed

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

// errInVain ends a run: whoever admits Pods does not give them what they are owed.
var errInVain = errors.New("not tried: the one before is no better than it was")

// Run tells done about each Pod. An error means that the API could not be asked, and
// ends it.
func (r Recreator) Run(ctx context.Context, pods []Pod, done func(*Pod, Result)) error {
	keepers := &keepers{r.Client, map[types.UID]int{}}
	trials := map[string]error{}
	var stop error
	for i := range pods {
		pod := &pods[i]
		result, err := r.one(ctx, pod, keepers, trials, stop)
		if err != nil {
			return fmt.Errorf("have Pod %s created anew: %w", pod, err)
		}
		if result.State == InVain {
			stop = errInVain
		}
		done(pod, result)
	}
	return nil
}

func (r Recreator) one(ctx context.Context, pod *Pod, keepers *keepers, trials map[string]error, stop error) (Result, error) {
	refusal, err := keepers.refusal(ctx, pod)
	if err != nil || refusal != "" {
		return Result{Left, refusal}, err
	}
	if stop != nil {
		return Result{Left, stop.Error()}, nil
	}
	if _, known := trials[pod.Namespace]; !known {
		trials[pod.Namespace] = r.try(ctx, pod.Namespace)
	}
	if err := trials[pod.Namespace]; err != nil {
		return Result{Left, err.Error()}, ctx.Err()
	}
	if r.DryRun {
		return Result{Planned, pod.Owner.String() + " creates it anew"}, nil
	}
	if pod.Owner.Kind == "Job" {
		keepers.evicted[pod.Owner.UID]++
	}
	return r.replace(ctx, pod)
}

// try tells why Pods of the namespace would be no better now. It creates one with
// dryRun, so that nobody's Pod has to go for it.
func (r Recreator) try(ctx context.Context, namespace string) error {
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
