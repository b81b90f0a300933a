#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the benchmarks of the hot paths; arguments go to go test. What stands beside the
# code is in the first list, what needs the peers' libraries in test/bench.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

run=(go test '-run=^$' -bench=. -benchmem "$@")
"${run[@]}" ./signing ./controllers/tokensecret ./admission ./admission/serviceaccount
cd test
"${run[@]}" ./bench
