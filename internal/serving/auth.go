// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sa-controller-manager/internal/serving/settings"
)

const (
	// reviewTimeout limits one review by the API server, as in KCM.
	reviewTimeout = 10 * time.Second

	// authenticationConfigMap is where kube-apiserver publishes the CAs of clients and proxies
	// (pkg/controlplane/controller/clusterauthenticationtrust).
	authenticationConfigMap = "extension-apiserver-authentication"
)

// reviewBackoff is the backoff of failed reviews, as in KCM.
func reviewBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// authFilter authenticates and authorizes requests through the API server. Apart from the lookups
// it sends nothing before the first request that needs it.
type authFilter struct {
	userAgent string

	authn authenticator.Request
	authz authorizer.Authorizer
	// clientCA has the CAs of clients and proxies; nil if there are none.
	clientCA      dynamiccertificates.CAContentProvider
	requestHeader *authenticatorfactory.RequestHeaderConfig
	// followers reload files, lookups watch the ConfigMap.
	followers, lookups []runnable
}

func newAuthFilter(config *Config) (*authFilter, error) {
	f := &authFilter{userAgent: config.Name}
	if err := f.authenticate(&config.Authentication); err != nil {
		return nil, err
	}
	return f, f.authorize(&config.Authorization)
}

// wrap authenticates the client, authorizes the path, and then calls h. Refusals are those of every
// Kubernetes component: 401 for bad credentials, 403 for no permission, also without credentials.
func (f *authFilter) wrap(h http.Handler) http.Handler {
	h = filters.WithAuthorization(h, f.authz, scheme.Codecs)
	h = filters.WithAuthentication(h, f.authn, filters.Unauthorized(scheme.Codecs), nil, f.requestHeader)
	h = filters.WithRequestInfo(h, &request.RequestInfoFactory{})
	return redactQuery(filters.WithCacheControl(h))
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

func (f *authFilter) authenticate(o *settings.Authentication) error {
	client, err := f.delegate(o.Kubeconfig, 0)
	if err != nil {
		return fmt.Errorf("--authentication-kubeconfig: %w", err)
	}
	config := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff:      reviewBackoff(),
		CacheTTL:                 o.CacheTTL,
	}
	lookup := client
	if o.SkipLookup {
		lookup = nil
	}
	if client != nil {
		config.TokenAccessReviewClient = client.AuthenticationV1()
	}
	if config.ClientCertificateCAContentProvider, err = f.callersCA(o, lookup); err != nil {
		return err
	}
	if f.requestHeader, err = f.requestHeaderConfig(&o.RequestHeader, lookup); err != nil {
		return err
	}
	config.RequestHeaderConfig = f.requestHeader
	f.joinCAs(config.ClientCertificateCAContentProvider)
	if f.authn, _, err = config.New(); err != nil {
		return fmt.Errorf("build authentication of the secure port: %w", err)
	}
	return nil
}

// joinCAs sets clientCA to the CAs of clients and proxies.
func (f *authFilter) joinCAs(clients dynamiccertificates.CAContentProvider) {
	var all []dynamiccertificates.CAContentProvider
	if clients != nil {
		all = append(all, clients)
	}
	if f.requestHeader != nil {
		all = append(all, f.requestHeader.CAContentProvider)
	}
	if len(all) > 0 {
		f.clientCA = dynamiccertificates.NewUnionCAContentProvider(all...)
	}
}

// callersCA returns the CA of the file, or else of the ConfigMap, or nil if there is no lookup.
func (f *authFilter) callersCA(o *settings.Authentication, lookup kubernetes.Interface) (dynamiccertificates.CAContentProvider, error) {
	if o.ClientCAFile != "" {
		return f.fileCA("client-ca", o.ClientCAFile, "client-ca-file")
	}
	if lookup == nil {
		return nil, nil
	}
	return f.publishedCA("client-ca", "client-ca-file", lookup)
}

// requestHeaderConfig returns the configuration of the flags if these name a CA, or else of the
// ConfigMap, or nil if there is no lookup.
func (f *authFilter) requestHeaderConfig(o *settings.RequestHeader,
	lookup kubernetes.Interface) (*authenticatorfactory.RequestHeaderConfig, error) {
	if o.ClientCAFile != "" {
		content, err := f.fileCA("request-header", o.ClientCAFile, "requestheader-client-ca-file")
		if err != nil {
			return nil, err
		}
		return &authenticatorfactory.RequestHeaderConfig{
			UsernameHeaders:     headerrequest.StaticStringSlice(o.UsernameHeaders),
			UIDHeaders:          headerrequest.StaticStringSlice(o.UIDHeaders),
			GroupHeaders:        headerrequest.StaticStringSlice(o.GroupHeaders),
			ExtraHeaderPrefixes: headerrequest.StaticStringSlice(o.ExtraHeaderPrefixes),
			CAContentProvider:   content,
			AllowedClientNames:  headerrequest.StaticStringSlice(o.AllowedNames),
		}, nil
	}
	if lookup == nil {
		return nil, nil
	}
	ca, err := f.publishedCA("request-header", "requestheader-client-ca-file", lookup)
	if err != nil {
		return nil, err
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(authenticationConfigMap, metav1.NamespaceSystem, lookup,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	f.lookups = append(f.lookups, asRunnable(headers))
	return &authenticatorfactory.RequestHeaderConfig{
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
		CAContentProvider:   ca,
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(headers.AllowedClientNames),
	}, nil
}

// fileCA follows the CA in a file.
func (f *authFilter) fileCA(purpose, path, flag string) (dynamiccertificates.CAContentProvider, error) {
	content, err := dynamiccertificates.NewDynamicCAContentFromFile(purpose, path)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	f.followers = append(f.followers, asRunnable(content))
	return content, nil
}

// publishedCA watches a CA in the ConfigMap. Until it has been read, no client certificate is
// valid.
func (f *authFilter) publishedCA(purpose, key string, client kubernetes.Interface) (dynamiccertificates.CAContentProvider, error) {
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController(purpose, metav1.NamespaceSystem, authenticationConfigMap, key, client)
	if err != nil {
		return nil, fmt.Errorf("follow %s of ConfigMap %s: %w", key, authenticationConfigMap, err)
	}
	f.lookups = append(f.lookups, asRunnable(ca))
	return ca, nil
}

func (f *authFilter) authorize(o *settings.Authorization) error {
	always, err := path.NewAuthorizer(o.AlwaysAllowPaths)
	if err != nil {
		return fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	// system:masters is always authorized, as in KCM.
	authorizers := []union.NamedAuthorizer{
		{AuthorizerName: "system:masters", Authorizer: authorizerfactory.NewPrivilegedGroups("system:masters")},
		{AuthorizerName: "--authorization-always-allow-paths", Authorizer: always},
	}
	client, err := f.delegate(o.Kubeconfig, reviewTimeout)
	if err != nil {
		return fmt.Errorf("--authorization-kubeconfig: %w", err)
	}
	if client != nil {
		asked, err := authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: client.AuthorizationV1(),
			AllowCacheTTL:             o.AllowCacheTTL,
			DenyCacheTTL:              o.DenyCacheTTL,
			WebhookRetryBackoff:       reviewBackoff(),
		}.New()
		if err != nil {
			return fmt.Errorf("build authorization of the secure port: %w", err)
		}
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: "SubjectAccessReview", Authorizer: asked})
	}
	f.authz, err = union.New(authorizers...)
	return err
}

// delegate returns a client for the API server that reviews clients, from the kubeconfig or,
// without one, from the Pod's environment. It returns nil outside of a Pod.
func (f *authFilter) delegate(kubeconfig string, timeout time.Duration) (kubernetes.Interface, error) {
	config, err := delegateConfig(kubeconfig)
	if err != nil || config == nil {
		return nil, err
	}
	// A rate limit would delay every request to the secure port.
	config.QPS, config.Timeout = -1, timeout
	return kubernetes.NewForConfig(rest.AddUserAgent(config, f.userAgent))
}

func delegateConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, nil
	}
	return config, err
}
