// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// raceBlock is one report of the race detector.
var raceBlock = regexp.MustCompile(`(?s)WARNING: DATA RACE\n.*?\n={18}\n`)

// raceAccess is the function at the top of one of its two stacks.
var raceAccess = regexp.MustCompile(`(?m)^(?:Previous )?(?:[Ww]rite|[Rr]ead) at .*\n +(\S+)`)

// examineRaces looks at what devcluster found wrong with the end of a manager.
func (m *manager) examineRaces(t *testing.T, err error) {
	t.Helper()
	if err != nil && !strings.Contains(err.Error(), "has a data race") {
		t.Errorf("end the manager: %v", err)
	}
	for _, race := range unknownRaces(m.Logs()) {
		t.Errorf("the manager has a data race:\n%s", race)
	}
}

// unknownRaces are the races in a log, less one of client-go's: from -v=9 on it
// times connections, and reads the times while a dial that lost still writes them
// (client-go transport/round_trippers.go, debuggingRoundTripper).
func unknownRaces(log string) []string {
	races := raceBlock.FindAllString(log, -1)
	if strings.Count(log, "WARNING: DATA RACE") != len(races) {
		_, rest, _ := strings.Cut(log, "WARNING: DATA RACE")
		return []string{rest}
	}
	return slices.DeleteFunc(races, func(race string) bool {
		accesses := raceAccess.FindAllStringSubmatch(race, -1)
		return len(accesses) == 2 && !slices.ContainsFunc(accesses, func(access []string) bool {
			return !strings.Contains(access[1], "transport.(*debuggingRoundTripper)")
		})
	})
}

func TestUnknownRaces(t *testing.T) {
	t.Parallel()
	const (
		rule   = "==================\n"
		begin  = "I1121 06:18:27 1 x.go:1] \"Filled\"\n" + rule + "WARNING: DATA RACE\n"
		theirs = "at 0x00c0001875d0 by goroutine 384:\n  k8s.io/client-go/transport.(*debuggingRoundTripper).RoundTrip.func6()\n      x.go:1 +0xd3\n\n"
		ours   = "at 0x00c0001875d0 by goroutine 116:\n  sa-controller-manager/signing.(*Keyring).Offer()\n      y.go:1 +0x2e\n\n"
	)
	cases := map[string]struct {
		reason, log string
		want        int
	}{
		"None":    {log: "I1121 06:18:27 1 x.go:1] \"Filled\"\n"},
		"Known":   {log: begin + "Write " + theirs + "Previous read " + theirs + "Goroutine 1 created at:\n  main.main()\n" + rule},
		"Ours":    {log: begin + "Read " + ours + "Previous write " + ours + rule, want: 1},
		"Mixed":   {reason: "one side is ours", log: begin + "Write " + theirs + "Previous write " + ours + rule, want: 1},
		"Both":    {log: begin + "Write " + theirs + "Previous read " + theirs + rule + begin + "Read " + ours + "Previous write " + ours + rule, want: 1},
		"Cut":     {reason: "the process ended in the middle of it", log: begin + "Write " + theirs, want: 1},
		"Unheard": {reason: "of another form", log: begin + "Something new\n" + rule, want: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := unknownRaces(tc.log); len(got) != tc.want {
				t.Errorf("%s: found %q, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// errorLine is how klog begins a line of severity Error or Fatal.
var errorLine = regexp.MustCompile(`(?m)^[EF]\d{4} .*$`)

// cutOff is what client-go logs for a request whose answer is on its way when the
// manager ends.
var cutOff = regexp.MustCompile(`request\.go:.*"Unexpected error when reading response body" err="context canceled"`)

func (m *manager) examineLog(t *testing.T) {
	t.Helper()
	log := m.Logs()
	shared.canary.add("log of "+m.name, log)
	if m.faulty {
		return
	}
	for _, line := range errorLine.FindAllString(log, -1) {
		if !cutOff.MatchString(line) {
			t.Errorf("the manager logged an error: %s", line)
			return // one says enough
		}
	}
}
