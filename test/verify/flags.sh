#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# docs/flags.md is what is made of the flags.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

go -C test run ./cmd/docs flags | diff -u docs/flags.md - ||
	fail "docs/flags.md is not what is made of the flags" "make update-flags"
