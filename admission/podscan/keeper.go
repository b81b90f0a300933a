// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// keepers tells whether somebody will create a Pod anew, and remembers how often a Job
// has been made to.
type keepers struct {
	client  kubernetes.Interface
	evicted map[types.UID]int // by Job
}

// refusal says why nobody would create the Pod anew, "" if its controller would.
func (k *keepers) refusal(ctx context.Context, pod *Pod) (string, error) {
	if pod.Owner == nil {
		return "no controller owns it", nil
	}
	owner, err := k.owner(ctx, pod)
	if apierrors.IsNotFound(err) {
		return pod.Owner.String() + " is gone", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s in namespace %s: %w", pod.Owner, pod.Namespace, err)
	}
	if owner == nil {
		return "whether " + pod.Owner.String() + " creates Pods anew is not known", nil
	}
	if owner.GetUID() != pod.Owner.UID || owner.GetDeletionTimestamp() != nil {
		return pod.Owner.String() + " is gone", nil
	}
	if job, ok := owner.(*batchv1.Job); ok {
		return jobRefusal(job, pod, k.evicted[job.UID]), nil
	}
	return "", nil
}

// owner is the Pod's controller, nil if it is of a kind that is not known.
func (k *keepers) owner(ctx context.Context, pod *Pod) (metav1.Object, error) {
	namespace, name, options := pod.Namespace, pod.Owner.Name, metav1.GetOptions{}
	switch schema.FromAPIVersionAndKind(pod.Owner.APIVersion, pod.Owner.Kind).String() {
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet").String():
		return k.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, options)
	case corev1.SchemeGroupVersion.WithKind("ReplicationController").String():
		return k.client.CoreV1().ReplicationControllers(namespace).Get(ctx, name, options)
	case appsv1.SchemeGroupVersion.WithKind("StatefulSet").String():
		return k.client.AppsV1().StatefulSets(namespace).Get(ctx, name, options)
	case appsv1.SchemeGroupVersion.WithKind("DaemonSet").String():
		return k.client.AppsV1().DaemonSets(namespace).Get(ctx, name, options)
	case batchv1.SchemeGroupVersion.WithKind("Job").String():
		return k.client.BatchV1().Jobs(namespace).Get(ctx, name, options)
	default:
		return nil, nil
	}
}

// jobRefusal is for Jobs, to which a Pod that goes is a Pod that has failed
// (k8s.io/kubernetes pkg/controller/job): too many end the Job.
func jobRefusal(job *batchv1.Job, pod *Pod, evicted int) string {
	finished := slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		over := c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed ||
			c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget
		return over && c.Status == corev1.ConditionTrue
	})
	switch limit, perIndex := job.Spec.BackoffLimit, job.Spec.BackoffLimitPerIndex; {
	case finished:
		return pod.Owner.String() + " is finished"
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		return pod.Owner.String() + " is suspended"
	case job.Spec.PodFailurePolicy != nil:
		return pod.Owner.String() + " has a podFailurePolicy, which may end it"
	case perIndex != nil && pod.indexFailures >= int(*perIndex):
		return fmt.Sprintf("%s would give its index up: backoffLimitPerIndex is %d", pod.Owner, *perIndex)
	case limit != nil && int(job.Status.Failed)+evicted >= int(*limit):
		return fmt.Sprintf("%s would fail: backoffLimit is %d", pod.Owner, *limit)
	}
	return ""
}
