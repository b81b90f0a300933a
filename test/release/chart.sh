#!/usr/bin/env bash
# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# chart.sh DIRECTORY DATE writes the Helm chart into the directory, as Helm packages one. The same commit gives the same bytes.
set -euo pipefail
out=$(realpath "$1") date=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

chart=sa-controller-manager
version=$(sed -n 's/^version: //p' manifests/chart/Chart.yaml)
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
cp -rL manifests/chart "$parts/$chart"
go -C test run -buildvcs=false ./cmd/release archive -dir="$parts" -out="$out/$chart-$version.tgz" -date="$date"
