// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const testIssuer = "https://issuer.example.com"

// keys of the tests: one signs at the start, the others sign later.
type keys struct{ old, next, third *signing.PrivateKey }

func testKeys() keys {
	return keys{old: testkeys.Parse(testkeys.P256()), next: testkeys.Parse(testkeys.P256Other()), third: testkeys.Parse(testkeys.P384())}
}

// named puts the names of the keys in place of their IDs.
func (k keys) named(text string) string {
	return strings.NewReplacer(k.old.ID(), "OLD", k.next.ID(), "NEXT", k.third.ID(), "THIRD").Replace(text)
}

func (k keys) all(lines []string) []string {
	named := []string{}
	for _, line := range lines {
		named = append(named, k.named(line))
	}
	return named
}

// trial is a Prober that runs in a synctest bubble, and all that it can be seen by.
type trial struct {
	*Prober
	keys
	server *apiserver
	logger klog.Logger
	ctx    context.Context
	stop   func()
	proven int // how often Proven was notified
}

func start(t *testing.T, server *apiserver, changes ...func(*Config)) *trial {
	t.Helper()
	trial := &trial{keys: testKeys(), server: server}
	trial.logger = ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	config := Config{
		Client: server, Informers: server.Informers, Ring: signing.NewKeyring(signing.KeyFileRing(trial.old)),
		Issuer:   testIssuer,
		Recorder: server.Recorder(),
		Process:  &corev1.ObjectReference{Kind: "Lease", Namespace: "kube-system", Name: "sa-controller-manager"},
		Metrics:  NewMetrics(server.Registry.MustRegister),
	}
	for _, change := range changes {
		change(&config)
	}
	trial.Prober = New(config)
	trial.Proven.Subscribe(func(string) { trial.proven++ })

	trial.ctx = klog.NewContext(t.Context(), trial.logger)
	trial.stop = server.Start(t, func(ctx context.Context) error { return trial.Run(klog.NewContext(ctx, trial.logger)) })
	synctest.Wait()
	return trial
}

// give has another key sign, and waits until it has been dealt with.
func (t *trial) give(key *signing.PrivateKey) {
	t.Ring.Set(signing.KeyFileRing(key))
	synctest.Wait()
}

// signs is the name of the active key.
func (t *trial) signs() string { return t.named(t.Ring.Ring().ActiveID()) }

// said are the messages in the log with their key and reason.
func (t *trial) said() []string {
	lines := []string{}
	for _, entry := range t.logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		values := map[string]string{}
		for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
			values[fmt.Sprint(entry.ParameterKVList[i])] = fmt.Sprint(entry.ParameterKVList[i+1])
		}
		if _, ours := values["keyID"]; !ours {
			continue // client-go's
		}
		line := entry.Message
		for _, name := range slices.Sorted(maps.Keys(values)) {
			line += " " + name + "=" + values[name]
		}
		lines = append(lines, t.named(line))
	}
	return lines
}

func (t *trial) told() []string { return t.all(t.server.Recorded.Lines()) }

func (t *trial) reviewed() []string {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	return t.all(t.server.reviews)
}

// series are the metrics that begin with prefix, as Prometheus sees them, sorted.
func (t *trial) series(prefix string) []string {
	// The names of the keys sort differently from their IDs.
	return slices.Sorted(slices.Values(t.all(testutil.Series(t.server.Registry, prefix))))
}

// apiserver reviews tokens as kube-apiserver does: by key, issuer, and whether the account exists.
type apiserver struct {
	*controllertest.World
	*fake.Clientset
	rest discovery.DiscoveryInterfaces

	mu        sync.Mutex
	known     map[string]bool                           // by key ID
	recreated bool                                      // kube-system/default has another UID
	discover  http.HandlerFunc                          // answers the discovery document
	broken    error                                     // what it answers instead of reviewing
	reviewing func(keyID string)                        // called in each review, before the verdict
	accepted  func(*authenticationv1.TokenReviewStatus) // what another authenticator answers
	reviews   []string                                  // key ID and time of each
	tokens    []string                                  // all that were presented
	began     time.Time
}

func newAPIServer(objects ...runtime.Object) *apiserver {
	w := controllertest.NewWorld(time.Time{}, objects...)
	s := &apiserver{World: w, Clientset: w.Client, known: map[string]bool{}, began: time.Now()}
	s.discover = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"issuer":"`+testIssuer+`"}`) }
	s.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		err := s.review(review)
		return true, review, err
	})
	s.rest = kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://apiserver", Transport: s}).Discovery()
	return s
}

// knowing returns one that accepts tokens of these keys.
func knowing(keys ...*signing.PrivateKey) *apiserver {
	s := newAPIServer(account("kube-system", "default"))
	s.learn(keys...)
	return s
}

// Discovery is that of a real client, as the fake one has no REST client.
func (s *apiserver) Discovery() discovery.DiscoveryInterfaces { return s.rest }

// RoundTrip serves the real client without a socket, which a synctest bubble could not wait for.
func (s *apiserver) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	discover := s.discover
	s.mu.Unlock()
	response := httptest.NewRecorder()
	if request.Method != http.MethodGet || request.URL.Path != signing.DiscoveryPath {
		return nil, fmt.Errorf("unexpected request %s %s", request.Method, request.URL.Path)
	}
	discover(response, request)
	if err := request.Context().Err(); err != nil {
		return nil, err
	}
	return response.Result(), nil
}

func (s *apiserver) review(review *authenticationv1.TokenReview) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, review.Spec.Token)
	token, err := tokens.Inspect(review.Spec.Token)
	if err != nil {
		return err
	}
	s.reviews = append(s.reviews, fmt.Sprintf("%s at %v", token.KeyID, time.Since(s.began)))
	if s.reviewing != nil {
		s.reviewing(token.KeyID)
	}
	account := token.Subject[strings.LastIndex(token.Subject, ":")+1:]
	status := &review.Status
	switch {
	case s.broken != nil:
		return s.broken
	case token.Issuer != testIssuer: // no authenticator takes it for its business, so none says a word
	case !s.known[token.KeyID]:
		status.Error = "[invalid bearer token]"
	case s.recreated && account == "default":
		status.Error = "service account UID does not match claim"
	default:
		status.Authenticated, status.Audiences = true, review.Spec.Audiences
		status.User = authenticationv1.UserInfo{Username: token.Subject, UID: "uid-of-" + account}
	}
	if s.accepted != nil {
		s.accepted(status)
	}
	return nil
}

// set changes what the apiserver does from now on.
func (s *apiserver) set(change func(*apiserver)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *apiserver) learn(keys ...*signing.PrivateKey) {
	s.set(func(s *apiserver) {
		for _, key := range keys {
			s.known[key.ID()] = true
		}
	})
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}}
}

// recreate gives the account kube-system/default another UID, before anybody who watches can know.
func (s *apiserver) recreate() {
	replaced := account("kube-system", "default")
	replaced.UID, s.recreated = "another", true
	_ = s.Tracker().Update(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), replaced, replaced.Namespace) // it is there
}
