// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package browser opens the page of "tokens audit -o html" in headless Chromium, which "make
// test-browser" installs.
package browser
