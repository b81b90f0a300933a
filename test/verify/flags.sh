#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# docs/flags.md is what the binary generates.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

go run ./cmd/sa-controller-manager docs flags | diff -u docs/flags.md - ||
	fail "docs/flags.md is not what the binary says" "make update-flags"
