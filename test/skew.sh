#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs on each kube-apiserver of the support table in docs/comparison.md the demonstration, a rotation
# of its keys by the external signer, and the tests of the webhook's registration, those of files from
# v1.36 on, and of the policies for Pods:
#
#	skew.sh CONTROL_PLANE
#
# CONTROL_PLANE is the directory with etcd, which all of them use, and with the newest
# kube-apiserver. The others are built from the pins in test/peers/v*/, which takes about
# five minutes each the first time. What each run prints is in bin/skew/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

newest=$(cd "$1" && pwd)
mkdir -p bin/skew

registration='^(TestPods|TestStaticRegistration|TestStaticIsProved|TestPodPolicy|TestAsInTree|TestLaterWebhook|TestWithoutUs)$'

# run prints the last line of a command's output, or all of it if the command fails.
failed=()
run() { # name command...
	local name=$1 log
	shift
	log=bin/skew/${name// /-}.log
	if "$@" >"$log" 2>&1; then
		printf '%s: %s\n' "$name" "$(tail -n 1 "$log")"
		return
	fi
	cat "$log"
	failed+=("$name")
}

# prove runs everything on the control plane of a directory.
prove() { # directory
	local version
	version=$("$1/kube-apiserver" --version)
	export KUBEBUILDER_ASSETS=$1
	run "${version#Kubernetes } demo" bin/demo
	run "${version#Kubernetes } rotation" bin/demo rotation
	run "${version#Kubernetes } registration" go -C test test -count=1 -run="$registration" ./webhook
}

for pins in test/peers/v*/; do
	name=$(basename "$pins")
	"$pins/build.sh" "bin/control-plane-$name" kube-apiserver
	ln -sfn "$newest/etcd" "bin/control-plane-$name/etcd"
	prove "$PWD/bin/control-plane-$name"
done
prove "$newest"

if [ ${#failed[@]} -gt 0 ]; then
	printf 'failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
