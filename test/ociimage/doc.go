// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ociimage makes a container image of one static binary, with neither a registry
// nor a container engine.
//
// The result is a tar file that is an OCI image layout and a Docker archive at the same
// time: containerd, podman, skopeo, "docker load" and "kind load image-archive" take it.
// It depends on the binary, the name and the date alone, so that equal sources give an
// equal image. The layer is not compressed, because what a compressor writes may change
// from one version to the next.
//
// Only the standard library is used: ko and go-containerregistry bring 30 to 700 packages, and
// neither writes one archive that is an OCI image layout and a Docker archive too.
package ociimage
