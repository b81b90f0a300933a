#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the integration tests except the long ones: two packages of test/integration at a time,
# because their tests mostly wait, and beside them all other packages, one at a time, less those in
# which every test is long. federation is a third part: it waits for a cache for a minute. It never
# uses Go's test cache, which does not know the control plane and the binary under test.
set -euo pipefail
set -m # each part is a process group, which a signal can end as a whole
cd "$(dirname "${BASH_SOURCE[0]}")"

run=(go test -count=1 -short -timeout=15m)
mapfile -t others < <(go list ./... | grep -vE '/test/(integration/|kubeadm$|replicas$|federation$)')

"${run[@]}" -p=2 -parallel=3 ./integration/... &
parts=($!)
"${run[@]}" -p=1 "${others[@]}" &
parts+=($!)
"${run[@]}" ./federation &
parts+=($!)

# end passes a signal on to the parts, which stop their control planes.
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
