#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# go vet finds nothing in what golangci-lint, which vets too, does not see: the systems that only the
# kubectl plugin is built for.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for system in darwin windows; do GOOS=$system go vet ./cmd/kubectl-sa_tokens; done
