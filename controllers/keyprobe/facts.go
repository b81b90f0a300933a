// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import "sa-controller-manager/internal/check"

// NotAccepted is the fact that a {server} refuses the tokens of a {key}.
var NotAccepted = check.Fact{
	Code: "key-not-accepted", Message: "{server} refuses tokens of key {key}",
	Cost: "what has such a token gets 401, and no token Secret is filled with one",
	Remedy: "first what a finding about the key ring says; then give that kube-apiserver the public key with one more " +
		"--service-account-key-file, or the external signer, and restart it (docs/rotation.md)",
}

// Refusal returns NotAccepted for what has shown it.
func Refusal(server, key, why string) check.Finding {
	return NotAccepted.Found("{server}", server, "{key}", key).Because(why)
}

// Findings is the check of /readyz: the key that signs, and whether kube-apiserver refuses it.
func (a *Prober) Findings() (check.Result, error) {
	result := check.Result{Note: a.Status()}
	if a.MaySign() != nil {
		result.Findings = []check.Finding{Refusal("kube-apiserver", a.Ring.Ring().ActiveID(), "")}
	}
	return result, nil
}
