#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# No folder of the product has more code lines, neither blank nor comment, than test/verify/size.txt
# allows, nor far fewer, and all tests together have no more. With "update", the numbers of the
# product are lowered to what is there; none is ever raised.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

list=test/verify/size.txt
update=
[ "${1:-}" != update ] || update=yes

declare -A lines # by folder, and of "tests" and "total"
while read -r folder _; do
	[[ -z $folder || $folder == \#* ]] || lines[$folder]=0
done <"$list"

while IFS=: read -r file count; do
	# Packages for tests alone are in folders such as clitest and testkeys.
	case $file in
	*_test.go | test/* | */test*/* | *test/*)
		lines[tests]=$((lines[tests] + count))
		continue
		;;
	esac
	# A file counts for the longest folder of the list that it is below.
	folder=${file%/*}
	until [ "${lines[$folder]+listed}" ]; do
		[[ $folder == */* ]] || fail "$file is below no folder of $list" "a line for its folder, in a commit of its own that says why"
		folder=${folder%/*}
	done
	lines[$folder]=$((lines[$folder] + count))
	# The second binary counts for itself.
	[ "$folder" = cmd/sa-kms-signer ] || lines[total]=$((lines[total] + count))
done < <(sources '*.go' | xargs grep -HcvE '^[[:space:]]*(//.*)?$')

wrong=()
fresh=
while IFS= read -r line; do
	read -r folder allowed <<<"$line"
	if [[ -n $folder && $folder != \#* ]]; then
		there=${lines[$folder]}
		if [ "$there" -gt "$allowed" ]; then
			wrong+=("$folder: $there code lines, $list allows $allowed: make it smaller, or raise the number with the reason")
		elif [ "$folder" != tests ]; then
			if [ "$update" ]; then
				allowed=$there
			elif [ $((allowed * 100)) -gt $((there * 105 + 1000)) ]; then
				wrong+=("$folder: $there code lines, $list allows $allowed, far more: make update-size")
			fi
		fi
		printf -v line '%-45s %7d' "$folder" "$allowed"
		# A folder that is gone leaves the list.
		[ -z "$update" ] || [ -d "$folder" ] || [ "$folder" = total ] || [ "$folder" = tests ] || continue
	fi
	fresh+=$line$'\n'
done <"$list"
[ -z "$update" ] || printf '%s' "$fresh" >"$list"
[ ${#wrong[@]} -eq 0 ] || fail "$(printf '%s\n' "${wrong[@]}")"
