// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kind tests sa-controller-manager end to end on real kind clusters: from the
// first second, taking over a running cluster and handing it back, also when our process is
// dead, across a restart of the node, rotating its keys, and as a Deployment.
//
//	make e2e-kind
//
// It needs a Docker engine and the kind CLI ($KIND, else kind on the PATH), and takes the
// node image of $KIND_NODE_IMAGE, else kind's own. It is compiled with the build tag kind
// only, because a machine that can do neither can still run all other tests.
//
// The binary under test and a small client reach the nodes by a mount, and Pods run them
// in images that every node image has. So nothing is built, loaded or pulled.
package kind
