// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// A Pod that kube-apiserver has completed (podpolicy.Completion) carries a mark with the name of the account
// that it was completed for, in two fields that no client can set: kube-apiserver overwrites the uid between
// the two webhooks, and a dry run has no selfLink, which its answer would show. What the plugin adds or
// refuses is then settled, so no webhook is called, but for two Pods: a probe, whose answer is the proof, and
// one that another webhook has made a mirror pod of.
const (
	isMarked   = ` == "sa-controller-manager:" + object.spec.?serviceAccountName.orValue("")`
	isComplete = `object.metadata.?uid.orValue("")` + isMarked

	// A dry run was refused by the first webhook if by any.
	isSettled = `request.operation == "CREATE" && (request.?dryRun.orValue(false) || object.metadata.?selfLink.orValue("")` + isMarked + `)`
)

// notCompleted returns the conditions of a webhook, and that it is called only if not done, an expression.
func (s Spec) notCompleted(done string, all ...admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	if !s.Ordinary {
		return all
	}
	return append(all, admissionregistrationv1.MatchCondition{
		Name: "not-completed", Expression: "!(" + done + ") || " + isMirror + " || " + isProbe,
	})
}
