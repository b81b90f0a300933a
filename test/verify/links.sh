#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Every link in the documentation that leads to a file of this repository leads
# somewhere.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mapfile -t pages < <(sources '*.md')
[ ${#pages[@]} -gt 0 ] || exit 0
go -C test build -buildvcs=false -o ../bin/tools/links ./verify/links
bin/tools/links "${pages[@]}" || fail "broken links"
