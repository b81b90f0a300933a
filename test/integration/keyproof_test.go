// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestWhatAKeyIsProvedWith: kube-apiserver answers which keys it accepts, whatever the clock of this host is, and without a
// key set: its issuer is no https URL.
func TestWhatAKeyIsProvedWith(t *testing.T) {
	further := testutil.WriteFile(t, "further.key", testkeys.P256())
	c := testcluster.New(t, devcluster.Options{Issuer: "api", ExtraKeyFiles: []string{further}})
	t.Run("ClocksApart", func(t *testing.T) { provesAtAnyTime(t, c) })

	t.Run("NoKeySet", func(t *testing.T) {
		for pem, want := range map[string]bool{
			string(testcluster.ReadFile(t, c.SigningKeyFile())): true, string(testkeys.P256()): true, string(testkeys.P384()): false,
		} {
			key := testkeys.Parse([]byte(pem))
			if has, err := keyprobe.HasKey(t.Context(), c.API, key.ID()); err != nil || has != want {
				t.Errorf("it has the %s key: %t, %v; want %t", key.Public().Algorithm, has, err, want)
			}
		}
		ring := "--service-account-key-ring=" + filepath.Join(t.TempDir(), "ring.json")
		keys := func(code int, words ...string) string {
			got := testcluster.Run(t, "", append([]string{"keys", words[0], ring, "--kubeconfig=" + c.Kubeconfig()}, words[1:]...)...)
			return got.ExpectCode(t, code).Stderr
		}
		keys(0, "init", "--from-private-key-file="+c.SigningKeyFile(), "--service-account-key-file="+further,
			"--service-account-key-file="+testutil.WriteFile(t, "gone.key", testkeys.P384()))
		keys(0, "revoke", "--yes", testkeys.Parse(testkeys.P384()).ID())
		id := testkeys.Parse(testkeys.P256()).ID()
		if said := keys(1, "revoke", "--yes", id); !strings.Contains(said, "kube-apiserver accepts key "+id+", which is revoked") {
			t.Errorf("of a key in its files: %s", said)
		}
	})
}

// provesAtAnyTime has the probe made by clocks that are off. Nothing else of the test is.
func provesAtAnyTime(t *testing.T, c *testcluster.ControlPlane) {
	const apart = "the clocks of kube-apiserver and of this host differ by more than 1h0m0s: "
	account, key := c.CreateAccount(t, c.Namespace(t), "probe"), testcluster.ReadFile(t, c.SigningKeyFile())
	now := time.Now().Round(0)
	for name, tc := range map[string]struct {
		reason  string
		off     time.Duration
		key     []byte
		want    string // in the error
		refuses bool
	}{
		"Right":      {key: key},
		"Fast":       {reason: "it was not valid yet", off: 3 * time.Minute, key: key},
		"Slow":       {reason: "it had expired", off: -3 * time.Minute, key: key},
		"HourFast":   {off: 59 * time.Minute, key: key},
		"HourSlow":   {off: -59 * time.Minute, key: key},
		"TooFast":    {reason: "the key is good", off: 2 * time.Hour, key: key, want: apart},
		"TooSlow":    {reason: "the key is good", off: -2 * time.Hour, key: key, want: apart},
		"UnknownKey": {off: 2 * time.Hour, key: testkeys.P384(), want: "kube-apiserver refuses its tokens: ", refuses: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(now.Add(tc.off))) //nolint:forbidigo // this sets the clock
				err := keyprobe.Prove(t.Context(), clientAt(t, c.Config(), now), c.Issuer(), account, testkeys.Parse(tc.key))
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || keyprobe.IsRefusal(err) != tc.refuses {
					t.Errorf("%s: %v, want %q, a refusal: %t", tc.reason, err, tc.want, tc.refuses)
				}
			})
		})
	}
}

// clientAt has no connection that outlives a request, and takes certificates as they are at a time.
func clientAt(t *testing.T, config *rest.Config, now time.Time) kubernetes.Interface {
	t.Helper()
	trust, err := rest.TLSConfigFor(config)
	testutil.Must(t, err)
	trust.Time = func() time.Time { return now }
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	api, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: config.Host}, client)
	testutil.Must(t, err)
	return api
}
