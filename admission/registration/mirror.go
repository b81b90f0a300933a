// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// A mirror pod is the copy of a static pod in the API, where it must not differ from its
// source: mutation leaves out whatever carries the annotation. Validation leaves out those
// alone that a node asks for and that refer to nothing of their namespace. Our plugin would
// admit them, so nothing is lost, and the control plane's own Pods are there again after a
// reboot, an upgrade or a handback while nobody answers the webhook. NodeRestriction, which
// would keep a node from more than that, is not relied on.
//
// Each condition looks before it reads: fields that are empty do not exist.
const (
	mirrorConditionName = "not-a-mirror-pod"
	harmlessMirrorName  = "not-a-harmless-mirror-pod-of-a-node"

	isMirror = `object != null && has(object.metadata) && has(object.metadata.annotations) && ` +
		`"` + corev1.MirrorPodAnnotationKey + `" in object.metadata.annotations`

	mirrorCondition = `!(request.kind.kind == "Pod" && ` + isMirror + `)`

	isAskedForByANode = `request.operation == "CREATE" && request.resource.group == "" && request.resource.resource == "pods" && ` +
		`(!has(request.subResource) || request.subResource == "") && ` +
		`has(request.userInfo.username) && request.userInfo.username.startsWith("system:node:") && ` +
		`has(request.userInfo.groups) && "system:nodes" in request.userInfo.groups`

	// A volume has its name and the member that says of which kind it is. Other kinds, those
	// of later versions too, may refer to anything.
	refersToNothing = `has(object.spec) && !has(object.spec.serviceAccountName) && !has(object.spec.serviceAccount) && ` +
		`!has(object.spec.imagePullSecrets) && ` +
		`(!has(object.spec.volumes) || object.spec.volumes.all(v, v.all(field, field in ["name", "hostPath", "emptyDir", "downwardAPI"]))) && ` +
		`(!has(object.spec.initContainers) || object.spec.initContainers` + readsNothing + `) && ` +
		`(!has(object.spec.containers) || object.spec.containers` + readsNothing + `) && ` +
		`(!has(object.spec.ephemeralContainers) || object.spec.ephemeralContainers` + readsNothing + `)`
	readsNothing = `.all(c, !has(c.envFrom) && (!has(c.env) || c.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef))))`
)

func notAMirror() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: mirrorConditionName, Expression: mirrorCondition}
}

func notAHarmlessMirror() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: harmlessMirrorName, Expression: "!(" + isAskedForByANode + " && " + isMirror + " && " + refersToNothing + ")",
	}
}

// ExemptMirrorPods adds to what an older version has registered the condition without which
// no mirror pod comes while nobody answers the webhook.
func ExemptMirrorPods(ctx context.Context, client kubernetes.Interface) error {
	lacks := func(e entry) bool {
		return e.Name == validateName && !slices.ContainsFunc(e.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
			return c.Name == harmlessMirrorName
		})
	}
	found, err := validating.in(client).get(ctx)
	if err == nil && (found == nil || !slices.ContainsFunc(found.entries, lacks)) {
		return nil
	}
	if err == nil {
		for i, one := range found.entries {
			if lacks(one) {
				found.entries[i].MatchConditions = slices.Insert(one.MatchConditions, 0, notAHarmlessMirror())
			}
		}
		err = validating.in(client).put(ctx, found)
	}
	if err != nil {
		return fmt.Errorf("exempt mirror pods from the %s %s: %w", validating, Name, err)
	}
	return nil
}
