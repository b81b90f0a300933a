// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publishing

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/publish"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/test/federation"
	"sa-controller-manager/test/integration/testcluster"
)

const issuer = "https://issuer.example.com"

func parse(t *testing.T, destination string) publish.Destination {
	t.Helper()
	to, err := publish.Parse(destination)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func ring(t *testing.T, generation int64, pems ...[]byte) *signing.Ring {
	t.Helper()
	var keys []signing.Key
	for _, data := range pems {
		key, err := signing.ParsePrivateKey(data)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key.Public().As(signing.Retired))
	}
	return signing.NewRing(generation, keys...)
}

// stored returns a file of the gateway, which has each object as one.
func stored(t *testing.T, bucket, document string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(gateway.Dir, bucket, "cluster", document))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBucket publishes two generations, and then finds out that another writer was first.
func TestBucket(t *testing.T) {
	to := parse(t, newBucket(t, "bucket"))
	publisher := &publish.Publisher{Issuer: issuer, MaxAge: 5 * time.Minute}
	first, second := ring(t, 1, testkeys.RSA2048()), ring(t, 2, testkeys.RSA2048Other(), testkeys.RSA2048())
	for _, step := range []struct {
		reason string
		ring   *signing.Ring
		wrote  []string
		err    string
	}{
		{"an empty bucket", first, []string{signing.JWKSPath, signing.DiscoveryPath}, ""},
		{"nothing has changed", first, nil, ""},
		{"a key was added", second, []string{signing.JWKSPath}, ""},
		{"a host with the former copy", first, nil, "generation 2 of the key ring is published"},
	} {
		result, err := publisher.Pass(t.Context(), to, step.ring)
		if step.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Fatalf("%s: %v, want %q", step.reason, err, step.err)
		}
		if !slices.Equal(result.Wrote, step.wrote) {
			t.Errorf("%s: wrote %q, want %q", step.reason, result.Wrote, step.wrote)
		}
	}
	want, err := signing.MarshalJWKS(second.KeySet().All())
	if err != nil {
		t.Fatal(err)
	}
	if got := stored(t, "bucket", signing.JWKSPath); string(got) != string(want) {
		t.Errorf("the bucket has %s, want %s", got, want)
	}

	object, err := to.Get(t.Context(), signing.JWKSPath)
	if err != nil || object.Stamp != publish.StampOf(second) {
		t.Fatalf("the JWKS has stamp %+v, error %v; want %+v", object, err, publish.StampOf(second))
	}
	for reason, old := range map[string]*publish.Object{
		"an object that is there is not created":     nil,
		"an object that has changed is not replaced": {Version: strings.Repeat("0", 32)},
	} {
		if err := to.Put(t.Context(), signing.JWKSPath, old, []byte("{}"), publish.Stamp{}, publish.Headers{}); !errors.Is(err, publish.ErrConflict) {
			t.Errorf("%s: %v, want a conflict", reason, err)
		}
	}
	if got := stored(t, "bucket", signing.JWKSPath); string(got) != string(want) {
		t.Errorf("a refused write has changed the bucket to %s", got)
	}
}

func TestBucketThatCannotBeWritten(t *testing.T) {
	there := newBucket(t, "there")
	for name, c := range map[string]struct {
		reason, user, destination string
		prepare                   func(to publish.Destination) error
		err                       string
	}{
		"NoBucket": {
			reason: "it was deleted", user: "publisher",
			destination: strings.Replace(there, "s3://there/", "s3://not-there/", 1), err: "not-there",
		},
		"ReadOnly": {
			reason: "the credentials are those of a reader", user: federation.Reader,
			destination: there, err: "Access Denied",
		},
		"TooLarge": {
			reason: "2 MiB that somebody has put there are neither read nor replaced", user: "publisher",
			destination: newBucket(t, "large"), err: "it is larger than 1048576 bytes",
			prepare: func(to publish.Destination) error {
				return to.Put(t.Context(), signing.JWKSPath, nil, bytes.Repeat([]byte(" "), 2<<20), publish.Stamp{}, publish.Headers{})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range federation.Environment(c.user) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			to := parse(t, c.destination)
			if c.prepare != nil {
				if err := c.prepare(to); err != nil {
					t.Fatal(err)
				}
			}
			result, err := (&publish.Publisher{Issuer: issuer}).Pass(t.Context(), to, ring(t, 1, testkeys.P256()))
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), federation.Secret(c.user)) || len(result.Wrote) > 0 {
				t.Errorf("%s: wrote %q, error %v; want nothing, and an error with %q and without credentials", c.reason, result.Wrote, err, c.err)
			}
		})
	}
}

// TestTwoWriters: each has the ring in some of its generations, in order, and writes as fast as it
// can. Neither takes back what the other has published.
func TestTwoWriters(t *testing.T) {
	const generations = 30
	to := parse(t, newBucket(t, "writers-"+testcluster.RandomName()))
	var writers sync.WaitGroup
	var conflicts atomic.Int32
	rings := []*signing.Ring{nil}
	for generation := int64(1); generation <= generations; generation++ {
		// Another key in each, so that no two documents have the same ETag.
		key, err := signing.GenerateKeyPair("P-256")
		if err != nil {
			t.Fatal(err)
		}
		rings = append(rings, signing.NewRing(generation, key.Public().As(signing.Active)))
	}
	for writer := range 2 {
		writers.Go(func() {
			var published int64
			for generation := int64(1); generation <= generations; {
				_, err := (&publish.Publisher{Issuer: issuer}).Pass(t.Context(), to, rings[generation])
				switch {
				case errors.Is(err, publish.ErrConflict):
					conflicts.Add(1)
					continue // as the queue does
				case err != nil && !strings.Contains(err.Error(), "of the key ring is published"):
					t.Errorf("writer %d, generation %d: %v", writer, generation, err)
					return
				}
				object, err := to.Get(t.Context(), signing.JWKSPath)
				if err != nil || object.Stamp.Generation < max(published, generation) {
					t.Errorf("writer %d: generation %d is published after %d and the own %d (%v)", writer, object.Stamp.Generation, published, generation, err)
					return
				}
				published = object.Stamp.Generation
				generation++
			}
		})
	}
	writers.Wait()
	if conflicts.Load() == 0 {
		t.Error("no write was refused: the writers were never at it at the same time")
	}
	t.Logf("%d writes of %d were refused", conflicts.Load(), 2*generations)
}

// TestStoreWithoutPreconditions: two leaders would overwrite each other's keys there.
func TestStoreWithoutPreconditions(t *testing.T) {
	var requests []string
	store := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path)
		w.Header().Set("ETag", `"00000000000000000000000000000001"`)
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer store.Close()
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: store.Certificate().Raw})
	if err := os.WriteFile(caFile, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	to := parse(t, "s3://bucket?endpoint="+store.Listener.Addr().String()+"&region=us-east-1&ca-file="+caFile)
	_, err := (&publish.Publisher{Issuer: issuer}).Pass(t.Context(), to, ring(t, 1, testkeys.P256()))
	if err == nil || !strings.Contains(err.Error(), "ignores If-Match") {
		t.Errorf("got %v, want a refusal", err)
	}
	if want := []string{"PUT /bucket/.sa-controller-manager-probe", "DELETE /bucket/.sa-controller-manager-probe"}; !slices.Equal(requests, want) {
		t.Errorf("requests %q, want %q", requests, want)
	}
}
