// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
)

// A mirror pod is the copy of a static pod in the API and must equal its source: the mutating
// webhook excludes every Pod with the annotation. The validating webhook excludes those that a node
// creates and that refer to nothing in their namespace. Our plugin would admit them, so nothing is
// lost, and the control plane's own Pods return after a reboot, an upgrade or a handback while no
// replica answers. This does not rely on NodeRestriction, which would keep a node from more than
// that.
//
// Each condition uses has() before it reads a field: empty fields do not exist.
const isMirror = `object != null && has(object.metadata) && has(object.metadata.annotations) && ` +
	`"` + corev1.MirrorPodAnnotationKey + `" in object.metadata.annotations`

func notAMirror() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: "not-a-mirror-pod", Expression: `!(request.kind.kind == "Pod" && ` + isMirror + `)`}
}

func notAHarmlessMirror() admissionregistrationv1.MatchCondition {
	const (
		isAskedForByANode = `request.operation == "CREATE" && request.resource.group == "" && request.resource.resource == "pods" && ` +
			`(!has(request.subResource) || request.subResource == "") && ` +
			`has(request.userInfo.username) && request.userInfo.username.startsWith("system:node:") && ` +
			`has(request.userInfo.groups) && "system:nodes" in request.userInfo.groups`

		readsNothing = `.all(c, !has(c.envFrom) && (!has(c.env) || c.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef))))`
		// A volume has its name and one field for its type. Other types, including those of later
		// versions, may refer to anything.
		refersToNothing = `has(object.spec) && !has(object.spec.serviceAccountName) && !has(object.spec.serviceAccount) && ` +
			`!has(object.spec.imagePullSecrets) && (!has(object.spec.volumes) || ` +
			`object.spec.volumes.all(v, v.all(field, field in ["name", "hostPath", "emptyDir", "downwardAPI"]))) && ` +
			`(!has(object.spec.initContainers) || object.spec.initContainers` + readsNothing + `) && ` +
			`(!has(object.spec.containers) || object.spec.containers` + readsNothing + `) && ` +
			`(!has(object.spec.ephemeralContainers) || object.spec.ephemeralContainers` + readsNothing + `)`
	)
	return admissionregistrationv1.MatchCondition{
		Name:       "not-a-harmless-mirror-pod-of-a-node",
		Expression: "!(" + isAskedForByANode + " && " + isMirror + " && " + refersToNothing + ")",
	}
}
