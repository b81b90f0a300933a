// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeadm runs the commands of "sa-controller-manager kubeadm" on a control plane
// that looks like one of kubeadm. It holds tests only.
//
// There is no container and no node. A directory is the node's file system, with
// etc/kubernetes in it as kubeadm lays it out, and a small kubelet reads the manifests
// directory there: it ignores names with a dot, starts the real kube-apiserver,
// kube-controller-manager and sa-controller-manager with the command of the manifest,
// restarts them when that changes, and keeps mirror pods. A path of a container is
// looked up in its volumes and becomes one in the directory.
//
// The judge is what a person would look at: the bytes of the files, and what
// kube-apiserver makes of Pods that are created at twenty a second all the while.
package kubeadm
