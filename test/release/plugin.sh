#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# plugin.sh VERSION DATE LDFLAGS writes an archive of the kubectl plugin for each platform, and the krew
# manifest that names them, into bin/release. The same commit gives the same bytes.
set -euo pipefail
version=$1 date=$2 ldflags=$3

mkdir -p bin/release
go -C test build -buildvcs=false -o ../bin/release-parts ./cmd/release
manifest=bin/release/sa-tokens.yaml
sed -e '1,/^$/d' -e "s|VERSION|$version|" cmd/kubectl-sa_tokens/krew.yaml >"$manifest"
url=$(sed -n 's/^  homepage: //p' "$manifest")/releases/download/$version
for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
	os=${platform%/*} arch=${platform#*/}
	parts=bin/plugin/$os-$arch
	program=kubectl-sa_tokens
	[ "$os" != windows ] || program+=.exe
	name=kubectl-sa_tokens_${version}_${os}_$arch.tar.gz
	echo "building $name"
	rm -rf "$parts" && mkdir -p "$parts"
	GOOS=$os GOARCH=$arch go build -buildvcs=false -ldflags "$ldflags" -o "$parts/$program" ./cmd/kubectl-sa_tokens
	cp LICENSE cmd/kubectl-sa_tokens/kubectl_complete-sa_tokens "$parts"
	GOOS=$os GOARCH=$arch test/release/licences.sh ./cmd/kubectl-sa_tokens "$parts/LICENSES"
	bin/release-parts archive -dir="$parts" -out="bin/release/$name" -date="$date"
	cat >>"$manifest" <<-END
	  - selector:
	      matchLabels:
	        os: $os
	        arch: $arch
	    uri: $url/$name
	    sha256: $(sha256sum <"bin/release/$name" | cut -d' ' -f1)
	    bin: $program
	END
done
