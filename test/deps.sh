#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs what a bare Debian lacks: a C compiler and headers for the race detector,
# git, and openssl, curl and jq, which the documents use. It installs only what is
# missing; where nothing is, it takes no time and needs no rights. With the argument
# "backends" it installs what the tests of sa-kms-signer use, too, with "browser" a browser,
# with "release" what signs one.
set -euo pipefail

missing=()
command -v git >/dev/null || missing+=(git)
command -v openssl >/dev/null || missing+=(openssl)
command -v curl >/dev/null || missing+=(curl ca-certificates)
command -v jq >/dev/null || missing+=(jq)
command -v gcc >/dev/null || missing+=(gcc)
# The headers come in a package of their own, which gcc only recommends.
echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 || missing+=(libc6-dev)
if [ "${1:-}" = backends ]; then
	command -v softhsm2-util >/dev/null || missing+=(softhsm2)
	command -v pkcs11-tool >/dev/null || missing+=(opensc)
	command -v p11-kit >/dev/null || missing+=(p11-kit p11-kit-modules)
fi
if [ "${1:-}" = browser ]; then
	command -v chromium-headless-shell >/dev/null || missing+=(chromium-headless-shell)
fi
if [ "${1:-}" = release ]; then
	command -v ssh-keygen >/dev/null || missing+=(openssh-client)
fi
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || {
	echo "missing: ${missing[*]}; install them with this system's package manager" >&2
	exit 1
}
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
echo "installing ${missing[*]}" >&2
if ! "${as_root[@]}" apt-get update -q ||
	! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; then
	echo "cannot install ${missing[*]}: apt-get says why above; install by hand and run this again" >&2
	exit 1
fi
