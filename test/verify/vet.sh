#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# go vet finds nothing in the modules that hold code.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

go vet ./...
# What only the kubectl plugin is built for.
for system in darwin windows; do GOOS=$system go vet ./cmd/kubectl-sa_tokens; done
go -C test vet -tags=kind,browser ./...
