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
