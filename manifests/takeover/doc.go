// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover adds sa-controller-manager to a kubeadm control plane (Run) and removes it
// again (Handback).
//
// Both read the node's files (observe); a takeover decides what they are to become (desire). They then decide what is left
// to do without changing anything (plan), print the plan, and run its steps. A step writes the files that are not yet as
// wanted and waits until the kubelet runs them. A step that times out ends the command with advice. Running the command
// again continues from there, because a finished step has nothing left to write.
//
// The order keeps Pods from being refused. A takeover starts our process and binds its webhook before
// kube-apiserver loses its plugin; a handback gives kube-apiserver its plugin back before the webhook
// goes. No step of a handback needs our process, because that may be what is broken.
//
// This package is the home of the order of the steps and of the proof that each waits for. What a step
// does to the manifests of kube-apiserver and kube-controller-manager is in package component.
//
// Both manifests belong to the operator, and record.json says what was changed in them: it is written before them, and
// a handback goes by it. A takeover appends flags to their command, and takes out only the key flags. Of flags that are
// given twice, lists add up and otherwise the last one counts.
//
// What must never happen: a file in the manifests directory that is no manifest and that the kubelet
// takes for one; a half-written manifest; kube-apiserver without its plugin while no webhook is bound.
//
// Only one command may change a node at a time: it locks the directory of the manifests.
package takeover
