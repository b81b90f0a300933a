#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs every fuzz target of the product's module for FUZZTIME each (5s, or 500x for as many
# executions), one after the other, and prints a table of the results. FUZZ selects lines "package target" by a regular
# expression. Targets of the module in test/ take minutes to build and run only if FUZZ says
# "test/", such as FUZZ='test/differential'. A failure is shown with its input, which Go writes into testdata/fuzz. Interesting
# inputs stay in Go's cache, so the next run continues from there.
# It exits with 1 if a target fails or was never executed, and if there is no target.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fuzztime=${FUZZTIME:-5s}
log=$(mktemp)
binaries=bin/fuzz # stays: Go links a test again only if it has changed
mkdir -p "$binaries"
trap 'rm -f "$log"' EXIT
failed=0
total=0
rows=0

# row prints one line of the table.
row() { printf '%-34s %-22s %12s %8s %8s  %s\n' "$@"; }

# targets prints the package and the name of each fuzz target.
targets() {
	local paths=('*_test.go' ':!test/*')
	case ${FUZZ:-} in *test/*) paths=('test/*_test.go') ;; esac
	git ls-files --cached --others --exclude-standard -- "${paths[@]}" |
		xargs awk 'match($0, /^func Fuzz[A-Za-z0-9_]*/) {
			path = FILENAME; sub(/\/[^\/]*$/, "", path); print path, substr($0, 6, RLENGTH - 5)
		}' |
		sort | grep -E "${FUZZ:-.}" || true
}

# build reads lines "package target" and appends the test binary of the package, built with the fuzzer's coverage
# instrumentation, or - if the build fails. It runs ahead of the fuzzing, which waits for the first binary only.
# Go instruments all dependencies of a package: with an empty build cache this takes minutes.
build() {
	local package target module built
	while read -r package target; do
		built=$PWD/$binaries/${package//\//_}
		module=$package
		until [ -e "$module/go.mod" ]; do module=$(dirname "$module"); done
		go -C "$module" test -c -fuzz=Fuzz -o "$built" "./$(realpath --relative-to="$module" "$package")" || built=-
		echo "$package $target $built"
	done
}

row PACKAGE TARGET EXECUTIONS NEW SECONDS RESULT
while read -r package target built; do
	result=ok
	begun=$SECONDS
	cache=$(go env GOCACHE)/fuzz/sa-controller-manager/$package
	mkdir -p "$cache"
	if [ "$built" = - ]; then
		result=FAILED
		echo "it cannot be built, see above" >"$log"
	elif ! (cd "$package" && "$built" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$fuzztime" \
		-test.fuzzminimizetime=200x -test.fuzzcachedir="$cache") >"$log" 2>&1; then
		result=FAILED
		# On a busy machine Go's fuzzer reports the end of its own time, which is no finding.
		if grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|hung|terminated|_test\.go:' "$log"; then
			result="ok (cut short)"
		fi
	fi
	# The last line that counts: fuzz: elapsed: 5s, execs: 1234 (...), new interesting: 5 (total: 9)
	executions=0 new=0
	read -r executions new < <(sed -nE 's/.*execs: ([0-9]+) .*new interesting: ([0-9]+) .*/\1 \2/p' "$log" | tail -n 1) || true
	# With little time it does not get beyond what it knows already:
	# fuzz: elapsed: 1s, gathering baseline coverage: 67/119 completed
	if [ "${executions:=0}" -eq 0 ]; then
		executions=$(sed -nE 's/.*baseline coverage: ([0-9]+).*/\1/p' "$log" | tail -n 1)
		[ "$result" != ok ] || result="ok (corpus alone)"
	fi
	if [ "${executions:=0}" -eq 0 ] && [ "$result" != FAILED ]; then
		result="NOT RUN"
	fi
	row "$package" "$target" "$executions" "${new:=0}" $((SECONDS - begun)) "$result"
	total=$((total + executions))
	rows=$((rows + 1))
	case $result in FAILED | "NOT RUN")
		failed=1
		sed 's/^/    /' "$log"
		;;
	esac
done < <(targets | build)
if [ "$rows" -eq 0 ]; then
	echo "fuzz: NOT RUN: ${FUZZ:+no line \"package target\" matches FUZZ=$FUZZ, or }git ls-files finds no target" >&2
	exit 1
fi
echo "$total executions in $SECONDS s"
exit "$failed"
