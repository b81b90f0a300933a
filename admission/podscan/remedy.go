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

// Remedy is how to replace a missed Pod.
type Remedy struct {
	// Command is the command line, the same for all missed Pods of an owner. It is empty if no
	// controller is known to create the Pod again.
	Command string `json:"command,omitempty"`
	// Note is an advice in addition to the command, or instead of it.
	Note string `json:"note,omitempty"`
}

// Remedies returns one Remedy for each Pod. The commands end with flags, those of ClusterFlags.
func Remedies(pods []Pod, flags string) []Remedy {
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
			remedies[i].Command = "kubectl " + action + " -n " + pod.Namespace + flags
		}
	}
	return remedies
}

// remedy returns the kubectl arguments for all missed Pods of the owner. The action is "" if it is
// unknown whether the owner creates Pods again.
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
		return "", fmt.Sprintf("it is not known whether %s creates it again", o)
	}
}

// deploymentOf returns the Deployment of a Pod's ReplicaSet, "" if it has none. The Deployment
// controller names a ReplicaSet after itself and the hash in the Pods' label.
func deploymentOf(pod *corev1.Pod, owner string) string {
	hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	name, found := strings.CutSuffix(owner, "-"+hash)
	if hash == "" || !found {
		return ""
	}
	return name
}

// plain matches text without characters that are special to a shell.
var plain = regexp.MustCompile(`^[\w./:@%+,=-]+$`)

// ClusterFlags returns the flags for the same cluster, each with a leading blank; those that are empty
// are left out.
func ClusterFlags(kubeconfig, context string) string {
	return flag("kubeconfig", kubeconfig) + flag("context", context)
}

func flag(name, value string) string {
	switch {
	case value == "":
		return ""
	case plain.MatchString(value):
		return " --" + name + "=" + value
	default:
		return " --" + name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
}
