#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs bin/demo beside each kube-apiserver of the support table in docs/comparison.md:
#
#	skew.sh CONTROL_PLANE
#
# CONTROL_PLANE is the directory with etcd, which all of them use, and with the newest
# kube-apiserver. The others are built from the pins in test/peers/v*/, which takes about
# five minutes each the first time. What the demonstration says is in bin/skew/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

newest=$(cd "$1" && pwd)
mkdir -p bin/skew

# show runs the demonstration on the control plane of a directory.
failed=()
show() { # name directory
	local log=bin/skew/$1.log
	if KUBEBUILDER_ASSETS=$2 bin/demo >"$log" 2>&1; then
		printf '%s: %s\n' "$("$2/kube-apiserver" --version)" "$(tail -n 1 "$log")"
		return
	fi
	cat "$log"
	failed+=("$1")
}

for pins in test/peers/v*/; do
	name=$(basename "$pins")
	"$pins/build.sh" "bin/control-plane-$name" kube-apiserver
	ln -sfn "$newest/etcd" "bin/control-plane-$name/etcd"
	show "$name" "$PWD/bin/control-plane-$name"
done
show newest "$newest"

if [ ${#failed[@]} -gt 0 ]; then
	echo "the demonstration failed on: ${failed[*]}" >&2
	exit 1
fi
