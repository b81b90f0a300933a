#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# cosign.sh DIRECTORY KEY signs the chart and the image of a release with an unencrypted ECDSA key of curve P-256, in PEM,
# as "cosign sign-blob" and "cosign sign" do: base64 of a signature of the SHA-256. Of an image in a registry cosign verifies
# a document with its digest; its archive is signed beside that. No transparency log hears of it.
set -euo pipefail
key=$(realpath "$2")
if ! openssl pkey -in "$key" -noout -text 2>/dev/null </dev/null | grep -q prime256v1; then
	echo "$2 must be a PEM file with an ECDSA key of curve P-256, not encrypted" >&2
	exit 1
fi
cd "$1"

image=$(echo sa-controller-manager_*_image.tar) chart=$(echo sa-controller-manager-*.tgz)
digest=$(tar -xOf "$image" index.json | sed -n 's/.*"digest": *"\([^"]*\)".*/\1/p')
printf '{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":"%s"},"type":"%s"},"optional":null}' \
	"${digest:?has no digest}" "cosign container image signature" >"${image%.tar}.json"
for file in "$chart" "$image" "${image%.tar}.json"; do
	openssl dgst -sha256 -sign "$key" "$file" | base64 --wrap=0 >"$file.sig"
done
