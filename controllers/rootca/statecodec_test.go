// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

func TestTheStateIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "ABCD")
	for _, text := range []string{"A", "AB", "B A@1h0m0s", "CD B@1h0m0s A@20m0s"} {
		written := a.state(t, text, now).encodeInto(emptyState())
		testutil.Check(t, "name", "kube-system/sa-controller-manager-root-ca", written.Namespace+"/"+written.Name)
		got, damage, err := decode(written, now, time.Minute)
		if err != nil || damage != "" {
			t.Errorf("%s: damage %q, error %v", text, damage, err)
		}
		got.sort()
		testutil.Check(t, "state", text, a.describe(got, now))
		if again := got.encodeInto(written); again != nil {
			t.Errorf("%s: what is right is written again", text)
		}
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
	name := "previous-" + fingerprint(a['A'])
	testutil.Check(t, "data", map[string]string{
		"schema-version": "1", "current.crt": a.pem("B"), name + ".crt": a.pem("A"), name + ".until": "2026-11-21T09:00:00Z",
	}, texts(a.state(t, "B A@1h", now).encode()))
}

func TestReadingADamagedState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "ABC")
	nameOfA := "previous-" + fingerprint(a['A'])
	cases := map[string]struct {
		reason  string
		change  func(map[string][]byte)
		want    string
		damage  string // what one line of it must say, "" if there is none
		unknown string // what the error must say
	}{
		"NoSchema": {change: func(d map[string][]byte) { delete(d, "schema-version") }, want: "B A@20m0s", damage: "schema-version is missing"},
		"Newer": {
			reason: "nothing of it is understood", change: func(d map[string][]byte) { d["schema-version"] = []byte("2") }, want: "-",
			unknown: `its schema-version is "2", this program knows "1" only: run the newer version`,
		},
		"NoCurrent": {change: func(d map[string][]byte) { delete(d, "current.crt") }, want: "- A@20m0s", damage: "current.crt: is empty"},
		"NoCertificate": {
			change: func(d map[string][]byte) { d[nameOfA+".crt"] = []byte("hello") }, want: "B", damage: nameOfA + ".crt: holds no certificate",
		},
		"NoEnd": {
			reason: "it ends like one that begins now", change: func(d map[string][]byte) { delete(d, nameOfA+".until") }, want: "B A@1m0s",
			damage: nameOfA + ".until: is no time",
		},
		"Empty": {reason: "it comes with nothing in it", change: func(d map[string][]byte) { clear(d) }, want: "-"},
		"Renamed": {reason: "by hand", change: func(d map[string][]byte) {
			d["previous-x.crt"], d["previous-x.until"] = []byte(a.pem("C")), []byte("2026-11-21T08:05:00Z")
		}, want: "B A@20m0s C@5m0s"},
		"Fractions": {
			reason: "by hand", change: func(d map[string][]byte) { d[nameOfA+".until"] = []byte("2026-11-21T10:05:00.5+02:00") },
			want: "B A@5m1s",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			data := a.state(t, "B A@20m", now).encode()
			tc.change(data)
			object := &corev1.Secret{Data: data}
			got, damage, err := decode(object, now, time.Minute)
			if (err == nil) != (tc.unknown == "") || err != nil && !strings.Contains(err.Error(), tc.unknown) {
				t.Errorf("error is %v, want %q", err, tc.unknown)
			}
			if (damage == "") != (tc.damage == "") || !strings.Contains(damage, tc.damage) {
				t.Errorf("damage is %q, want %q", damage, tc.damage)
			}
			if strings.Contains(damage, "MII") {
				t.Errorf("the damage repeats PEM: %q", damage)
			}
			got.sort()
			testutil.Check(t, tc.reason, tc.want, a.describe(got, now))
		})
	}
}

func TestWhatElseIsInTheState(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "A")
	s := a.state(t, "A", time.Time{})
	object := s.encodeInto(emptyState())
	object.ObjectMeta = metav1.ObjectMeta{ResourceVersion: "7", Labels: map[string]string{"kept": "yes"}}
	object.Data["stranger"] = []byte("yes")
	before := object.DeepCopy()
	got := s.encodeInto(object)
	testutil.Check(t, "data", s.encode(), got.Data)
	testutil.Check(t, "metadata", before.ObjectMeta, got.ObjectMeta)
	testutil.Check(t, "what was given", before, object)
}
