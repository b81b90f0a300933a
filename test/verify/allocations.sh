#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# The hot paths allocate no more often than is committed. Times are not looked at: they
# depend on the machine. Left out are the floors and the peers, and what allocates for
# others too: a TLS connection, and a writer beside the readers.
#
#	allocations.sh [-update]
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

go -C test build -buildvcs=false -o ../bin/tools/allocations ./bench/allocations
test/bench/run.sh -benchtime=2000x -skip='TLS|DecodePod|DecodeReview/encoding-json|Keyring/contended|LegacyToken/.*/(bare|go-jose)' |
	bin/tools/allocations "$@" test/bench/allocations.txt ||
	fail "a hot path allocates more, or its benchmark is new or gone" "make update-allocations, if that is right"
