// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyactivation

import (
	"context"
	"errors"
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

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
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
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/events"
	"sa-controller-manager/controllers/view"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestMain(m *testing.M) {
	// klog flushes its buffers for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const testIssuer = "https://issuer.example.com"

func parse(pem []byte) *signing.PrivateKey {
	key, err := signing.ParsePrivateKey(pem)
	if err != nil {
		panic(err)
	}
	return key
}

// keys of the tests: one signs at the start, the others are offered.
type keys struct{ old, next, third *signing.PrivateKey }

func testKeys() keys {
	return keys{old: parse(testkeys.P256()), next: parse(testkeys.P256Other()), third: parse(testkeys.P384())}
}

// named puts the names of the keys in place of their IDs.
func (k keys) named(text string) string {
	return strings.NewReplacer(k.old.ID(), "OLD", k.next.ID(), "NEXT", k.third.ID(), "THIRD").Replace(text)
}

// apiserver reviews tokens as kube-apiserver does: with the keys it knows, for its issuer, the audiences of the review and the
// accounts that exist.
type apiserver struct {
	*fake.Clientset
	rest discovery.DiscoveryInterface

	mu        sync.Mutex
	known     map[string]signing.PublicKey
	issuer    string
	discover  http.HandlerFunc      // answers the discovery document
	broken    error                 // what it answers instead of reviewing
	reviewing func(token jwt.Token) // called in each review, before the verdict
	reviews   []string              // key ID and time of each
	tokens    []string              // all that were presented
	began     time.Time
}

func newAPIServer(objects ...runtime.Object) *apiserver {
	s := &apiserver{Clientset: fake.NewClientset(objects...), issuer: testIssuer, known: map[string]signing.PublicKey{}, began: time.Now()}
	s.discover = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"issuer":"`+testIssuer+`"}`) }
	s.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		err := s.review(review)
		return true, review, err
	})
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://apiserver", Transport: s})
	if err != nil {
		panic(err)
	}
	s.rest = client.Discovery()
	return s
}

// Discovery is that of a real client, as the fake one has no REST client.
func (s *apiserver) Discovery() discovery.DiscoveryInterface { return s.rest }

// RoundTrip serves the real client without a socket, which a synctest bubble could not wait for.
func (s *apiserver) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	discover := s.discover
	s.mu.Unlock()
	response := httptest.NewRecorder()
	if request.Method != http.MethodGet || request.URL.Path != discoveryPath {
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
	claims := jwt.MapClaims{}
	token, _, err := jwt.NewParser().ParseUnverified(review.Spec.Token, claims)
	if err != nil {
		return err
	}
	s.reviews = append(s.reviews, fmt.Sprintf("%s at %v", token.Header["kid"], time.Since(s.began)))
	if s.reviewing != nil {
		s.reviewing(*token)
	}
	if s.broken != nil {
		return s.broken
	}
	review.Status.Authenticated, err = s.authenticate(review.Spec, claims)
	if err != nil {
		review.Status.Error = err.Error()
	}
	return nil
}

func (s *apiserver) authenticate(spec authenticationv1.TokenReviewSpec, claims jwt.MapClaims) (bool, error) {
	if claims["iss"] != s.issuer {
		return false, nil // no authenticator takes it for its business, so none says a word
	}
	algorithms := []string{"RS256", "ES256", "ES384", "ES512"}
	_, err := jwt.Parse(spec.Token, func(token *jwt.Token) (any, error) {
		key, ok := s.known[fmt.Sprint(token.Header["kid"])]
		if !ok {
			return nil, errors.New("unknown key")
		}
		return key.Key, nil
	}, jwt.WithValidMethods(algorithms), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithTimeFunc(time.Now))
	if err != nil {
		return false, errors.New("[invalid bearer token]")
	}
	audiences, err := claims.GetAudience()
	if err != nil || !slices.ContainsFunc(audiences, func(a string) bool { return slices.Contains(spec.Audiences, a) }) {
		return false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", audiences, spec.Audiences)
	}
	return s.accountExists(claims)
}

func (s *apiserver) accountExists(claims jwt.MapClaims) (bool, error) {
	private, _ := claims["kubernetes.io"].(map[string]any)
	named, _ := private["serviceaccount"].(map[string]any)
	namespace, name := fmt.Sprint(private["namespace"]), fmt.Sprint(named["name"])
	obj, err := s.Tracker().Get(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), namespace, name)
	if err != nil {
		return false, errors.New("service account not found")
	}
	if string(obj.(*corev1.ServiceAccount).UID) != named["uid"] || claims["sub"] != "system:serviceaccount:"+namespace+":"+name {
		return false, errors.New("service account UID does not match claim")
	}
	return true, nil
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
			s.known[key.ID()] = key.Public()
		}
	})
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}}
}

// trial is an Activator that runs in a synctest bubble, and all that it can be seen by.
type trial struct {
	*Activator
	keys
	server   *apiserver
	registry metrics.KubeRegistry
	logger   klog.Logger
	events   *notebook
	ctx      context.Context
	stop     func()
}

func start(t *testing.T, server *apiserver, changes ...func(*Config)) *trial {
	t.Helper()
	trial := &trial{keys: testKeys(), server: server, registry: metrics.NewKubeRegistry(), events: &notebook{}}
	trial.logger = ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	config := Config{
		Client: server, View: view.New(server, 0), Ring: signing.NewKeyring(trial.old), Issuer: testIssuer,
		Recorder: events.NewRecorderTo(trial.events, clock.RealClock{}),
		Process:  &corev1.ObjectReference{Kind: "Lease", Namespace: "kube-system", Name: "sa-controller-manager"},
		Metrics:  NewMetrics(trial.registry.MustRegister),
	}
	for _, change := range changes {
		change(&config)
	}
	trial.Activator = New(config)

	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), trial.logger))
	trial.ctx = ctx
	config.View.Start(ctx)
	config.View.Await(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); trial.Run(ctx) }()
	trial.stop = func() { cancel(); <-ended; config.View.Stop() }
	synctest.Wait()
	return trial
}

// offer hands a key over and waits until it has been dealt with.
func (t *trial) offer(key *signing.PrivateKey) {
	t.Offer(t.ctx, key)
	synctest.Wait()
}

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

func (t *trial) told() []string {
	t.events.mu.Lock()
	defer t.events.mu.Unlock()
	lines := []string{}
	for _, line := range t.events.lines {
		lines = append(lines, t.named(line))
	}
	return lines
}

func (t *trial) reviewed() []string {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	lines := []string{}
	for _, line := range t.server.reviews {
		lines = append(lines, t.named(line))
	}
	return lines
}

// series are the metrics as Prometheus sees them.
func (t *trial) series() []string {
	response := httptest.NewRecorder()
	metrics.HandlerFor(t.registry, metrics.HandlerOpts{}).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	lines := strings.Split(strings.TrimSpace(t.named(response.Body.String())), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// notebook is a recorder of client-go that keeps what it is told.
type notebook struct {
	mu    sync.Mutex
	lines []string
}

func (n *notebook) Eventf(regarding, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf("%s: %s %s %s: %s",
		regarding.(*corev1.ObjectReference).Name, eventType, reason, action, fmt.Sprintf(note, args...)))
}
