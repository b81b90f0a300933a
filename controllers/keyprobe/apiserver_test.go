// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
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

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/signing"
)

// apiserver reviews tokens as kube-apiserver does: with the keys it knows, for its issuer, the
// audiences of the review and the accounts that exist.
type apiserver struct {
	*controllertest.World
	*fake.Clientset
	rest discovery.DiscoveryInterfaces

	mu        sync.Mutex
	known     map[string]signing.PublicKey
	issuer    string
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
	s := &apiserver{World: w, Clientset: w.Client, issuer: testIssuer, known: map[string]signing.PublicKey{}, began: time.Now()}
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
	keyID := fmt.Sprint(token.Header["kid"])
	s.reviews = append(s.reviews, fmt.Sprintf("%s at %v", keyID, time.Since(s.began)))
	if s.reviewing != nil {
		s.reviewing(keyID)
	}
	if s.broken != nil {
		return s.broken
	}
	if review.Status.Authenticated, err = s.authenticate(review.Spec, claims); review.Status.Authenticated {
		private := claims["kubernetes.io"].(map[string]any)["serviceaccount"].(map[string]any)
		review.Status.User = authenticationv1.UserInfo{Username: fmt.Sprint(claims["sub"]), UID: fmt.Sprint(private["uid"])}
		review.Status.Audiences = review.Spec.Audiences
	}
	if s.accepted != nil {
		s.accepted(&review.Status)
	}
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

// recreate gives the account kube-system/default another UID, before anybody who watches can know.
func (s *apiserver) recreate() {
	replaced := account("kube-system", "default")
	replaced.UID = "another"
	if err := s.Tracker().Update(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), replaced, replaced.Namespace); err != nil {
		panic(err)
	}
}
