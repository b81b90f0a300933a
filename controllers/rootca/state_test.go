// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "ABCD")
	for name, tc := range map[string]struct {
		reason, file string
		known        string // "-" or current, then previous with their end
		overlap      time.Duration
		off          bool

		published, state, began, ended, returned string
	}{
		"First":     {reason: "nothing was published before", file: "A", known: "-", published: "A", state: "A"},
		"AtRest":    {file: "A", known: "A", published: "A", state: "A"},
		"Changed":   {reason: "the new one comes first", file: "B", known: "A", published: "BA", state: "B A@1h0m0s", began: "A"},
		"InOverlap": {reason: "the end does not move", file: "B", known: "B A@20m", published: "BA", state: "B A@20m0s"},
		"Ended":     {reason: "the file as it is again", file: "B", known: "B A@0s", published: "B", state: "B", ended: "A"},
		"ChangedAgain": {
			reason: "one end for both: none ends before its time", file: "C", known: "B A@20m", published: "CBA", state: "C BA@1h0m0s",
			began: "B",
		},
		"BothEnd": {file: "C", known: "C BA@0s", published: "C", state: "C", ended: "BA"},
		"ChangedAtTheEnd": {
			reason: "what is over does not join what begins",
			file:   "C", known: "B A@-1s", published: "CB", state: "C B@1h0m0s", began: "B", ended: "A",
		},
		"ShrunkInOverlap": {
			reason: "a certificate that leaves the file without a successor has a whole overlap, too",
			file:   "A", known: "AB C@20m", published: "ABC", state: "A BC@1h0m0s", began: "B",
		},
		"GrownInOverlap": {reason: "none has left the file", file: "BC", known: "B A@20m", published: "BCA", state: "BC A@20m0s"},
		"OneOfTwoIsBack": {
			reason: "the other one keeps its end", file: "CA", known: "C BA@20m", published: "CAB", state: "CA B@20m0s", returned: "A",
		},
		"BackAgain": {
			reason: "what is current has no end, and what was is not forgotten",
			file:   "A", known: "B A@20m", published: "AB", state: "A B@1h0m0s", began: "B", returned: "A",
		},
		"Superset":    {reason: "the person has made the union", file: "BA", known: "A", published: "BA", state: "BA"},
		"Subset":      {reason: "and ends it", file: "B", known: "BA", published: "BA", state: "B A@1h0m0s", began: "A"},
		"Repeated":    {reason: "the file is published as it is, even so", file: "AA", known: "A", published: "AA", state: "AA"},
		"AlsoCurrent": {reason: "an edited state", file: "B", known: "A A@20m", published: "BA", state: "B A@20m0s"},
		"EndedAndCurrent": {
			reason: "an edited state: what has ended does not begin again", file: "B", known: "A A@-1s", published: "B", state: "B",
			ended: "A",
		},
		"PreviousTwice": {reason: "an edited state", file: "B", known: "B AA@20m", published: "BA", state: "B A@20m0s"},
		"FarFuture": {
			reason: "an edited state, or a clock that went back: no previous CA stays for longer than one that begins now",
			file:   "B", known: "B A@9000h", published: "BA", state: "B A@1h0m0s",
		},
		"Shortened": {
			reason: "restarted with a shorter overlap", file: "B", known: "B A@50m", overlap: 10 * time.Minute, published: "BA",
			state: "B A@10m0s",
		},
		"Zero": {
			reason: "the previous one is compromised", file: "B", known: "A", off: true, published: "B", state: "B", ended: "A",
		},
		"ZeroInOverlap": {reason: "restarted to end it", file: "B", known: "B A@50m", off: true, published: "B", state: "B", ended: "A"},
		"UnreadCurrent": {
			reason: "the state's current could not be read", file: "B", known: "- A@20m", published: "BA", state: "B A@20m0s",
		},
		"AllOfThemChange": {file: "CD", known: "AB", published: "CDAB", state: "CD AB@1h0m0s", began: "AB"},
	} {
		t.Run(name, func(t *testing.T) {
			file, overlap := a.bundle(t, tc.file), cmp.Or(tc.overlap, time.Hour)
			if tc.off {
				overlap = 0
			}
			got := plan(file, a.state(t, tc.known, now), now, overlap)
			testutil.Check(t, tc.reason+"\npublished", tc.published, a.read(got.published.PEM()))
			testutil.Check(t, tc.reason+"\nstate", tc.state, a.describe(got.state, now))
			testutil.Check(t, "began", tc.began, a.word(got.began))
			testutil.Check(t, "ended", tc.ended, a.word(got.ended))
			testutil.Check(t, "returned", tc.returned, a.word(got.returned))
			union := len(got.state.previous) > 0
			testutil.Expect(t, (got.published != file) == union, "the file itself is published: %t, want %t", got.published == file, !union)

			// What was decided once is decided again, as after a restart.
			again := plan(file, got.state, now, overlap)
			testutil.Check(t, "state decided again", a.describe(got.state, now), a.describe(again.state, now))
			testutil.Check(t, "PEM decided again", string(got.published.PEM()), string(again.published.PEM()))
			testutil.Expect(t, len(again.began)+len(again.ended) == 0, "it is reported again")
		})
	}
}

func TestPlanNeverEndsTooEarly(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	now := time.Date(2026, 11, 21, 8, 0, 0, 1, time.UTC)
	got := plan(a.bundle(t, "B"), a.state(t, "A", now), now, time.Second)
	testutil.Check(t, "a whole second, rounded up", now.Add(2*time.Second-1), got.state.until)
	later := plan(a.bundle(t, "B"), got.state, now.Add(time.Millisecond), time.Second)
	testutil.Check(t, "the end after a millisecond", got.state.until, later.state.until)
	none := plan(a.bundle(t, "B"), a.state(t, "A", now), now, 0)
	testutil.Check(t, "published without an overlap, although the second is not over", "B", a.read(none.published.PEM()))
}

// What is around the certificates of the file stays in a union.
func TestAUnionHoldsTheFileAsItIs(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	for name, end := range map[string]string{"Line": "# the end\n", "NoLine": "# the end"} {
		t.Run(name, func(t *testing.T) {
			text := "# ours\n" + a.pem("B") + end
			file := testutil.Get(ParseBundle([]byte(text)))(t)
			now := time.Now()
			got := plan(file, a.state(t, "A", now), now, time.Hour)
			testutil.Check(t, "published", strings.TrimSuffix(text, "\n")+"\n"+a.pem("A"), string(got.published.PEM()))
			testutil.Check(t, "in the state", text, string(got.state.encode()[keyCurrent]))
			testutil.Check(t, "the file afterwards", text, string(file.PEM()))
		})
	}
}

// texts shows data as a person writes it.
func texts(data map[string][]byte) map[string]string {
	shown := map[string]string{}
	for key, value := range data {
		shown[key] = string(value)
	}
	return shown
}

func TestTheStateForPeople(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "AB")
	testutil.Check(t, "data", map[string]string{
		"schema-version": "1", "current.crt": a.pem("B"), "previous.crt": a.pem("A"), "until": "2026-11-21T09:00:00Z",
	}, texts(a.state(t, "B A@1h", now).encode()))
}

func TestReadingADamagedState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "ABC")
	for name, tc := range map[string]struct {
		reason  string
		change  func(map[string][]byte)
		want    string
		damage  string // what one line of it must say, "" if there is none
		unknown string // what the error must say
	}{
		"NoSchema": {
			change: func(d map[string][]byte) { delete(d, "schema-version") }, want: "B A@20m0s", damage: "schema-version is missing",
		},
		"Newer": {
			reason: "nothing of it is understood", change: func(d map[string][]byte) { d["schema-version"] = []byte("2") }, want: "-",
			unknown: `its schema-version is "2", this program knows "1" only: run the newer version`,
		},
		"NoCurrent": {change: func(d map[string][]byte) { delete(d, "current.crt") }, want: "- A@20m0s", damage: "current.crt: is empty"},
		"NoCertificate": {
			change: func(d map[string][]byte) { d["previous.crt"] = []byte("hello") }, want: "B",
			damage: "previous.crt: holds no certificate",
		},
		"NoEnd": {
			reason: "it ends like one that begins now", change: func(d map[string][]byte) { delete(d, "until") }, want: "B A@1m0s",
			damage: "until: is no time",
		},
		"Empty":    {reason: "it comes with nothing in it", change: func(d map[string][]byte) { clear(d) }, want: "-"},
		"Added":    {reason: "by hand", change: func(d map[string][]byte) { d["previous.crt"] = []byte(a.pem("AC")) }, want: "B AC@20m0s"},
		"EndAlone": {reason: "by hand", change: func(d map[string][]byte) { delete(d, "previous.crt") }, want: "B"},
		"Fractions": {
			reason: "by hand", change: func(d map[string][]byte) { d["until"] = []byte("2026-11-21T10:05:00.5+02:00") }, want: "B A@5m1s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := a.state(t, "B A@20m", now).encode()
			tc.change(data)
			object := &corev1.Secret{Data: data}
			got, damage, err := decode(object, now, time.Minute)
			testutil.CheckError(t, "error", tc.unknown, err)
			testutil.Expect(t, (damage == "") == (tc.damage == "") && strings.Contains(damage, tc.damage), "damage is %q, want %q", damage,
				tc.damage)
			testutil.Expect(t, !strings.Contains(damage, "MII"), "the damage repeats PEM: %q", damage)
			testutil.Check(t, tc.reason, tc.want, a.describe(got, now))
		})
	}
}

// right is the ConfigMap as it is to be, with changes made to it.
func right(namespace string, bundle *Bundle, changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := render(metav1.ObjectMeta{Namespace: namespace, Name: "kube-root-ca.crt"}, bundle)
	for _, change := range changes {
		change(configMap)
	}
	return configMap
}

func immutable(c *corev1.ConfigMap)   { c.Immutable = new(true) }
func terminating(c *corev1.ConfigMap) { c.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }
func undescribed(c *corev1.ConfigMap) { c.Annotations = nil }
func emptied(c *corev1.ConfigMap)     { c.Data = nil }

func data(key, value string) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { c.Data[key] = value }
}

func TestPlanConfigMap(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	bundle, previous := a.bundle(t, "A"), a.bundle(t, "B")
	mine := func(changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap { return right("shop", bundle, changes...) }
	for name, tc := range map[string]struct {
		reason string
		gone   bool // the namespace is not Active
		found  *corev1.ConfigMap
		bundle *Bundle
		want   action
	}{
		"Missing":           {bundle: bundle, want: create},
		"MissingAndGoing":   {reason: "kube-apiserver would refuse it", gone: true, bundle: bundle},
		"Right":             {found: mine(), bundle: bundle},
		"Previous":          {found: right("shop", previous), bundle: bundle, want: update},
		"PreviousAndGoing":  {reason: "its Pods still run", gone: true, found: right("shop", previous), bundle: bundle, want: update},
		"Edited":            {found: mine(data("ca.crt", "hello")), bundle: bundle, want: update},
		"Emptied":           {found: mine(emptied), bundle: bundle, want: update},
		"ExtraKey":          {found: mine(data("more", "")), bundle: bundle, want: update},
		"Undescribed":       {found: mine(undescribed), bundle: bundle, want: update},
		"Immutable":         {reason: "it is what it is to be", found: mine(immutable), bundle: bundle},
		"ImmutableAndWrong": {found: mine(immutable, data("ca.crt", "hello")), bundle: bundle, want: refuse},
		"Terminating":       {found: mine(terminating, data("ca.crt", "hello")), bundle: bundle},
		"Nothing":           {reason: "there is no root CA"},
	} {
		t.Run(name, func(t *testing.T) {
			var found *informers.RootCA
			if tc.found != nil {
				found = informers.ObserveRootCA(tc.found)
			}
			testutil.Check(t, tc.reason, tc.want, planConfigMap(!tc.gone, found, tc.bundle))
		})
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "A")
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid", ResourceVersion: "7",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e/f"},
	}
	got := render(meta, a.bundle(t, "A"))
	want := &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"ca.crt": a.pem("A")}}
	want.Annotations["kubernetes.io/description"] = "Contains a CA bundle that can be used to verify the kube-apiserver " +
		"when using internal endpoints such as the " +
		"internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
	testutil.Check(t, "ConfigMap", want, got)
	testutil.Check(t, "annotations of what was given", map[string]string{"c": "d"}, meta.Annotations)
}

// certificate is a self-signed one in PEM form, another one each time.
func certificate(t testing.TB, name string) []byte {
	t.Helper()
	made, _, err := pki.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
	}, nil, nil)
	testutil.Must(t, err)
	return pki.CertPEM(made)
}

func encode(label string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der})
}

func TestParseBundle(t *testing.T) {
	t.Parallel()
	one, two := certificate(t, "one"), certificate(t, "two")
	garbage := encode("CERTIFICATE", []byte("no DER"))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	comment := []byte("\n# made by kubeadm\n")
	for name, tc := range map[string]struct {
		reason  string
		pem     []byte
		refused string // what the error must say; "" if the bundle is good
	}{
		"One":      {pem: one},
		"Two":      {reason: "old and new while a CA is replaced", pem: join(one, two)},
		"Comments": {reason: "what is around the certificates is published as it is", pem: join(comment, one, comment, two, comment)},
		"CRLF":     {pem: bytes.ReplaceAll(one, []byte("\n"), []byte("\r\n"))},
		"Tail":     {reason: "text behind the last certificate", pem: join(one, []byte("the end"))},
		"Other":    {reason: "as upstream, blocks of another kind are passed over", pem: join(encode("X509 CRL", []byte("list")), one)},

		"Nothing": {pem: nil, refused: "is empty"},
		"KeyByName": {
			reason:  "of the wrong one, with another label",
			pem:     bytes.ReplaceAll(testkeys.P256(), []byte("EC PRIVATE KEY"), []byte("CERTIFICATE")),
			refused: "at least one certificate",
		},
		"Key":     {reason: "the wrong one of the two files", pem: testkeys.P256(), refused: "at least one certificate"},
		"Garbage": {pem: garbage, refused: "at least one certificate"},
		"GarbageLast": {
			reason: "half a bundle would lock out half of the clients", pem: join(one, garbage), refused: "at least one certificate",
		},
		"CutLast": {
			reason: "the copy of a file was cut off: half of the clients would be locked out", pem: join(one, two[:len(two)/2]),
			refused: "2 PEM blocks, 1 of which",
		},
		"Joined": {
			reason: "three files put together without a line break between two", pem: join(one, bytes.TrimSpace(two), one),
			refused: "3 PEM blocks, 1 of which",
		},
		"KeyBesides": {
			reason: "everybody who may read a token Secret would have it", pem: join(one, testkeys.P256()), refused: "private key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := bytes.Clone(tc.pem)
			got, err := ParseBundle(given)
			clear(given) // the bundle keeps its own copy
			if tc.refused != "" {
				testutil.Require(t, err != nil && strings.Contains(err.Error(), tc.refused) && got == nil,
					"%s: got error %v, want one that says %q",
					tc.reason, err, tc.refused)
				for line := range strings.Lines(string(testkeys.P256())) {
					if text := strings.TrimSpace(line); !strings.HasPrefix(text, "-----") && strings.Contains(err.Error(), text) {
						t.Errorf("the error holds a part of the key: %v", err)
					}
				}
				return
			}
			testutil.Must(t, err)
			testutil.Check(t, tc.reason+": PEM", string(tc.pem), string(got.PEM()))
			testutil.Check(t, "hash", sha256.Sum256(tc.pem), got.Hash())
		})
	}
}

// TestDelayWithoutRootCA: a process without a root CA syncs namespaces all the same.
func TestDelayWithoutRootCA(t *testing.T) {
	t.Parallel()
	delay := NewSource(nil, nil).Delay(corev1.ResourceConfigMaps, cache.NewObjectName("shop", "kube-root-ca.crt"))
	testutil.Expect(t, delay == 0, "delayed by %v", delay)
}
