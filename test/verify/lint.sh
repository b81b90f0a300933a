#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# golangci-lint finds nothing in the modules that hold code. Arguments, such as
# --fix, are passed on to it. It is built from the version pinned in test/tools.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

linter=$PWD/bin/tools/golangci-lint
config=$PWD/.golangci.yml
go -C test/tools build -buildvcs=false -o "$linter" \
	github.com/golangci/golangci-lint/v2/cmd/golangci-lint

code=0
for module in . test test/simulation cmd/sa-kms-signer; do
	(cd "$module" && "$linter" run --config="$config" "$@") || code=1
done
[ "$code" -eq 0 ] || fail "golangci-lint found something" "make update-lint, as far as a machine can"
