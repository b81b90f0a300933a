#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the integration tests but the long ones, in three parts at the same time, because
# they wait for much of theirs: the tests of test/integration in two halves, each of which
# has control planes of its own, and all other packages. Never from Go's cache: the control
# plane and the binary under test are no inputs that it sees.
set -euo pipefail
set -m # each part is a process group, which a signal can end as a whole
cd "$(dirname "${BASH_SOURCE[0]}")"

run=(go test -count=1 -short -timeout=15m)
half='^Test[A-L]'
everything=$(go list ./...)
others=$(grep -v '/test/integration$' <<<"$everything")

"${run[@]}" -parallel=3 -run="$half" ./integration &
parts=($!)
"${run[@]}" -parallel=3 -skip="$half" ./integration &
parts+=($!)
# shellcheck disable=SC2086 # one word for each package
"${run[@]}" -p=1 $others &
parts+=($!)

# A signal ends the parts with their control planes, and not this shell alone.
end() {
	for part in "${parts[@]}"; do
		kill -INT -- "-$part" 2>/dev/null || true
	done
}
trap end INT TERM
failed=0
for part in "${parts[@]}"; do
	wait "$part" || failed=1
done
exit "$failed"
