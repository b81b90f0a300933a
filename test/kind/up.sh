#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Brings a kind cluster up whose ServiceAccounts, tokens and root CA are ours from the
# first second, and shows that they are:
#
#	up.sh NAME
#
# The files that the node mounts stay in bin/kind/NAME as long as the cluster is there.
# KIND is the kind CLI, KIND_NODE_IMAGE the node image, SACM_BINARY the static binary.
set -euo pipefail

name=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kind=${KIND:-kind}
files=$here/../../bin/kind/$name

docker info >/dev/null 2>&1 || {
	echo "no Docker engine answers: start one, and see that this user may use it" >&2
	exit 1
}
mkdir -p "$files"
image=$("$here/config.sh" "$files")
"$kind" create cluster --name "$name" --image "$image" --config "$files/kind.yaml" --wait 3m

node=$name-control-plane
kubectl=(docker exec -i "$node" kubectl --kubeconfig /etc/kubernetes/admin.conf)
"${kubectl[@]}" --namespace kube-system wait pod "sa-controller-manager-$node" --for=condition=Ready --timeout=2m
# From v1.36 on kube-apiserver completes ordinary Pods itself.
if "${kubectl[@]}" get mutatingadmissionpolicies.v1.admissionregistration.k8s.io >/dev/null 2>&1; then
	"${kubectl[@]}" apply -f - <"$here/../../manifests/permissions/completion/completion.yaml"
fi
"${kubectl[@]}" get serviceaccounts,configmaps --all-namespaces --field-selector metadata.name!=x |
	grep -E '^NAMESPACE|serviceaccount/default|configmap/kube-root-ca.crt'
cat <<EOF

The cluster is up, and its ServiceAccounts are ours. What to look at:

  kubectl --context kind-$name --namespace kube-system logs sa-controller-manager-$node
  kubectl --context kind-$name get events --all-namespaces --field-selector reportingComponent=sa-controller-manager
  docker exec $node curl -sk 'https://127.0.0.1:10261/readyz?verbose'

To remove it: make kind-down
EOF
