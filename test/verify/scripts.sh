#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Every shell script parses and stops at its first error.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

while read -r script; do
	bash -n "$script" || fail "$script does not parse"
	grep -qE '^(set -euo pipefail|source .*/lib\.sh"$)' "$script" || fail "$script goes on after errors" "set -euo pipefail"
done < <(sources '*.sh' .ci/run)
