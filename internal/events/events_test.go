// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// secret refers to a Secret in the namespace shop whose UID is made from its name.
func secret(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: name, UID: types.UID(name + "-uid")}
}

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
	s.stop = testutil.Start(t, s.Run)
	return s
}

// warn records a Warning a moment after the last one: names of Events are made from the time.
func (s *sending) warn(about *corev1.ObjectReference, reason, note string) {
	time.Sleep(time.Millisecond)
	s.Warn(about, reason, note)
}

// received are the Events that the API has, by their notes.
func (s *sending) received(t *testing.T) []corev1.Event {
	t.Helper()
	synctest.Wait()
	list := testutil.Get(s.client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{}))(t)
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return cmp.Compare(a.Message, b.Message) })
	return list.Items
}

func (s *sending) notes(t *testing.T) []string {
	t.Helper()
	notes := []string{}
	for _, event := range s.received(t) {
		notes = append(notes, event.Message)
	}
	return notes
}

func TestEventsReachTheAPI(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		s := send(t)
		began := time.Now()
		namespace := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: "kube-system"}
		s.Warn(secret("robot-token"), "TokenRefused", "1: the token is for another Secret")
		time.Sleep(time.Second)
		s.Normal(secret("robot-token"), "OrphanDeleted", "2: its account is gone")
		time.Sleep(time.Second)
		s.Warn(namespace, "FileReloadRefused", "3: is empty")

		host := testutil.Get(os.Hostname())(t)
		event := func(after time.Duration, namespace string, about *corev1.ObjectReference, kind, reason, note string) corev1.Event {
			at := metav1.NewTime(began.Add(after))
			return corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, InvolvedObject: *about, Type: kind, Reason: reason, Message: note,
				FirstTimestamp: at, LastTimestamp: at, Count: 1, ReportingController: component, ReportingInstance: host,
				Source: corev1.EventSource{Component: component, Host: host},
			}
		}
		want := []corev1.Event{
			event(0, "shop", secret("robot-token"), "Warning", "TokenRefused", "1: the token is for another Secret"),
			event(time.Second, "shop", secret("robot-token"), "Normal", "OrphanDeleted", "2: its account is gone"),
			// Where Events about cluster-scoped objects are.
			event(2*time.Second, "default", namespace, "Warning", "FileReloadRefused", "3: is empty"),
		}
		got := s.received(t)
		testutil.Check(t, "Events", want, got,
			cmpopts.IgnoreFields(metav1.ObjectMeta{}, "Name", "ManagedFields"), cmpopts.IgnoreTypes(metav1.TypeMeta{}))
		for _, event := range got {
			testutil.Expect(t, strings.HasPrefix(event.Name, event.InvolvedObject.Name+"."), "the Event about %s is called %s",
				event.InvolvedObject.Name, event.Name)
		}
	})
}

// TestAFloodDropsNoOtherReason: most critical Events are recorded once, so no other Event of their
// object may use up their budget.
func TestAFloodDropsNoOtherReason(t *testing.T) {
	t.Parallel()
	for name, note := range map[string]func(i int) string{
		"OneNote":   func(int) string { return "flood" },
		"ManyNotes": func(i int) string { return fmt.Sprint("flood ", i) },
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			s := send(t)
			for i := range 500 {
				s.warn(secret("a"), "FileReloadRefused", note(i))
			}
			s.warn(secret("a"), "SigningKeyRefused", "critical")
			s.warn(secret("b"), "FileReloadRefused", "of another object")
			synctest.Wait()
			writes := len(s.client.Actions()) // creates and patches
			testutil.Check(t, "writes: a flood of one reason has its limit", burst+2, writes)
			notes := s.notes(t)
			for _, want := range []string{"critical", "of another object"} {
				testutil.Expect(t, slices.Contains(notes, want), "there is no Event %q: %q", want, notes)
			}
		})
	}
}

// TestARefusedEventHoldsNoOtherUp: a webhook or a policy in one namespace must not delay the Events
// of all others.
func TestARefusedEventHoldsNoOtherUp(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"WebhookIsDown": apierrors.NewInternalError(errors.New("failed calling webhook")),
		"NoPermission":  apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "a", errors.New("no rule")),
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			s := send(t)
			s.client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetNamespace() == "shop", nil, refusal
			})
			began := time.Now()
			s.Warn(secret("a"), "Refused", "is dropped")
			other := secret("b")
			other.Namespace = "bank"
			s.Warn(other, "Refused", "another")
			testutil.Check(t, "notes", []string{"another"}, s.notes(t))
			testutil.Check(t, "what all of them take", time.Duration(0), time.Since(began))
		})
	}
}

func TestTheEndSendsWhatIsQueued(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		s := send(t)
		s.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(5 * time.Millisecond)
			return false, nil, nil
		})
		want := []string{}
		for i := range 100 {
			note := fmt.Sprintf("%03d", i)
			want = append(want, note)
			s.Warn(secret(note), "Refused", note)
		}
		began := time.Now()
		s.stop()
		took := time.Since(began)
		testutil.Expect(t, took <= 500*time.Millisecond, "the end took %v", took)
		s.Warn(secret("late"), "Refused", "late")
		testutil.Check(t, "notes", want, s.notes(t))
	})
}

// TestNobodyWaitsForTheAPI: neither do callers, nor does the end for longer than it may.
func TestNobodyWaitsForTheAPI(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(released <-chan struct{}) error{
		"Hangs":   func(released <-chan struct{}) error { <-released; return context.Canceled },
		"Refuses": func(<-chan struct{}) error { return errors.New("connection refused") },
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			s := send(t)
			released := make(chan struct{})
			defer close(released)
			s.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, answer(released)
			})
			began := time.Now()
			for i := range 5000 {
				s.Warn(secret(fmt.Sprint(i)), "Refused", "x")
			}
			synctest.Wait()
			testutil.Check(t, "what all of them take", time.Duration(0), time.Since(began))
			s.stop()
			took := time.Since(began)
			testutil.Expect(t, took <= flushTimeout, "the end took %v", took)
		})
	}
}

func TestLongNotesAreCut(t *testing.T) {
	t.Parallel()
	const head = "a: Warning Refused: "
	for name, tc := range map[string]struct{ note, want string }{
		"Fits":        {note: strings.Repeat("x", 1024), want: strings.Repeat("x", 1024)},
		"TooLong":     {note: strings.Repeat("x", 1025), want: strings.Repeat("x", 1021) + "..."},
		"InAnEmoji":   {note: strings.Repeat("🔑", 300), want: strings.Repeat("🔑", 255) + "..."},
		"NotAFormat":  {note: "100%s of %d", want: "100%s of %d"},
		"BetweenThem": {note: "x" + strings.Repeat("ä", 600), want: "x" + strings.Repeat("ä", 510) + "..."},
	} {
		t.Run(name, func(t *testing.T) {
			told := &testutil.EventLog{}
			NewRecorderTo(told).Warn(secret("a"), "Refused", tc.note)
			testutil.Check(t, "Events", []string{head + tc.want}, told.Lines())
			testutil.Expect(t, len(tc.want) <= noteLimit && utf8.ValidString(tc.want), "the case itself wants what is too long")
		})
	}
}

func TestANilRecorderDropsAll(t *testing.T) {
	t.Parallel()
	var recorder *Recorder
	recorder.Warn(secret("a"), "Refused", "x")
	recorder.Normal(secret("a"), "Deleted", "x")
}
