// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"fmt"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Remedy is how a new Pod comes to be in the place of one that was missed.
type Remedy struct {
	// Command is the line to type, one and the same for all missed Pods of an owner. It is
	// empty if no controller is known to create the Pod again.
	Command string `json:"command,omitempty"`
	// Note is what to know before that, or instead.
	Note string `json:"note,omitempty"`
}

// Remedies has one Remedy for each Pod. The commands name the kubeconfig, unless it is
// empty.
func Remedies(pods []Pod, kubeconfig string) []Remedy {
	names := map[types.UID]string{} // of the Pods of an owner
	for i := range pods {
		if pod := &pods[i]; pod.Owner != nil {
			names[pod.Owner.UID] += " " + pod.Name
		}
	}
	remedies := make([]Remedy, len(pods))
	for i := range pods {
		pod := &pods[i]
		if pod.Owner == nil {
			remedies[i].Note = "no controller owns it: delete it and create it yourself"
			continue
		}
		action, note := pod.Owner.remedy(pod, names[pod.Owner.UID])
		remedies[i].Note = note
		if action != "" {
			remedies[i].Command = "kubectl " + action + " -n " + pod.Namespace + KubeconfigFlag(kubeconfig)
		}
	}
	return remedies
}

// remedy is what kubectl is to do about all missed Pods of the owner, which has been seen
// to own that Pod. It is "" if nobody knows whether the owner creates Pods again.
func (o *Owner) remedy(pod *Pod, names string) (action, note string) {
	switch schema.FromAPIVersionAndKind(o.APIVersion, o.Kind) {
	case appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):
		if pod.deployment != "" {
			return "rollout restart deployment/" + pod.deployment, ""
		}
		return "delete pod" + names, ""
	case corev1.SchemeGroupVersion.WithKind("ReplicationController"):
		return "delete pod" + names, ""
	case appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithKind("DaemonSet"):
		return "rollout restart " + strings.ToLower(o.Kind) + "/" + o.Name, ""
	case batchv1.SchemeGroupVersion.WithKind("Job"):
		return "delete pod" + names, fmt.Sprintf("%s counts a deleted Pod as failed", o)
	default:
		return "", fmt.Sprintf("whether %s creates it again is not known", o)
	}
}

// deploymentOf is the Deployment of a Pod's ReplicaSet, "" if it has none. The Deployment
// controller calls a ReplicaSet by its own name and the hash with which it labels the Pods.
func deploymentOf(pod *corev1.Pod, owner string) string {
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	name, found := strings.CutSuffix(owner, "-"+hash)
	if hash == "" || !found {
		return ""
	}
	return name
}

// plain is what no shell takes for more than it is.
var plain = regexp.MustCompile(`^[\w./:@%+,=-]+$`)

// KubeconfigFlag is the flag that leads a command to the same cluster, with a blank before it; empty
// without a path.
func KubeconfigFlag(path string) string {
	switch {
	case path == "":
		return ""
	case plain.MatchString(path):
		return " --kubeconfig=" + path
	default:
		return " --kubeconfig='" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
}
