// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestGoal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		goal := NewGoal([]string{"one", "two", "two"})
		go func() {
			for _, name := range []string{"one", "unknown", "one", "two"} {
				<-time.After(time.Second)
				goal.Reach(name)
			}
			goal.fail(errors.New("too late to matter"))
		}()
		reached, err := goal.Wait(t.Context())
		if err != nil || reached.Sub(begun) != 4*time.Second || goal.First().Sub(begun) != time.Second {
			t.Errorf("reached after %v, first after %v: %v", reached.Sub(begun), goal.First().Sub(begun), err)
		}
	})
}

func TestGoalThatIsNotReached(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		goal := NewGoal([]string{"one", "two"})
		goal.Reach("one")
		if _, err := goal.Wait(ctx); err == nil {
			t.Error("a goal was reached that lacks one")
		}
		goal.fail(errors.New("boom"))
		goal.Reach("two")
		if _, err := goal.Wait(t.Context()); err == nil {
			t.Error("a goal was reached after it had failed")
		}
		if _, err := NewGoal(nil).Wait(t.Context()); err != nil {
			t.Errorf("nothing to wait for: %v", err)
		}
	})
}

// secret is a token Secret with this data.
func secret(own bool, keys ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Annotations: map[string]string{corev1.ServiceAccountNameKey: "sa"}},
		Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{},
	}
	if !own {
		s.Labels = map[string]string{madeLabel: "token"}
	}
	for _, key := range keys {
		s.Data[key] = []byte("x")
	}
	return s
}

func TestNotice(t *testing.T) {
	t.Parallel()
	all := []string{Account("ns", "sa"), RootCA("ns"), Filled("ns", "s"), Own("ns", "sa"), Gone("ns", "s")}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa"}}
	rootCA := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: RootCAName}}
	filledCA := rootCA.DeepCopy()
	filledCA.Data = map[string]string{"ca.crt": "x"}
	cases := map[string]struct {
		event watch.Event
		want  []string // of all
	}{
		"Account":        {watch.Event{Type: watch.Added, Object: account}, all[0:1]},
		"DeletedAccount": {watch.Event{Type: watch.Deleted, Object: account}, nil},
		"EmptyRootCA":    {watch.Event{Type: watch.Added, Object: rootCA}, nil},
		"RootCA":         {watch.Event{Type: watch.Modified, Object: filledCA}, all[1:2]},
		"WithoutCA":      {watch.Event{Type: watch.Modified, Object: secret(false, "token", "namespace")}, nil},
		"Filled":         {watch.Event{Type: watch.Modified, Object: secret(false, "token", "namespace", "ca.crt")}, all[2:3]},
		"Own":            {watch.Event{Type: watch.Added, Object: secret(true, "token", "namespace", "ca.crt")}, all[2:4]},
		"Gone":           {watch.Event{Type: watch.Deleted, Object: secret(false, "token", "namespace", "ca.crt")}, all[4:5]},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goal := NewGoal(all)
			Notice(goal)(tc.event.Type, tc.event.Object)
			var reached []string
			for _, one := range all {
				if _, missing := goal.missing[one]; !missing {
					reached = append(reached, one)
				}
			}
			if diff := cmp.Diff(tc.want, reached); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestEach(t *testing.T) {
	t.Parallel()
	w := &World{}
	done := make([]int, 1000) // each by one goroutine
	if err := w.Each(t.Context(), len(done), func(_ context.Context, i int) error { done[i]++; return nil }); err != nil {
		t.Fatal(err)
	}
	for i, n := range done {
		if n != 1 {
			t.Errorf("%d was done %d times", i, n)
		}
	}
	boom := errors.New("boom")
	err := w.Each(t.Context(), 1000, func(_ context.Context, i int) error {
		if i == 500 {
			return boom
		}
		return nil
	})
	if !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
}

func TestCensus(t *testing.T) {
	t.Parallel()
	c := &Census{Accounts: map[string]int{}, Tokens: map[string][]string{}}
	for _, name := range []string{"default", "default", "t-00001", "t-00002"} {
		c.account(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	c.secret(secret(false, "token"))
	c.secret(secret(false, "token", "ca.crt", "namespace"))
	c.secret(secret(true, "token", "ca.crt", "namespace"))
	if diff := cmp.Diff(map[string]int{"default": 2, "t": 2}, c.Accounts); diff != "" {
		t.Errorf("accounts (-want +got)\n%s", diff)
	}
	if c.Filled != 1 || c.Unfilled != 1 || c.Own != 1 || len(c.Tokens["ns/sa"]) != 3 {
		t.Errorf("got %+v", c)
	}
}

func TestParseHeap(t *testing.T) {
	t.Parallel()
	if got, err := parseHeap("heap profile: 1: 2 [3: 4]\n# TotalAlloc = 9\n# HeapAlloc = 4567\n# HeapSys = 8\n"); err != nil || got != 4567 {
		t.Errorf("got %v: %v", got, err)
	}
	if _, err := parseHeap("\x1f\x8b binary"); err == nil {
		t.Error("a profile without numbers was read")
	}
}
