#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Has krew check its manifest in bin/release and install each archive that it names, then runs the
# plugin of this machine. Nothing is downloaded.
set -euo pipefail

KREW_ROOT=$(mktemp -d)
export KREW_ROOT KREW_NO_UPGRADE_CHECK=1
trap 'rm -rf "$KREW_ROOT"' EXIT
for archive in bin/release/kubectl-sa_tokens_*.tar.gz; do
	platform=${archive#*_tokens_*_}
	platform=${platform%.tar.gz}
	rm -rf "${KREW_ROOT:?}"/*
	KREW_OS=${platform%_*} KREW_ARCH=${platform#*_} bin/tools/krew install --manifest=bin/release/sa-tokens.yaml --archive="$archive"
	[ "$platform" != "$(go env GOOS)_$(go env GOARCH)" ] || "$KREW_ROOT/bin/kubectl-sa_tokens" --version
done
