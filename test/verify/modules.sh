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

# Else the first run of make demo compiles nearly all of the product's packages twice.
versions() { # directory, package...
	go -C "$1" list -deps -f '{{with .Module}}{{.Path}} {{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}' "${@:2}" | sort -u
}
other=$(join <(versions . ./cmd/sa-controller-manager) <(versions test/peers k8s.io/kubernetes/cmd/kube-apiserver) |
	awk '$2 != $3 { print $1 "@" $2 }' | paste -sd' ')
[ -z "$other" ] || fail "test/peers has other versions than the product" "cd test/peers && go get $other && go mod tidy"

heavy=$(go list -m -f '{{.Path}}' all | grep -xE 'k8s.io/kubernetes|sigs.k8s.io/(controller-runtime|kind|e2e-framework)' || true)
[ -z "$heavy" ] || fail "the product's go.mod leads to $heavy, which belongs into test/"
