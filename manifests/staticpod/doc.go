// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpod reads the manifest of a static pod as a value, applies a JSON patch to it and prints it
// as kubeadm does: comments and the order of keys are lost, the order of the command is not.
//
// One form is accepted: one Pod with one container, whose command is the program and its flags. Anything
// else is refused with the reason.
//
// Everything here is pure: bytes in, bytes out. A Manifest is immutable and may be used from any
// goroutine.
package staticpod
