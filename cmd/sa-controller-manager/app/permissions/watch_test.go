// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/internal/testutil"
)

// apiServer grants what the test allows.
type apiServer struct {
	*fake.Clientset
	user string
	// answer is asked with the words of an access.
	answer func(access string) (bool, error)

	mu    sync.Mutex
	asked []string
}

var errBoom = errors.New("boom")

func newAPIServer(user string, answer func(string) (bool, error)) *apiServer {
	s := &apiServer{Clientset: fake.NewClientset(), user: user, answer: answer}
	s.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		access := read(review.Spec)
		s.mu.Lock()
		s.asked = append(s.asked, access)
		s.mu.Unlock()
		allowed, err := s.answer(access)
		review.Status.Allowed = allowed
		return true, review, err
	})
	s.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		review := &authenticationv1.SelfSubjectReview{}
		review.Status.UserInfo.Username = s.user
		return true, review, nil
	})
	return s
}

func read(spec authorizationv1.SelfSubjectAccessReviewSpec) string {
	if path := spec.NonResourceAttributes; path != nil {
		return Access{Verb: path.Verb, Path: path.Path}.String()
	}
	r := spec.ResourceAttributes
	return Access{r.Verb, r.Group, r.Resource, "", r.Namespace, r.Name}.String()
}

func (s *apiServer) times(access string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, asked := range s.asked {
		if asked == access {
			n++
		}
	}
	return n
}

func rulesOfToken() []Rule {
	return slices.DeleteFunc(all(), func(rule Rule) bool { return rule.Part != token })
}

func TestWatcherGoesOnUntilGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var granted atomic.Bool
		server := newAPIServer("system:sa-controller-manager", func(access string) (bool, error) {
			return granted.Load() || access != "patch secrets", nil
		})
		watcher := NewWatcher(server, rulesOfToken())
		if _, err := watcher.Status(); err == nil {
			t.Error("nothing was asked yet, and the status is good")
		}
		logger, logs := recorded()
		ended := make(chan error, 1)
		go func() { ended <- watcher.Run(klog.NewContext(t.Context(), logger)) }()

		time.Sleep(10*time.Minute + 30*time.Second)
		synctest.Wait()
		_, err := watcher.Status()
		if want := `user "system:sa-controller-manager" may not: patch secrets`; err == nil || err.Error() != want {
			t.Errorf("status %v, want %s", err, want)
		}
		// After 0, 1, 3, 7, 15, 31 and 63 seconds, then every minute.
		if n := server.times("patch secrets"); n != 16 {
			t.Errorf("asked %d times in ten and a half minutes, want 16", n)
		}
		if n := server.times("get secrets"); n != 1 {
			t.Errorf("what is granted was asked for %d times, want once", n)
		}
		if n := strings.Count(logs(), "may not patch secrets"); n != 1 {
			t.Errorf("what is missing was logged %d times, want once:\n%s", n, logs())
		}
		if !strings.Contains(logs(), "kind: ClusterRoleBinding") {
			t.Errorf("the log does not show what grants it:\n%s", logs())
		}

		granted.Store(true)
		testutil.Must(t, <-ended)
		if detail, err := watcher.Status(); detail != "" || err != nil {
			t.Errorf("status %q, %v after everything is granted", detail, err)
		}
		if !strings.Contains(logs(), "All permissions are granted now") {
			t.Errorf("the log does not say that it is over:\n%s", logs())
		}
	})
}

func TestWatcherPassesWhatItCannotKnow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newAPIServer("someone", func(string) (bool, error) { return false, errBoom })
		watcher := NewWatcher(server, rulesOfToken())
		testutil.Start(t, watcher.Run)
		synctest.Wait()
		detail, err := watcher.Status()
		if err != nil || !strings.Contains(detail, "could not be checked") {
			t.Errorf("status %q, %v; want a detail: it may well be granted", detail, err)
		}
	})
}

func TestGrantIsForTheRightUser(t *testing.T) {
	t.Parallel()
	const ours = "kind: User\n  name: system:sa-controller-manager\n"
	cases := map[string]struct {
		reason, user string
		want, remedy string
	}{
		"Ours":   {"", "system:sa-controller-manager", ours, "preflight -o grant"},
		"Nobody": {"the API server did not say", "", ours, "preflight -o grant"},
		"Other":  {"our roles are not bound to it in passing", "system:serviceaccount:ns:sa", "", "with this user as the subject"},
		"KCM":    {"its permissions are not ours to widen", "system:kube-controller-manager", "", "sa-controller-manager kubeadm kubeconfig"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			report := Report{User: tc.user, Answers: []Answer{{Access: Access{Verb: "patch", Resource: "secrets"}}}}
			text, err := report.Grants(rulesOfToken())
			testutil.Must(t, err)
			if !strings.Contains(text, tc.want) || (text == "") != (tc.want == "") {
				t.Errorf("%s: want %q in\n%s", tc.reason, tc.want, text)
			}
			if !strings.Contains(report.Remedy(), tc.remedy) {
				t.Errorf("%s: the remedy %q does not name %q", tc.reason, report.Remedy(), tc.remedy)
			}
		})
	}
}

// TestGrantNamesOnlyWhatIsMissing: a role that is complete is not touched.
func TestGrantNamesOnlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, object := range Grant(all(), []Access{{Verb: "create", Resource: "pods", Namespace: "kube-system"}}) {
		kinds = append(kinds, object.GetObjectKind().GroupVersionKind().Kind)
	}
	testutil.Check(t, "result", []string{"Role", "RoleBinding"}, kinds)
}

// recorded is a logger and what it has logged.
func recorded() (klog.Logger, func() string) {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	underlier := logger.GetSink().(ktesting.Underlier)
	return logger, func() string { return underlier.GetBuffer().String() }
}
