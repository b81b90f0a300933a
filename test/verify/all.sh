#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the make targets given as arguments one after the other, all of them even
# if some fail, then says which failed. The output of a target is shown only if
# it fails.
set -euo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for target in "$@"; do
	started=$SECONDS
	result=ok
	if ! "${MAKE:-make}" --no-print-directory "$target" >"$log" 2>&1; then
		result=FAILED
		failed+=("$target")
	fi
	printf '  %-18s %-6s %3d s\n' "$target" "$result" $((SECONDS - started))
	[ "$result" = ok ] || sed -e '/^make\[/d' -e 's/^/      /' "$log"
done
[ ${#failed[@]} -eq 0 ] || {
	echo "failed: ${failed[*]}" >&2
	exit 1
}
