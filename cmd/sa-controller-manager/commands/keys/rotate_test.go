// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	ringfile "sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestRotateByATimer: what the exit code tells the timer. kube-apiserver accepts no other key than the active one.
func TestRotateByATimer(t *testing.T) {
	t.Parallel()
	const (
		young   = "Nothing was changed: key " + rsaID + " is active since "
		refused = "; key " + rsaID + " is active since "
	)
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration // of the active key
		args   []string
		code   int
		want   string // in what is printed
	}{
		"Young":   {reason: "there is nothing to do", age: time.Hour, args: []string{"--if-older-than=2h"}, want: young},
		"Due":     {reason: "it was refused", age: time.Hour, args: []string{"--if-older-than=30m"}, code: 1, want: refused},
		"NoLimit": {reason: "the clock of another host may be ahead", age: -time.Minute, code: 1, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, kube := filepath.Join(t.TempDir(), "ring.json"), newWorld(t).Cluster.Client
			testutil.Must(t, ringfile.At(path).Init(testkeys.Parse(testkeys.RSA2048()),
				[]signing.PublicKey{testkeys.Parse(testkeys.P384()).Public()},
				new(ringfile.KeyOf(testkeys.Parse(testkeys.P256()))), time.Now().Add(-tc.age)))
			before := testutil.Get(ringfile.At(path).Read())(t)
			client := func(*options.Connection) (kubernetes.Interface, error) { return kube, nil }
			got := keysCommandIn(t, client, path, append([]string{"rotate", "--service-account-issuer=https://issuer.example"},
				tc.args...)...)
			testutil.Expect(t, got.Code == tc.code && strings.Contains(got.Stderr, tc.want), "%s: code %d, want %d, %q:\n%s", tc.reason,
				got.Code,
				tc.code, tc.want, got.Stderr)
			after := testutil.Get(ringfile.At(path).Read())(t)
			testutil.Expect(t, after.Generation == before.Generation, "the ring has been changed from generation %d to %d",
				before.Generation,
				after.Generation)
		})
	}
}
