// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
)

const component = "sa-controller-manager"

// sending is a Recorder that runs, in a synctest bubble.
type sending struct {
	*Recorder
	client *fake.Clientset
	stop   func()
}

func send(t *testing.T) *sending {
	t.Helper()
	s := &sending{client: fake.NewClientset()}
	s.Recorder = NewRecorder(s.client, component)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	s.stop = func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	synctest.Wait()
	return s
}

// received are the Events that the API has, by their notes.
func (s *sending) received(t *testing.T) []eventsv1.Event {
	t.Helper()
	synctest.Wait()
	list, err := s.client.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	testutil.Must(t, err)
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return cmp.Compare(a.Note, b.Note) })
	return list.Items
}

func (s *sending) notes(t *testing.T) []string {
	t.Helper()
	notes := []string{}
	for _, event := range s.received(t) {
		notes = append(notes, event.Note)
	}
	return notes
}

func TestEventsReachTheAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := send(t)
		defer s.stop()
		began := time.Now()
		later := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(began.Add(d)) }
		namespace := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "kube-system"}
		s.Warn(secret("robot-token"), "TokenRefused", "Verify", "1: the token is for another Secret")
		time.Sleep(time.Second) // the names of Events are made from the time
		s.Normal(secret("robot-token"), "OrphanDeleted", "Delete", "2: its account is gone")
		time.Sleep(time.Second)
		s.Warn(namespace, "FileReloadRefused", "Reload", "3: is empty")

		want := []eventsv1.Event{
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
				Type:       "Warning", Reason: "TokenRefused", Action: "Verify", Note: "1: the token is for another Secret",
				Regarding: *secret("robot-token"), EventTime: later(0), ReportingController: component,
			},
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
				Type:       "Normal", Reason: "OrphanDeleted", Action: "Delete", Note: "2: its account is gone",
				Regarding: *secret("robot-token"), EventTime: later(time.Second), ReportingController: component,
			},
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, // where Events about cluster-scoped objects are
				Type:       "Warning", Reason: "FileReloadRefused", Action: "Reload", Note: "3: is empty",
				Regarding: *namespace, EventTime: later(2 * time.Second), ReportingController: component,
			},
		}
		got := s.received(t)
		diff := gocmp.Diff(want, got,
			cmpopts.IgnoreFields(metav1.ObjectMeta{}, "Name", "ManagedFields"), cmpopts.IgnoreTypes(metav1.TypeMeta{}),
			cmpopts.IgnoreFields(eventsv1.Event{}, "ReportingInstance"))
		if diff != "" {
			t.Errorf("Events (-want +got):\n%s", diff)
		}
		for _, event := range got {
			if !strings.HasPrefix(event.Name, event.Regarding.Name+".") {
				t.Errorf("the Event about %s is called %s", event.Regarding.Name, event.Name)
			}
			if !strings.HasPrefix(event.ReportingInstance, component+"-") {
				t.Errorf("the Event comes from the instance %q, want %s and the host", event.ReportingInstance, component)
			}
		}
		for _, action := range s.client.Actions() {
			if got := action.GetResource().GroupVersion().String(); got != "events.k8s.io/v1" {
				t.Errorf("a request was made to %s", got)
			}
		}
	})
}

// TestAFloodIsPaced: the Events of a great clearing up are all told, in their time.
func TestAFloodIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := send(t)
		defer s.stop()
		const flood = 200
		for i := range flood {
			s.Normal(secret(fmt.Sprint("token-", i)), "OrphanDeleted", "Delete", "its account is gone")
		}
		for _, want := range []int{atOnce, atOnce + perSecond, atOnce + 2*perSecond} {
			if got := len(s.received(t)); got != want {
				t.Errorf("%d Events have been sent, want %d", got, want)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(flood / perSecond * time.Second)
		if got := len(s.received(t)); got != flood {
			t.Errorf("%d Events have been sent in the end, want %d", got, flood)
		}
	})
}

func TestWhatWasRecordedBeforeRunIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		s := &sending{client: client, Recorder: NewRecorder(client, component)}
		s.Warn(secret("a"), "Refused", "Try", "early")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		testutil.Must(t, s.Run(ctx))
		testutil.Check(t, "notes", []string{"early"}, s.notes(t))
	})
}

func TestAfterTheEndEventsAreDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := send(t)
		s.Warn(secret("a"), "Refused", "Try", "in time")
		synctest.Wait()
		s.stop()
		s.Warn(secret("a"), "Refused", "Try", "late")
		s.Normal(secret("b"), "Deleted", "Delete", "late too")
		testutil.Check(t, "notes", []string{"in time"}, s.notes(t))
	})
}

func TestNobodyWaitsForTheAPI(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset()
		// An API that does not answer until the request is given up.
		client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			<-ctx.Done()
			return true, nil, ctx.Err()
		})
		recorder := NewRecorder(client, component)
		ended := make(chan error)
		go func() { ended <- recorder.Run(ctx) }()

		began := time.Now()
		for i := range 2000 {
			recorder.Warn(secret(fmt.Sprint(i)), "Refused", "Try", "x")
		}
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("2000 Events to an API that does not answer took %v", took)
		}
	})
}
