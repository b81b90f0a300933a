#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# No folder has more code lines, neither blank nor comment, than test/verify/size.txt allows, nor
# far fewer. With "update", the list is lowered to what is there; it never raises a number.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

list=test/verify/size.txt
update=
[ "${1:-}" != update ] || update=yes

declare -A lines # by "product FOLDER" and "tests FOLDER"
while read -r folder _; do
	[[ -z $folder || $folder == \#* ]] || lines[product $folder]=0 lines[tests $folder]=0
done <"$list"

while IFS=: read -r file count; do
	# A file counts for the longest folder of the list that it is below.
	folder=${file%/*}
	until [ "${lines[product $folder]+listed}" ]; do
		[[ $folder == */* ]] || fail "$file is below no folder of $list" "a line for its folder, in a commit of its own that says why"
		folder=${folder%/*}
	done
	kind=product
	# Packages for tests alone are in folders such as clitest and testkeys.
	case $file in
	*_test.go | test/* | */test*/* | *test/*) kind=tests ;;
	esac
	lines[$kind $folder]=$((lines[$kind $folder] + count))
	# The second binary counts for itself.
	[ "$folder" = cmd/sa-kms-signer ] || lines[$kind total]=$((lines[$kind total] + count))
done < <(sources '*.go' | xargs grep -HcvE '^[[:space:]]*(//.*)?$')

wrong=()
# check compares what is there with what is allowed, and sets "allowed" to the number to write.
check() { # kind, folder, allowed
	local there=${lines[$1 $2]}
	allowed=$3
	if [ "$there" -gt "$allowed" ]; then
		wrong+=("$2 has $there code lines of $1, $list allows $allowed: make it smaller, or raise the number by hand, in a commit of its own that says why")
	elif [ "$update" ]; then
		allowed=$there
	elif [ $((allowed * 100)) -gt $((there * 105 + 1000)) ]; then
		wrong+=("$2 has $there code lines of $1, $list allows $allowed, far more: make update-size")
	fi
}

fresh=
while IFS= read -r line; do
	read -r folder product tests <<<"$line"
	if [[ -n $folder && $folder != \#* ]]; then
		check product "$folder" "$product"
		product=$allowed
		check tests "$folder" "$tests"
		printf -v line '%-45s %7d %7d' "$folder" "$product" "$allowed"
		# A folder that is gone leaves the list.
		[ -z "$update" ] || [ -d "$folder" ] || [ "$folder" = total ] || continue
	fi
	fresh+=$line$'\n'
done <"$list"
[ -z "$update" ] || printf '%s' "$fresh" >"$list"
[ ${#wrong[@]} -eq 0 ] || fail "$(printf '%s\n' "${wrong[@]}")"
