#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Every Go file is as gofmt has it, and no line of source is too long.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t files < <(sources '*.go')
unformatted=$(gofmt -l "${files[@]}")
[ -z "$unformatted" ] || fail "not formatted: $unformatted" "make update-format"

# No line is longer than 140 columns, with tabs of four.
mapfile -t files < <(sources '*.go' '*.sh' Makefile)
long=$(awk '{ line = $0; gsub(/\t/, "    ", line) } length(line) > 140 { print FILENAME ":" FNR }' "${files[@]}")
[ -z "$long" ] || fail "longer than 140 columns: $long" "break them"
