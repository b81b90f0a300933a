// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kind tests sa-controller-manager end to end on real kind clusters: booting with it, taking
// over a running cluster and handing it back, also with a dead process, across a restart of the node and
// kubeadm upgrade, on several control-plane nodes, and as a Deployment by Helm.
//
//	make e2e-kind
//
// It needs a Docker engine and the kind CLI ($KIND, else kind on the PATH), and uses the node image of
// $KIND_NODE_IMAGE, else kind's own. The build tag kind keeps it out of all other test runs.
//
// The nodes mount the binary under test and a small client, and Pods run them in images that every node
// image has. So no image is built, loaded or pulled.
package kind
