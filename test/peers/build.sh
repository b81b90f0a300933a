#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds the real control plane that the tests run against from the Go modules
# pinned in go.mod:
#
#	build.sh DIRECTORY [NAME...]
#
# builds the named binaries, by default etcd, kube-apiserver and
# kube-controller-manager, into DIRECTORY. A binary that was built from the same
# pins is not built again, so a warm call only looks.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd)
shift
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(etcd kube-apiserver kube-controller-manager)
build=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../build.sh
cd "$(dirname "${BASH_SOURCE[0]}")"

# What a binary was built from stands beside it, because times of files say
# nothing after a clone or in a restored cache.
pins=$(cat go.mod go.sum build.sh | sha256sum)
missing=()
for name in "${names[@]}"; do
	if ! [ -x "$out/$name" ] || [ "$(cat "$out/.$name.pins" 2>/dev/null)" != "$pins" ]; then
		missing+=("$name")
	fi
done
[ ${#missing[@]} -gt 0 ] || exit 0

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
IFS=. read -r major minor _ <<<"${version#v}"

# The version a binary reports is stamped at link time; the modules' source
# carries only a placeholder, which clients would take for "unknown".
stamps="-s -w"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	stamps+=" -X $pkg.gitVersion=$version -X $pkg.gitMajor=$major -X $pkg.gitMinor=$minor -X $pkg.gitTreeState=clean"
done

export CGO_ENABLED=0
echo "building ${missing[*]} ($version) into $out, the first time for minutes; KUBEBUILDER_ASSETS=DIRECTORY takes others" >&2
for name in "${missing[@]}"; do
	pkg=k8s.io/kubernetes/cmd/$name
	[ "$name" = etcd ] && pkg=go.etcd.io/etcd/server/v3
	started=$SECONDS
	"$build" "$pkg" "$out/$name" -trimpath -buildvcs=false -ldflags "$stamps"
	echo "$pins" >"$out/.$name.pins"
	echo "  $name: ready in $((SECONDS - started)) s" >&2
done
