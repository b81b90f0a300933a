#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Asks Go's vulnerability database which known vulnerabilities the product's code can
# reach. It ends with 0 if there is none, with 1 if there is one, and with 3, after the
# words NOT RUN and the reason, if the database or the source cannot be read: that is no
# clean bill. GOVULNDB names another database.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scanner=$PWD/bin/tools/govulncheck
log=$(mktemp)
trap 'rm -f "$log"' EXIT
not_run() {
	echo "vuln: NOT RUN: $1" >&2
	exit 3
}

go -C test/tools build -buildvcs=false -o "$scanner" golang.org/x/vuln/cmd/govulncheck >"$log" 2>&1 ||
	not_run "govulncheck cannot be built: $(tail -n 1 "$log")"
code=0
"$scanner" ${GOVULNDB:+-db="$GOVULNDB"} ./... >"$log" 2>&1 || code=$?
case $code in
0)
	tail -n 1 "$log"
	echo "vuln: ok"
	;;
3)
	cat "$log"
	echo "vuln: FOUND" >&2
	exit 1
	;;
*) not_run "$(tail -n 1 "$log")" ;;
esac
