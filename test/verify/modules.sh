#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# The go.mod and go.sum of every module are as go mod tidy has them, and the
# product's module stays free of what only tests need.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

untidy=()
for module in "${go_modules[@]}"; do
	go -C "$module" mod tidy -diff || untidy+=("$module")
done
[ ${#untidy[@]} -eq 0 ] || fail "not tidy: ${untidy[*]}" "make update-modules"

heavy=$(go list -m -f '{{.Path}}' all | grep -xE 'k8s.io/kubernetes|sigs.k8s.io/(controller-runtime|kind|e2e-framework)' || true)
[ -z "$heavy" ] || fail "the product's go.mod leads to $heavy, which belongs into test/"
