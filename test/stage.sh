#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs a command as a named stage and says how long it took:
#
#	stage.sh NAME COMMAND [ARGUMENT...]
set -euo pipefail

name=$1
shift
echo "=== $name"
started=$SECONDS
code=0
"$@" || code=$?
result=ok
[ "$code" -eq 0 ] || result=FAILED
echo "=== $name: $result after $((SECONDS - started)) s"
exit "$code"
