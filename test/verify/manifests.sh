#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# What is below manifests/rendered is what kustomize makes of the overlays, and stands up
# to what the API and the binary know. With "update", it is written anew instead.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The kubectl of the control plane has a pinned version of kustomize.
kubectl=bin/control-plane/kubectl
[ -x "$kubectl" ] || kubectl=kubectl

render() { # directory
	cat <<-'END'
		# Copyright The sa-controller-manager Authors.
		# SPDX-License-Identifier: Apache-2.0

		# Made by "make update-manifests". The reasons are in the files that it is made from.
	END
	"$kubectl" kustomize "manifests/$1"
}

declare -A sources=(
	[deployment]=overlays/deployment
	[static-pod]=overlays/static-pod
	[external-signer]=overlays/external-signer
	[static-pod-host-binary]=overlays/static-pod-host-binary
)
stale=()
for name in "${!sources[@]}"; do
	rendered=manifests/rendered/$name.yaml
	fresh=$(render "${sources[$name]}")
	if [ "${1:-}" = update ]; then
		mkdir -p manifests/rendered
		echo "$fresh" >"$rendered"
	elif ! diff -u "$rendered" <(echo "$fresh"); then
		stale+=("$rendered")
	fi
done
[ ${#stale[@]} -eq 0 ] || fail "not what kustomize makes: ${stale[*]}" "make update-manifests"
[ "${1:-}" = update ] && exit 0
go test ./manifests/... || fail "the manifests are wrong"
go test ./cmd/sa-controller-manager/app -run 'Manifests' || fail "the manifests do not fit the binary's flags"
