#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs the benchmarks of the hot paths; arguments go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

go test '-run=^$' -bench=. -benchmem "$@" ./controllers/tokencontroller ./admission ./admission/serviceaccount
