#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Every source file begins with the two licence lines, behind the interpreter
# line if there is one.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

missing=()
while read -r file; do
	head=$(head -n 3 "$file")
	if [[ $head != *"Copyright The sa-controller-manager Authors."*"SPDX-License-Identifier: Apache-2.0"* ]]; then
		missing+=("$file")
	fi
done < <(sources '*.go' '*.sh' '*.yml' '*.yaml' Makefile .ci/run ':!**/testdata/**')
[ ${#missing[@]} -eq 0 ] || fail "without licence lines: ${missing[*]}" "copying the first two lines of any other file"
