#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# What the verify scripts share. They source it and then are at the root of the
# repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Without git there is no list of files, and a check of no files finds nothing.
git rev-parse --git-dir >/dev/null

# go_modules are the directories with a go.mod. tools and peers hold no code. test/alerts and
# test/backends are left out: to know whether they are tidy takes all of Prometheus and of Vault. So are
# test/peers/v*: it takes two more Kubernetes.
go_modules=(. cmd/sa-kms-signer test test/chart test/differential test/simulation test/conformance test/tools test/peers)

# sources prints the files that match the patterns and are, or could be,
# committed.
sources() {
	local file
	git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
		# A file that is deleted but not yet committed is still listed.
		[ -f "$file" ] && echo "$file"
	done || true
}

# fail prints what is wrong and, as the second argument, what fixes it.
fail() {
	echo "$1" >&2
	[ -z "${2:-}" ] || echo "fix it by: $2" >&2
	exit 1
}
