// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/signing"
)

// act is what a change of a token Secret shows somebody to have done.
type act string

const (
	nothing act = ""
	// filled: a Secret that this process was about to fill has got a token.
	filled act = "filled"
	// undone: a Secret that held the root CA of this process holds another one.
	undone act = "undone"
)

// sign is one piece of evidence. Those that are equal are counted together.
type sign struct {
	act     act
	manager string
	// secret is where, if that matters: who changes many Secrets once each is no
	// controller, and who changes one again and again is.
	secret cache.ObjectName
}

// judge reads a change of a Secret from before to after. It goes by what was seen to
// happen: what a Secret holds when it is first seen may be from before a takeover, and a
// Secret that is created with a token may be a user's, or restored.
func judge(before, after *tokensecrets.TokenSecret, ca *rootca.Bundle, keys *signing.KeySet) sign {
	if before.UID != after.UID {
		return sign{}
	}
	switch {
	case wasFilled(before, after) && (after.TokenWriter == meta.UpstreamFieldManager || isStrange(after, keys)):
		return sign{act: filled, manager: after.TokenWriter}
	case wasUndone(before, after, ca) && after.CAWriter == meta.UpstreamFieldManager:
		return sign{act: undone, manager: after.CAWriter}
	case wasUndone(before, after, ca):
		return sign{act: undone, manager: after.CAWriter, secret: cache.NewObjectName(after.Namespace, after.Name)}
	}
	return sign{}
}

// wasFilled tells whether a token was put where this process would have put one.
func wasFilled(before, after *tokensecrets.TokenSecret) bool {
	owed := before.Token == nil && before.AccountName != "" && !before.Terminating() && !before.InvalidSince() && !before.Immutable
	return owed && after.Token != nil && after.TokenWriter != ""
}

// isStrange tells whether the token's key is none of ours. That counts for a write that
// bears our own name too: another cluster of replicas, with a Lease and a key of its own.
func isStrange(secret *tokensecrets.TokenSecret, keys *signing.KeySet) bool {
	id := secret.Token.KeyID()
	_, known := keys.Lookup(id)
	return id != "" && !known
}

// wasUndone tells whether somebody replaced the root CA in force. Who empties ca.crt
// wants it written anew.
func wasUndone(before, after *tokensecrets.TokenSecret, ca *rootca.Bundle) bool {
	return after.CAWriter != "" && before.HasCA && after.HasCA && !before.Terminating() &&
		!ca.Owed(true, before.CAHash) && ca.Owed(true, after.CAHash)
}

// needed is how often the sign must be seen to be believed. kube-controller-manager is
// known to be one; anybody else may be a user who tries something out, or a replica of
// ours that has just ceased to lead and whose last writes come late.
func (s sign) needed() int {
	if s.manager == meta.UpstreamFieldManager {
		return 1
	}
	return strangersSigns
}
