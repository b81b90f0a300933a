#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Words that are private, archaic or not plain stay out: words.txt has each with what to write
# instead, names.txt those that only code must not use. Paths narrow the search:
# test/verify/words.sh controllers docs/rotation.md
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

found=0
# report prints the lines that it gets, and what to write.
report() { [ -z "$1" ] || { found=1 && printf '%s\n' "$1" "  \"$2\": write $3"; }; }
# search reads a list of words. Further arguments are options of git grep and paths that are left out.
search() {
	local list=$1 flags=$2 line
	while read -r line; do
		[[ -n $line && $line != \#* ]] || continue
		report "$(git grep "$flags" -e "${line% = *}" -- "${paths[@]}" ':!test/verify/*.txt' ':!**/testdata/**' "${@:3}" || true)" \
			"${line% = *}" "${line##* = }"
	done <"$list"
}

paths=("${@:-.}")
search test/verify/words.txt -nwiIE
product=(':!test' ':!docs' ':!*.md')
search test/verify/names.txt -nIE "${product[@]}"
report "$(git ls-files -- "${paths[@]}" "${product[@]}" | grep -E '(^|[/_-])(look|round|trouble|judge|seen)s?[_./]' || true)" \
	"name of a file" "what is in it"
# A library says what is wrong; the command or the option layer names the flag. Facts and remedies have whole commands.
report "$(git grep -nE '^[^/]*"[^"]*--[a-z%][^"]*"' -- {signing,controllers,admission,tokens,internal}'/*.go' \
	':!*'{_test,/facts,/trial}'.go' ':!internal'/{check,flagfile,serving} ':!controllers/keyring'/{hosts,operator} |
	grep -vE 'keys [a-z]+ |kubectl|sa-controller-manager |kubeadm |=/etc' || true)" "--" "the thing, not its flag"
[ "$found" -eq 0 ] || fail "words that test/verify/words.txt and names.txt keep out"
