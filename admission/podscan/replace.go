// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often is asked for what a person waits for.
const pollInterval = time.Second

func (r Recreator) replace(ctx context.Context, pod *Pod) (Result, error) {
	before, err := r.siblings(ctx, pod)
	if err != nil {
		return Result{}, err
	}
	result, err := r.evict(ctx, pod)
	if err != nil || result.State != Evicted {
		return result, err
	}
	return r.await(ctx, pod, before)
}

// siblings are the Pods of the same controller, those that have ended too.
func (r Recreator) siblings(ctx context.Context, pod *Pod) (sets.Set[types.UID], error) {
	uids := sets.New[types.UID]()
	err := r.eachSibling(ctx, pod, func(sibling *corev1.Pod) { uids.Insert(sibling.UID) })
	return uids, err
}

func (r Recreator) eachSibling(ctx context.Context, pod *Pod, visit func(*corev1.Pod)) error {
	return r.eachPod(ctx, pod.Namespace, "", func(other *corev1.Pod) error {
		if c := metav1.GetControllerOf(other); c != nil && c.UID == pod.Owner.UID {
			visit(other)
		}
		return nil
	})
}

// evict asks until budgets allow it.
func (r Recreator) evict(ctx context.Context, pod *Pod) (Result, error) {
	result := Result{State: Left}
	err := r.poll(ctx, func(ctx context.Context) (bool, error) {
		err := r.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
		})
		switch {
		case err == nil:
			result = Result{State: Evicted}
			return true, nil
		case apierrors.IsTooManyRequests(err):
			result.Detail = err.Error()
			r.progress(pod, "waits until a PodDisruptionBudget allows its eviction")
			return false, nil
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			result.Detail = err.Error()
			gone, err := r.isGone(ctx, pod)
			if gone {
				result = Result{State: Gone}
			}
			return gone, err
		case apierrors.IsInternalError(err): // such as more than one budget for the same Pod
			result.Detail = err.Error()
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return Result{}, fmt.Errorf("evict it: %w", err)
	}
	return result, nil
}

// isGone tells whether the Pod is none that there is, though another may have its name.
func (r Recreator) isGone(ctx context.Context, pod *Pod) (bool, error) {
	live, err := r.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && live.UID != pod.UID, err
}

// await waits for the successor: a Pod of the same controller that was not there before.
func (r Recreator) await(ctx context.Context, pod *Pod, before sets.Set[types.UID]) (Result, error) {
	r.progress(pod, "is evicted, awaiting what "+pod.Owner.String()+" creates")
	result := Result{Evicted, fmt.Sprintf("%s has created none in %s", pod.Owner, r.Patience)}
	err := r.poll(ctx, func(ctx context.Context) (bool, error) {
		var successor *corev1.Pod
		err := r.eachSibling(ctx, pod, func(other *corev1.Pod) {
			if !before.Has(other.UID) && other.DeletionTimestamp == nil {
				successor = other.DeepCopy()
			}
		})
		if err != nil || successor == nil {
			return false, err
		}
		if result, err = r.compare(ctx, successor); err != nil || result.State == InVain {
			return true, err
		}
		if pod.ready && !isReady(successor) {
			result.Detail += ", which is not ready yet"
			r.progress(pod, "is replaced by "+successor.Name+", awaiting that it is ready")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return Result{}, fmt.Errorf("await its successor: %w", err)
	}
	return result, nil
}

func (r Recreator) compare(ctx context.Context, successor *corev1.Pod) (Result, error) {
	seen, err := look(ctx, r.Client)
	if err != nil {
		return Result{}, err
	}
	missing, uncertain, err := r.examine(ctx, seen, successor)
	if err != nil {
		return Result{}, err
	}
	if len(missing) > 0 && !uncertain {
		lacking := describe(successor, missing, false)
		return Result{InVain, fmt.Sprintf("%s lacks its %s", successor.Name, lacking.Lacks())}, nil
	}
	return Result{Replaced, "by " + successor.Name}, nil
}

// poll asks until done or out of patience, which is no error.
func (r Recreator) poll(ctx context.Context, ask wait.ConditionWithContextFunc) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, r.Patience, true, ask)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if wait.Interrupted(err) {
		return nil
	}
	return err
}
