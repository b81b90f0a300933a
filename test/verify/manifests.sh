#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# The roles below manifests/permissions are what test/cmd/docs makes of the table in app/permissions, what is
# below manifests/rendered is what kustomize makes of the overlays, and both stand up to what
# the API and the binary know. With "update", they are written instead.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The kubectl of the control plane has a pinned version of kustomize.
kubectl=bin/control-plane/kubectl
[ -x "$kubectl" ] || kubectl=kubectl

update=
[ "${1:-}" != update ] || update=yes

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
	[daemonset]=overlays/daemonset
	[static-pod]=overlays/static-pod
	[external-signer]=overlays/external-signer
	[kms-signer]=overlays/kms-signer
	[signer]=overlays/signer
	[static-pod-host-binary]=overlays/static-pod-host-binary
)
stale=()
# check compares what was made with the file, or writes it.
check() { # file, fresh content
	if [ "$update" ]; then
		echo "$2" >"$1"
	elif ! diff -u "$1" <(echo "$2"); then
		stale+=("$1")
	fi
}

fresh=$(go -C test run ./cmd/docs roles)
check manifests/permissions/roles.yaml "$fresh"
for name in token-secrets options signer; do
	fresh=$(go -C test run ./cmd/docs "$name")
	check "manifests/permissions/$name/roles.yaml" "$fresh"
done
fresh=$(go -C test run ./cmd/docs chart ../manifests/chart)
check manifests/chart/README.md "$fresh"
for name in "${!sources[@]}"; do
	fresh=$(render "${sources[$name]}")
	check "manifests/rendered/$name.yaml" "$fresh"
done
fresh=$(render overlays/deployment/token-secrets)
check manifests/chart/files/deployment-token-secrets.yaml "$fresh"
[ ${#stale[@]} -eq 0 ] || fail "not what is made of the sources: ${stale[*]}" "make update-manifests"
[ -z "$update" ] || exit 0
go -C test/chart test -count=1 . || fail "the chart is not what kustomize makes of the overlay"
go test -vet=off ./manifests || fail "the manifests are wrong"
go test -vet=off ./cmd/sa-controller-manager/commands -run 'Manifests' || fail "the manifests do not fit the binary's flags"
