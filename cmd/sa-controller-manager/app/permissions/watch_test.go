// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"errors"
	"fmt"
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

func TestWatcherGoesOn(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		var granted atomic.Bool
		server := newAPIServer("system:sa-controller-manager", func(access string) (bool, error) {
			return granted.Load() || access != "patch secrets", nil
		})
		watcher := NewWatcher(server, rulesOfToken())
		_, err := watcher.Findings()
		testutil.Expect(t, err != nil, "nothing was asked yet, and the status is good")
		logger, logs := recorded()
		testutil.Start(t, func(ctx context.Context) error { return watcher.Run(klog.NewContext(ctx, logger)) })

		testutil.Pause(10*time.Minute + 30*time.Second)
		result := testutil.Get(watcher.Findings())(t)
		testutil.Require(t, len(result.Findings) == 1 && result.Findings[0].Unready, "findings %v, want one that readiness fails for",
			result.Findings)
		testutil.Check(t, "finding", `user "system:sa-controller-manager" lacks permissions [patch secrets (token)]`,
			fmt.Sprint(result.Findings[0].Message, " ", result.Findings[0].Objects))
		// After 0, 1, 3, 7, 15, 31 and 63 seconds, then every minute.
		testutil.Check(t, "times that it has asked in ten and a half minutes", 16, server.times("patch secrets"))
		testutil.Check(t, "times that it has asked for what is granted", 1, server.times("get secrets"))
		testutil.Check(t, "lines about what is missing", 1, strings.Count(logs(), "lacks permissions: patch secrets"))
		testutil.CheckContains(t, "the log shows what grants it", "kind: ClusterRoleBinding", logs())

		granted.Store(true)
		testutil.Pause(maxRetry)
		if result, err := watcher.Findings(); result.Note != "" || len(result.Findings) > 0 || err != nil {
			t.Errorf("result %v, %v after everything is granted", result, err)
		}
		testutil.CheckContains(t, "the log says that it is over", "All permissions are granted now", logs())

		granted.Store(false)
		testutil.Pause(recheck)
		if result, err := watcher.Findings(); len(result.Findings) != 1 || err != nil {
			t.Errorf("result %v, %v after a permission was taken away", result, err)
		}
		testutil.Check(t, "lines about what is missing", 2, strings.Count(logs(), "lacks permissions: patch secrets"))
	})
}

func TestWatcherPassesWhatItCannotKnow(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		server := newAPIServer("someone", func(string) (bool, error) { return false, errBoom })
		watcher := NewWatcher(server, rulesOfToken())
		testutil.Start(t, watcher.Run)
		synctest.Wait()
		result, err := watcher.Findings()
		testutil.Expect(t, err == nil && len(result.Findings) == 0 && strings.Contains(result.Note, "could not be checked"),
			"result %v, %v; want a note: it may well be granted", result, err)
	})
}

func TestGrantIsForTheRightUser(t *testing.T) {
	t.Parallel()
	const ours = "kind: User\n  name: system:sa-controller-manager\n"
	for name, tc := range map[string]struct{ reason, user, want, remedy string }{
		"Ours":   {"", "system:sa-controller-manager", ours, "preflight -o grant"},
		"Nobody": {"the API server did not say", "", ours, "preflight -o grant"},
		"Other":  {"our roles are not bound to it in passing", "system:serviceaccount:ns:sa", "", "with this user as the subject"},
		"KCM": {
			"its permissions are not ours to widen", "system:kube-controller-manager", "", "sa-controller-manager kubeadm kubeconfig",
		},
	} {
		t.Run(name, func(t *testing.T) {
			report := Report{User: tc.user, Answers: []Answer{{Access: Access{Verb: "patch", Resource: "secrets"}}}}
			text := testutil.Get(report.Grants(rulesOfToken()))(t)
			testutil.Expect(t, strings.Contains(text, tc.want) && (text == "") == (tc.want == ""), "%s: want %q in\n%s", tc.reason, tc.want,
				text)
			testutil.CheckContains(t, tc.reason, tc.remedy, report.Findings(rulesOfToken())[0].Remedy)
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
