#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Compiles a command and shows how far the compiler is:
#
#	build.sh PACKAGE OUTPUT [FLAG...]
#
# writes the binary of PACKAGE to OUTPUT with these flags of go build. It prints nothing if
# Go's build cache has nearly everything.
set -euo pipefail

pkg=$1 out=$2
shift 2
name=$(basename "$out")

# Lines of progress go to standard error: one moving line on a terminal, elsewhere a line each
# quarter of a minute. A line without a space or colon is the name of a package that is compiled
# now. Go's "downloading" lines are dropped, any other line is an error or a warning.
progress() { # number of packages to compile
	local tty=0
	[ -t 2 ] && tty=1
	awk -v name="$name" -v all="$1" -v tty="$tty" '
		# The first packages, of the standard library, say too little. After them the share of the time is
		# about the share of the packages to the power of 0.8: the small ones come last.
		function line(  left) {
			left = (now - began) * ((all / n) ^ 0.8 - 1) / 60
			return sprintf("  %s: %d of %d packages compiled%s", name, n, all,
				n < all / 4 || n >= all ? "" : sprintf(", about %.0f min left", left < 1 ? 1 : left))
		}
		BEGIN { began = last = systime() }
		/^go: downloading / { next }
		/[ :\t]/ { print > "/dev/stderr"; next }
		{ n++; now = systime() }
		tty && all > 50 { printf "\r\033[K%s  %.40s", line(), $0 > "/dev/stderr" }
		!tty && now - last >= 15 { print line() > "/dev/stderr"; last = now }
		END { if (tty && all > 50) printf "\r\033[K" > "/dev/stderr" }'
}

# go list fetches the modules, and knows which packages the build cache lacks.
stale=$({ go list -deps "$@" -f '{{if .Stale}}x{{end}}' "$pkg" | grep -c x || true; } 2> >(grep -v '^go: downloading ' >&2))
# Built under another name and renamed, so that an interrupted build leaves nothing that looks
# finished and a running binary is not written to. The name has the process ID, because two targets
# of make that run side by side may build the same binary.
partial=$(dirname "$out")/.$name.$$
trap 'rm -f "$partial"' EXIT
go build -v "$@" -o "$partial" "$pkg" 2>&1 | progress "$stale"
mv "$partial" "$out"
