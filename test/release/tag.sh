#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Makes the tag VERSION if everything in the commit says that it is this version, and otherwise
# lists all that has to be done before. Git signs the tag if tag.gpgSign is set.
#
#	tag.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

version=${1:-}
[[ $version =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$ ]] || {
	echo "VERSION=${version:-\"\"} is no version: write it as in VERSION=v1.2.3" >&2
	exit 1
}
refused=
refuse() {
	refused=yes
	echo "$*" >&2
}

branch=$(git branch --show-current)
[ "$branch" = main ] || refuse "this is ${branch:-no branch}, and releases are tagged on main: git switch main"
[ -z "$(git status --porcelain)" ] || refuse "the tree has changes: commit them, or stash them with git stash --include-untracked"
! git rev-parse --quiet --verify "refs/tags/$version" >/dev/null ||
	refuse "the tag $version exists: take the next version, because others may have fetched it"

grep -qE "^## \[${version#v}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
	refuse "CHANGELOG.md has no such version: give the entries under Unreleased the heading \"## [${version#v}] - $(date +%Y-%m-%d)\""

image='image: sa-(controller-manager|kms-signer):'
others=$(git grep -hoE "$image.*" -- 'manifests/*.yaml' | grep -vE "$image$version$" | sort -u | paste -sd, || true)
[ -z "$others" ] || refuse "the manifests have other images ($others): git grep -lE '$image' manifests |" \
	"xargs sed -i -E 's/($image).*/\1$version/', then make update-manifests"

chart=manifests/chart/Chart.yaml
for line in "version: ${version#v}" "appVersion: $version"; do
	[ ! -e "$chart" ] || tr -d '"' <"$chart" | grep -qxF "$line" || refuse "$chart is of another version: write \"$line\""
done

for file in cmd/kubectl-sa_tokens/krew.yaml $chart; do
	! grep -qE '^ *(home|homepage|sources): .*example\.com' "$file" || refuse "$file has a homepage of example.com: write the https" \
		"address of the repository, below which releases/download/$version/ will have the files of make release"
done

[ -z "$refused" ] || exit 1
git tag --annotate --message="sa-controller-manager $version" "$version"
echo "tagged $(git rev-parse --short=12 HEAD) as $version; make release builds it"
