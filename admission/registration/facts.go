// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests"
)

const (
	unserved = "Pods that kube-apiserver does not complete itself get no account, no token and no limit on Secrets, unless it has " +
		"its plugin"

	// The ways out, for what is registered in the API and for files.
	register = "sa-controller-manager webhook register{flags}; with files, on each host: sa-controller-manager webhook register " +
		staticDir
	unregister = "if Pods cannot wait: sa-controller-manager webhook unregister{flags}; with files before that, on that host: " +
		"sa-controller-manager webhook unregister " + staticDir
	staticDir = "--static-registration-dir=" + manifests.StaticDirectory
	seeLog    = "see /readyz/webhook-registration and the log of the leader, with files of that host"
)

// The facts about the registration.
var (
	FactOff = check.Fact{
		Code: "registration-off", Message: "the webhook is switched off", Cost: unserved,
		Remedy: "once the reason for switching it off is gone: " + register,
	}
	FactUnbound = check.Fact{
		Code: "registration-unbound", Message: "the webhook is not registered, and is to be", Cost: unserved,
		Remedy: seeLog, Unready: true,
	}
	FactUnreachable = check.Fact{
		Code: "registration-unreachable", Message: "the webhook is registered, and kube-apiserver does not reach it",
		Cost: "Pods that need it are refused", Remedy: unregister + "; " + seeLog, Unready: true,
	}
	FactUnknown = check.Fact{
		Code: "registration-unknown", Message: "it is not known whether kube-apiserver reaches the webhook",
		Cost: "nothing, if it does", Remedy: seeLog, Unready: true,
	}
)

// Findings returns what is wrong with the state.
func (s Status) Findings() []check.Finding {
	fact := FactUnbound
	switch s.State {
	case Registered, Idle:
		return nil
	case Off:
		fact = FactOff
	case Unreachable:
		fact = FactUnreachable
	case Unknown:
		fact = FactUnknown
	case Starting, Waiting, Proving, Repairing:
	}
	return []check.Finding{fact.Found()}
}
