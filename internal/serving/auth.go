// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes/scheme"
)

// protect authenticates the client and authorizes the path before h. Refusals are those of every
// Kubernetes component: 401 for bad credentials, 403 for no permission, also without credentials.
func (s *Server) protect(h http.Handler, authn *options.DelegatingAuthenticationOptions,
	authz *options.DelegatingAuthorizationOptions) (http.Handler, error) {
	var permission server.AuthorizationInfo
	if err := authz.ApplyTo(&permission); err != nil {
		return nil, fmt.Errorf("--authorization-kubeconfig %q with --authorization-always-allow-paths: %w", authz.RemoteKubeConfigFile, err)
	}
	var identity server.AuthenticationInfo
	authn.CustomRoundTripperFn = s.delayLookups
	if err := authn.ApplyTo(&identity, s.info, nil); err != nil {
		return nil, fmt.Errorf("--authentication-kubeconfig %q, --client-ca-file %q or --requestheader-client-ca-file %q: %w",
			authn.RemoteKubeConfigFile, authn.ClientCert.ClientCA, authn.RequestHeader.ClientCAFile, err)
	}
	h = filters.WithAuthorization(h, permission.Authorizer, scheme.Codecs)
	h = filters.WithAuthentication(h, identity.Authenticator, filters.Unauthorized(scheme.Codecs), nil, identity.RequestHeaderConfig)
	h = filters.WithRequestInfo(h, &request.RequestInfoFactory{})
	return redactQuery(filters.WithCacheControl(h)), nil
}

// redactQuery removes the query from the request line. Only upstream's filters read that: they log
// it when they refuse a request, and it may contain a token by mistake.
func redactQuery(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		quiet := *r
		quiet.RequestURI = r.URL.EscapedPath()
		h.ServeHTTP(rw, &quiet)
	})
}

// delayLookups keeps what upstream's authentication reads from the API server for later. Upstream reads the ConfigMap
// with the CAs of clients once when it is built, which would wait for the API server, and does without the CA of
// proxies if that fails, until a restart. Here that read finds no ConfigMap, which is no failure. The watches, which
// find what is there later, begin when the API server responds.
func (s *Server) delayLookups(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet { // a review
			return next.RoundTrip(r)
		}
		if strings.HasSuffix(r.URL.Path, "/configmaps/extension-apiserver-authentication") {
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
		}
		select {
		case <-s.connected:
			return next.RoundTrip(r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
