#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds the version that an upgrade comes from, in a work tree that is gone afterwards,
# and prints the path of its binary. UPGRADE_FROM names a tag or a commit; by default it
# is the newest release before this commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

newest() { git describe --tags --match 'v[0-9]*' --abbrev=0 "$1" 2>/dev/null; }
from=${UPGRADE_FROM:-$(newest HEAD^ || newest HEAD || true)}
if [ -z "$from" ]; then
	echo "there is no release tag yet: UPGRADE_FROM=COMMIT says what to come from" >&2
	exit 1
fi
commit=$(git rev-parse --verify --quiet "$from^{commit}") || {
	echo "UPGRADE_FROM=$from names no commit of this clone" >&2
	exit 1
}

tree=$(mktemp -d)
trap 'git worktree remove --force "$tree"' EXIT
git worktree add --quiet --detach "$tree" "$commit"
binary=$PWD/bin/former/sa-controller-manager
echo "building $from (${commit:0:12}), the version to come from" >&2
# k8s.io/component-base insists on the form of a version.
[[ $from == v* ]] || from=v0.0.0-${commit:0:12}
go -C "$tree" build -buildvcs=false -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$from" -o "$binary" ./cmd/sa-controller-manager
echo "$binary"
