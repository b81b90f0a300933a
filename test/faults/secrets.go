// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/base64"
	"strings"

	"sa-controller-manager/test/integration/faultproxy"
)

func anything(faultproxy.Request) bool { return true }

// checkLogs looks for tokens in all that processes have printed.
func (w *World) checkLogs(outcome *Outcome) {
	seen := w.tokens.Seen()
	for _, t := range w.terms() {
		printed := t.manager.Logs()
		outcome.LogBytes += len(printed)
		if what := leaks(printed, seen); what != "" {
			outcome.Violations = append(outcome.Violations, violated(6, "a log holds %s", what))
		}
	}
}

// leaks looks for a signature, as it stands in a token or as JSON has it in a Secret's
// data, for the beginning of any token, and for that of a private key. It does not repeat
// what it finds.
func leaks[V any](printed string, tokens map[string]V) string {
	begin := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"`))
	begin = begin[:len(begin)-1] // the last one depends on what follows, too
	encoded := base64.StdEncoding.EncodeToString([]byte(begin))
	for what, text := range map[string]string{
		"a token": begin, "a token in base64": encoded[:len(encoded)-4], "a private key": "PRIVATE KEY-----",
	} {
		if strings.Contains(printed, text) {
			return what
		}
	}
	for token := range tokens {
		if _, signature, ok := cutLast(token, "."); ok && len(signature) > 40 && strings.Contains(printed, signature) {
			return "the signature of a token"
		}
	}
	return ""
}
