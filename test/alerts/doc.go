// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the alert rules below manifests/monitoring with Prometheus' own
// engine: its test gives each alert series for which it fires and series for which it does
// not, and has every expression of the rules and of the dashboard parsed.
//
// It is a module of its own, because the engine is made of some 190 packages that nothing
// else here needs. "make test-alerts" runs it.
//
// A counter that is born at 1 has no increase. Where one such event matters, as with a refused
// file, the rule asks for a gauge.
package alerts
