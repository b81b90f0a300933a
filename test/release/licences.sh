#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# licences.sh PACKAGE DIRECTORY copies the licences and notices of everything that GOOS and GOARCH link
# into the program below the directory: most of them ask to go with it.
set -euo pipefail
shopt -s nullglob nocaseglob
package=$1 out=$2

mkdir -p "$out/go"
cp "$(go env GOROOT)/LICENSE" "$out/go/"
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}} {{$.Dir}}{{end}}{{end}}' "$package" |
	while read -r module root dir; do
		# A package may be under another licence than its module.
		while
			for file in "$dir"/{licen[cs]e,notice,copying,patents}*; do
				to=$out/$module${dir#"$root"}
				if [ -f "$file" ] && [[ $file != *.go ]]; then
					mkdir -p "$to"
					cp --no-preserve=all "$file" "$to/"
				fi
			done
			[ "$dir" != "$root" ]
		do dir=${dir%/*}; done
		licence=("$root"/{licen[cs]e,copying}*)
		[ ${#licence[@]} -gt 0 ] || { echo "$module has no licence in $root" >&2; exit 1; }
	done
