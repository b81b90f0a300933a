// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeadm puts sa-controller-manager into a control plane of kubeadm and takes
// it out again: Takeover and Handback.
//
// Both look at the node and the cluster first (observe), decide what is left to do
// without touching anything (plan), print it, and then go through the steps. A step
// writes files, if they are not yet as they should be, and waits until the kubelet has
// made the change come true. One that does not come true in time ends the command with
// what to do; calling it again goes on from there, because what is done needs no step.
//
// The order is what keeps Pods from being refused. On the way in our process runs and
// its webhook is bound before kube-apiserver loses its plugin; on the way out
// kube-apiserver has its plugin back before the webhook goes. Nothing on the way out needs
// our process: it may be what is broken.
//
// The manifests of kube-apiserver and kube-controller-manager are the operator's. Strings
// are appended to their command and nothing is rewritten, see package staticpod. Flags
// that are given twice add up (lists) or the last one counts (all others), so a line at
// the end says it all, is gone again without a trace, and can be put into a kubeadm
// patch that needs to know nothing about the rest.
//
// What must never happen: a file in the manifests directory that the kubelet could take
// for a manifest and that is none; a manifest that is half written; kube-apiserver
// without its plugin while no webhook is bound.
//
// It is for one call at a time on one node.
package kubeadm
