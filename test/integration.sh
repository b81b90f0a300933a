#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the integration tests except the long ones, four packages at a time, because the tests mostly
# wait. The packages that take longest come first; those with long tests alone are left out. Go's test
# cache is not used: it does not know the control plane and the binary under test. Vetting is another
# stage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

packages=$(go list ./...)
mapfile -t others < <(grep -vE '/test/(webhook|foreign|integration|federation|permissions|kubeadm|faults)$' <<<"$packages")
exec go test -count=1 -vet=off -short -timeout=15m -p=4 ./webhook ./foreign ./integration ./federation ./permissions "${others[@]}"
