#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# The plugin is built for three systems, and golangci-lint sees it as one of them selects its files.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

go -C test/tools build -buildvcs=false -o "$PWD/bin/tools/typecheck" ./typecheck
for system in darwin windows; do
	packages=$(GOOS=$system go list -deps ./cmd/kubectl-sa_tokens | grep ^sa-controller-manager)
	# shellcheck disable=SC2086 # one argument for each package
	CGO_ENABLED=0 GOOS=$system bin/tools/typecheck $packages || fail "the plugin does not compile for $system" "a file for each system"
done
