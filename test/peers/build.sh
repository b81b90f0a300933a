#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Builds the real control plane that the tests run against (etcd, kube-apiserver,
# kube-controller-manager, kubectl) from the Go modules pinned in go.mod, into
# the directory given as $1. A binary that is there already is not built again,
# so a warm call only looks; delete the directory to start afresh.
set -euo pipefail

out=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")"

binaries=(etcd kube-apiserver kube-controller-manager kubectl)
missing=()
for name in "${binaries[@]}"; do
	[ -x "$out/$name" ] || missing+=("$name")
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

# progress turns go build's list of compiled packages into one moving line on a
# terminal and into a line for every 250 packages elsewhere.
progress() {
	local tty=0
	[ -t 2 ] && tty=1
	awk -v name="$1" -v tty="$tty" '
		/^(go|#)|error|cannot|\.go:[0-9]/ { print > "/dev/stderr"; next }
		{ n++ }
		tty { printf "\r\033[K  %s: %d packages compiled  %.60s", name, n, $0 > "/dev/stderr" }
		!tty && n % 250 == 0 { printf "  %s: %d packages compiled\n", name, n > "/dev/stderr" }
		END { if (tty) printf "\r\033[K" > "/dev/stderr" }'
}

export CGO_ENABLED=0
echo "building ${missing[*]} ($version) into $out; the first time compiles about 2500 packages" >&2
for name in "${missing[@]}"; do
	pkg=k8s.io/kubernetes/cmd/$name
	[ "$name" = etcd ] && pkg=go.etcd.io/etcd/server/v3
	started=$SECONDS
	# Built under another name and renamed, so that an interrupted build leaves
	# nothing that looks finished.
	go build -v -trimpath -buildvcs=false -ldflags "$stamps" -o "$out/.$name.partial" "$pkg" 2>&1 | progress "$name"
	mv "$out/.$name.partial" "$out/$name"
	echo "  $name: ready in $((SECONDS - started)) s" >&2
done
