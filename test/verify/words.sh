#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Words that are private, archaic or not plain stay out: words.txt has each with what to write
# instead. Paths narrow the search: test/verify/words.sh controllers docs/rotation.md
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

found=0
while read -r line; do
	[[ -n $line && $line != \#* ]] || continue
	word=${line% = *}
	hits=$(git grep -nwiIE -e "$word" -- "${@:-.}" ':!test/verify/words.txt' ':!**/testdata/**' || true)
	[ -z "$hits" ] || { found=1 && printf '%s\n' "$hits" "  \"$word\": write ${line##* = }"; }
done <test/verify/words.txt
[ "$found" -eq 0 ] || fail "words that test/verify/words.txt keeps out"
