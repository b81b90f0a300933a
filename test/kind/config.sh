#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Writes what "kind create cluster" needs for a cluster of ours into a directory:
#
#	config.sh DIRECTORY
#
# kind.yaml and, mounted by it, static-pod.yaml and config. It prints the name of the node image:
# that of KIND_NODE_IMAGE, else kind's own. The image is pulled if it is not there,
# because the version in it decides on the form of the configuration and on the image
# that the static pod borrows.
set -euo pipefail

out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kind=${KIND:-kind}
binary=${SACM_BINARY:-$PWD/bin/sa-controller-manager}

[ -x "$binary" ] || {
	echo "$binary is not there: make build" >&2
	exit 1
}

image=${KIND_NODE_IMAGE:-}
if [ -z "$image" ]; then
	# kind has no command that tells; the program has the name in it as a constant.
	image=$(grep -aom1 'kindest/node:v[0-9.]*@sha256:[0-9a-f]\{64\}' "$(command -v "$kind")") || {
		echo "$kind does not tell its node image: set KIND_NODE_IMAGE" >&2
		exit 1
	}
fi
version=$(docker run --rm --entrypoint cat "$image" /kind/version)
case $version in
v1.[0-9].* | v1.[12][0-9].* | v1.3[0-5].*) form=v1beta3 ;;
v1.*) form=v1beta4 ;;
*)
	echo "the node image $image says that it is of version \"$version\", want v1.N" >&2
	exit 1
	;;
esac

sed "s#image: registry.k8s.io/kube-controller-manager:.*#image: registry.k8s.io/kube-controller-manager:$version#" \
	manifests/rendered/static-pod-host-binary.yaml >"$out/static-pod.yaml"
mkdir -p "$out/config"
cp manifests/kind/admission.yaml "$out/config"
case $version in
v1.3[0-6].*) without='/# files$/d; s/,-kube-apiserver-serving-clustertrustbundle-publisher-controller//' ;;
*)
	without=
	# As "kubeadm takeover" has it: the mode, and a directory that the main container, the first one, may write to.
	static=/etc/kubernetes/sa-controller-manager/static
	sed -i -e "s#^\( *\)- --webhook-registration=url#\1- --webhook-registration=static\n\1- --static-registration-dir=$static#" \
		-e "0,/^    volumeMounts:/s##    volumeMounts:\n    - mountPath: $static\n      name: static#" \
		-e "s#^  volumes:#  volumes:\n  - hostPath:\n      path: $static\n      type: DirectoryOrCreate\n    name: static#" \
		"$out/static-pod.yaml"
	;;
esac
sed -e "s#\${SACM_BINARY}#$binary#" -e "s#\${SACM_STATIC_POD}#$out/static-pod.yaml#" -e "s#\${SACM_FILES}#$out/config#" \
	-e "$without" "manifests/kind/cluster-$form.yaml" >"$out/kind.yaml"
echo "$image"
