#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Imports flow one way: cmd -> controllers, admission -> tokens -> signing. All of them may
# import internal, which imports none of them. The core imports no extra. Checked over everything a
# package imports, directly or not, because a detour through a helper package would break the rule
# as well.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# What the manager does besides the five controllers, tokens, key files and the webhook.
extras='^sa-controller-manager/(cmd/sa-controller-manager/extras|controllers/(audit|keyring/.*)|tokens/policy)$'
# What needs none of that.
core=(./cmd/sa-controller-manager/app/... ./controllers/... ./signing/... ./tokens/... ./admission/...)

# Packages, a regular expression of what they must not depend on, and one of packages that the rule is not for.
rules=(
	'./internal/...    ^sa-controller-manager/(signing|tokens|controllers|admission|cmd|manifests)/?'
	'./signing/...     ^k8s.io/client-go/|^sa-controller-manager/(tokens|controllers|admission|cmd)/?'
	# What signs for kube-apiserver must not wait for kube-apiserver.
	'./controllers/keyring/ring     ^k8s.io/client-go/'
	'./controllers/keyring/external ^k8s.io/client-go/'
	'./controllers/keyring/remote   ^k8s.io/client-go/'
	'./tokens/...      ^k8s.io/client-go/(rest|kubernetes|informers|tools)|^sa-controller-manager/(controllers|admission|cmd)/?'
	'./controllers/... ^sa-controller-manager/(admission|cmd)/?'
	'./manifests/...   ^sa-controller-manager/cmd/?'
	# A takeover proves keys, policies and the root CA with the code of those parts, none of which needs a takeover.
	'./manifests/...   ^sa-controller-manager/(controllers|admission|tokens|signing)/? ^sa-controller-manager/manifests/takeover'
	'./admission/...   ^sa-controller-manager/(controllers|tokens|signing|cmd)/?'
	# The kubectl plugin does not link the manager, and the product none of what only the plugin needs.
	'./cmd/kubectl-sa_tokens/...     ^sa-controller-manager/(cmd/sa-controller-manager/(app|commands)$|controllers/keyring/external)'
	'./cmd/kubectl-sa_tokens/...     ^sa-controller-manager/internal/(serving|leaderelection)$'
	'./cmd/kubectl-sa_tokens/...     ^k8s.io/apiserver/pkg/(server|endpoints/filters)$'
	'./cmd/sa-controller-manager/app/... ^sa-controller-manager/cmd/sa-controller-manager/(commands|extras)/?'
	'./cmd/sa-controller-manager/extras/... ^sa-controller-manager/cmd/sa-controller-manager/commands/?'
	'./cmd/sa-controller-manager/... ^k8s.io/client-go/plugin/pkg/client/auth$'
)
declare -A deps
while read -r package all; do deps[$package]=$all; done < <(go list -f '{{.ImportPath}} {{join .Deps " "}}' ./...)
[ "${#deps[@]}" -gt 0 ] || fail "go list lists no package"
broken=0
for package in $(go list "${core[@]}" | grep -vE "$extras"); do
	found=$(tr ' ' '\n' <<<"${deps[$package]}" | grep -E "$extras" || true)
	[ -z "$found" ] || { broken=1 && echo "$package is of the core and depends on:" $found; }
done
for rule in "${rules[@]}"; do
	read -r packages forbidden besides <<<"$rule"
	# Not every part is built yet.
	[ -d "${packages%/...}" ] || continue
	while read -r package; do
		found=$(tr ' ' '\n' <<<"${deps[$package]}" | grep -E "$forbidden" || true)
		[ -z "$found" ] || { broken=1 && echo "$package depends on:" $found; }
	done < <(go list "$packages" | grep -vE "/signertest\$${besides:+|$besides}") # for tests alone
done
[ "$broken" -eq 0 ] || fail "imports flow the wrong way"
