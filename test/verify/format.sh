#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Every Go file is as gofmt has it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources '*.go')
unformatted=$(gofmt -l "${files[@]}")
[ -z "$unformatted" ] || fail "not formatted: $unformatted" "make update-format"
