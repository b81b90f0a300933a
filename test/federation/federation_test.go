// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/federation"
	"sa-controller-manager/test/integration/testcluster"
	"sa-controller-manager/test/tokenload"
)

const (
	first  = "first cluster"
	second = "second cluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

// start starts both clusters, and a holder that presents tokens to them.
func start(t *testing.T) *federation.World {
	t.Helper()
	w, err := federation.Start(t.Context(), testcluster.Binary(t), 40*time.Second)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	t.Cleanup(func() {
		if t.Failed() && w.Manager != nil {
			t.Logf("the last lines of the manager's log:\n%s", w.Manager.LogTail(30))
		}
		stop()
		<-ended
		err := w.Stop()
		testutil.Expect(t, err == nil, "%v", err)
	})
	if err != nil {
		close(ended)
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		w.Load.Run(ctx, 200*time.Millisecond)
	}()
	return w
}

// TestGate: the second kube-apiserver keeps the JWKS for 10 s, as relying parties do for longer. It has read the
// next key long before that signs: it refuses none of its tokens, not after a leak of the active key, and not
// after a rotation that has waited; but those of a key that is forced to sign before.
func TestGate(t *testing.T) {
	w := start(t)
	state := testutil.Get(w.Ring())(t)
	for i, words := range [][]string{{"revoke", state.Active().ID, "--yes"}, {"rotate", "--wait", "--cache-age=10s"}} {
		testcluster.Poll(t, fmt.Sprintf("keys %v", words), func() error { return w.Keys(t.Context(), words...) })
		testutil.Must(t, w.Load.AwaitRounds(testcluster.Context(t), 10))
		seen := w.Load.Tally()
		testutil.Expect(t, seen.First == nil && len(seen.Keys) == i+2, "%v: %+v, want tokens of %d keys, and none refused", words, seen,
			i+2)
	}
	// The second cluster may happen to read the JWKS between a rotation and the next one.
	testcluster.Poll(t, "a rotation --force that the second cluster notices", func() error {
		if err := w.Keys(t.Context(), "rotate", "--force"); err != nil {
			return err
		}
		if err := w.Load.AwaitRounds(testcluster.Context(t), 10); err != nil {
			return err
		}
		seen := w.Load.Tally()
		testutil.Expect(t, seen.Failed+seen.Unanswered+seen.Refused[first] == 0,
			"rotate --force: %+v, want refusals by the second cluster only", seen)
		if seen.Refused[second] == 0 {
			return fmt.Errorf("%+v", seen)
		}
		return nil
	})
}

// TestChangeIssuer does what docs/federation.md says: from an issuer that nobody can read to a public one, on which a second
// kube-apiserver relies, with a rotation on the way. No token is refused while its issuer is one of kube-apiserver's.
func TestChangeIssuer(t *testing.T) {
	binary, dir := testcluster.Binary(t), t.TempDir()
	const before = "https://kubernetes.default.svc.cluster.local"
	served := filepath.Join(dir, "served")
	testutil.Must(t, os.Mkdir(served, 0o700))
	edge, err := federation.NewEdge(served, 40*time.Second, filepath.Join(dir, "edge.crt"))
	testutil.Must(t, err)
	t.Cleanup(edge.Stop)
	issuers := func(urls ...string) (flags []string) {
		for _, url := range urls {
			flags = append(flags, "--service-account-issuer="+url)
		}
		return flags
	}
	var signer *devcluster.Manager
	ring, flags := "", map[string][]string{}
	begin := func(c *devcluster.Cluster) (err error) {
		ring = "--service-account-key-ring=" + filepath.Join(c.Dir(), "keys", "ring.json")
		if _, err = binary.Run(t.Context(), "keys", "init", ring, "--from-private-key-file="+c.SigningKeyFile()); err == nil {
			signer, err = binary.StartSigner(c, append(issuers(before), ring, "--external-signer-refresh-hint=1s")...)
		}
		return err
	}
	c := testcluster.New(t, devcluster.Options{ExternalSigner: true, APIServerFlags: flags, BeforeAPIServer: begin})
	c.StartKCM(t)
	c.AwaitAccounts(t, "default", "default")
	c.AwaitAccounts(t, "kube-system", "default")
	party := testutil.Get(tokenload.NewParty("first cluster", c.Cluster))(t)
	var tokens []tokenload.Token
	accepts := func(token tokenload.Token) bool {
		t.Helper()
		status := testutil.Get(c.Review(t.Context(), token.Text))(t)
		return status.Authenticated
	}
	request := func() {
		t.Helper()
		token, err := party.Request(t.Context())
		testutil.Must(t, err)
		tokens = append(tokens, token)
		for _, token := range tokens {
			testutil.Expect(t, accepts(token), "a token is refused")
		}
	}
	apiServer := func(urls ...string) {
		t.Helper()
		flags["service-account-issuer"] = urls
		testutil.Must(t, c.KillAPIServer())
		testutil.Must(t, c.StartAPIServer(t.Context()))
		request()
	}
	request()

	apiServer(before, edge.URL)
	_, err = signer.Stop()
	testutil.Must(t, err)
	signer, err = binary.StartSigner(c.Cluster, append(issuers(edge.URL, before), ring, "--external-signer-refresh-hint=1s",
		"--publish-keys=file://"+served)...)
	testutil.Must(t, err)
	testutil.Must(t, signer.Ready(testcluster.Context(t)))
	testcluster.Poll(t, "the check of what is published", func() error {
		_, err := binary.Run(t.Context(), "keys", "jwks", ring, "--check="+edge.URL+"/openid/v1/jwks", "--published-ca-file="+edge.CAFile)
		return err
	})
	request()

	apiServer(edge.URL, before)
	second := testutil.Get(federation.Trusting(t.Context(), edge, dir))(t)
	t.Cleanup(func() { testutil.Must(t, second.Stop()) })
	relying, err := tokenload.NewParty("second cluster", second)
	testutil.Must(t, err)
	relies := func() {
		t.Helper()
		request()
		testcluster.Poll(t, "the second cluster", func() error { return relying.Review(t.Context(), tokens[len(tokens)-1]) })
	}
	relies()
	_, err = binary.Run(t.Context(), "keys", "rotate", "--wait", "--cache-age=10s", ring, "--kubeconfig="+c.Kubeconfig(),
		"--published-issuer="+edge.URL, "--published-ca-file="+edge.CAFile)
	testutil.Must(t, err)
	relies()

	old, present := tokens[0], tokens[len(tokens)-1]
	tokens = nil
	apiServer(edge.URL)
	testutil.Expect(t, accepts(present) && !accepts(old), "present issuer %t, previous one %t, which kube-apiserver does not have any more",
		accepts(present), accepts(old))
	relies()
}
