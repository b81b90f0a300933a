// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/paging"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// probeSeconds is the least that kube-apiserver issues a token for.
const probeSeconds = 600

// Cluster asks kube-apiservers which keys they accept and which keys are in use.
type Cluster struct {
	Client kubernetes.Interface
	// Issuer is the apiserver's --service-account-issuer, "" to have it looked up.
	Issuer string
	// Others are further kube-apiservers of the cluster, which must accept a key too.
	Others []APIServer
	// Namespace and Account name a ServiceAccount to try tokens with.
	Namespace, Account string
	// Dial connects to a kube-apiserver at its own address. Nil means that Others are all.
	Dial func(url string) (kubernetes.Interface, error)

	dialled bool // Others are what Find has dialled
}

// APIServer is one of several kube-apiservers.
type APIServer struct {
	URL    string
	Client kubernetes.Interface
}

// Find looks up all kube-apiservers of the cluster, each at its own address, unless Others names them. One may have
// joined since the last time. hosts are those on which one was ever seen. The error names the hosts that are not
// asked, but for those of without: what one kube-apiserver says about a key says nothing about the others. Those that
// are found can be asked nevertheless. Client does not count beside Others: it may be any of them, by a load balancer.
func (c *Cluster) Find(ctx context.Context, hosts []string, without ...string) error {
	if c.Dial != nil && (c.dialled || len(hosts) > 1 && len(c.Others) == 0) {
		others, err := c.dialAll(ctx)
		if err != nil {
			return err
		}
		c.Others, c.dialled = others, true
	}
	asked := c.Others
	if len(asked) == 0 {
		asked = c.all()
	}
	owners, unknown, left := c.owners(ctx, hosts), sets.New[string](), sets.New(hosts...)
	for _, server := range asked {
		host, name := "", strings.TrimSuffix(server.URL, "/")
		if at, err := url.Parse(server.URL); err == nil {
			host = owners[at.Hostname()]
		}
		if host == "" && len(asked) > 1 {
			if own, err := apiservers.OwnAddress(ctx, server.Client); err == nil {
				host, name = owners[own.Addr().String()], own.String() // one that has two URLs is one
			}
		}
		if left.Delete(host); host == "" {
			unknown.Insert(name)
		}
	}
	if left.Delete(without...); len(left) > len(unknown) {
		which := strings.Join(sets.List(left), ", ")
		if len(unknown) > 0 {
			which = fmt.Sprintf("%d of %s", len(left)-len(unknown), which)
		}
		return &ring.Refusal{
			Reason: fmt.Sprintf("kube-apiserver runs on %d hosts, and only %d can be asked: not on %s",
				len(hosts), len(hosts)-len(left)+len(unknown), which),
			Remedy: "name each of them with --apiserver or, if a host is gone for good, give --without-host=NAME once, keys forget " +
				"NAME forever",
			Later: true, // one may restart
		}
	}
	return nil
}

// Unasked is the finding for an error of Find.
func Unasked(err error) check.Finding {
	why := err.Error()
	if refusal, ok := errors.AsType[*ring.Refusal](err); ok {
		why = refusal.Reason // the finding has a remedy
	}
	return check.Key(check.APIServerNotAsked, check.KeyArgs{Host: "a kube-apiserver", Why: why}).Finding
}

// owners returns the hosts by name and by the addresses of their Nodes, as far as these are known.
func (c *Cluster) owners(ctx context.Context, hosts []string) map[string]string {
	owners := map[string]string{}
	for _, host := range hosts {
		owners[host] = host
		if node, err := c.Client.CoreV1().Nodes().Get(ctx, host, metav1.GetOptions{}); err == nil && len(c.Others) > 0 {
			for _, address := range node.Status.Addresses {
				owners[address.Address] = host
			}
		}
	}
	return owners
}

// dialAll returns the kube-apiservers behind the Service kubernetes.
func (c *Cluster) dialAll(ctx context.Context) ([]APIServer, error) {
	urls, err := apiservers.Addresses(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	var found []APIServer
	for _, url := range urls {
		server := APIServer{URL: url}
		if i := slices.IndexFunc(c.Others, func(known APIServer) bool { return known.URL == url }); i >= 0 {
			server = c.Others[i]
		} else if server.Client, err = c.Dial(url); err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		found = append(found, server)
	}
	return found, nil
}

// all returns the kube-apiservers to ask, each at its own address if that is known.
func (c *Cluster) all() []APIServer {
	if len(c.Others) > 0 {
		return append([]APIServer{{URL: "the kube-apiserver of the kubeconfig", Client: c.Client}}, c.Others...)
	}
	return []APIServer{{URL: "kube-apiserver", Client: c.Client}}
}

// Accepts returns nil if every kube-apiserver accepts a short token that is signed with key. keyprobe.IsRefusal of
// the error reports whether one has refused it.
func (c *Cluster) Accepts(ctx context.Context, key signing.Key) error {
	account, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).Get(ctx, c.Account, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get service account %s/%s to prove a key with: %w", c.Namespace, c.Account, err)
	}
	for _, server := range c.all() {
		if err := keyprobe.Prove(ctx, server.Client, c.Issuer, account, key.Private); err != nil {
			if len(c.Others) > 0 {
				err = fmt.Errorf("%s: %w", server.URL, err)
			}
			return err
		}
	}
	return nil
}

// SigningKeyIDs returns the IDs of the keys that kube-apiservers sign bound tokens with, and which of them
// does. With an error they are those of the others.
func (c *Cluster) SigningKeyIDs(ctx context.Context) (map[string]string, error) {
	ids, failed := map[string]string{}, error(nil)
	for _, server := range c.all() {
		answer, err := server.Client.CoreV1().ServiceAccounts(c.Namespace).CreateToken(ctx, c.Account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(probeSeconds))},
		}, metav1.CreateOptions{})
		var token tokens.Token
		if err == nil {
			token, err = tokens.Inspect(answer.Status.Token)
		}
		if err != nil {
			failed = errors.Join(failed,
				fmt.Errorf("%s: request a token of service account %s/%s, to see which key kube-apiserver signs with: %w",
					server.URL, c.Namespace, c.Account, err))
			continue
		}
		ids[token.KeyID] = server.URL
	}
	return ids, failed
}

// Uses reads all token Secrets, a page at a time, and counts them by key ID. A token without one counts for the key
// that signed it.
func (c *Cluster) Uses(ctx context.Context, ring *signing.Ring) (map[string]int, error) {
	uses := map[string]int{}
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()}
	const what = "token secrets, to see which keys they need"
	return uses, paging.Each(ctx, what, c.Client.CoreV1().Secrets(metav1.NamespaceAll).List, options, func(page *corev1.SecretList) error {
		for i := range page.Items {
			uses[keyIDOf(string(page.Items[i].Data[corev1.ServiceAccountTokenKey]), ring)]++
		}
		return nil
	})
}

// keyIDOf returns the ID of the key that a token needs, or "" if there is none.
func keyIDOf(token string, ring *signing.Ring) string {
	token = tokens.Canonical(token)
	decoded, err := tokens.Inspect(token)
	if err != nil {
		return ""
	}
	if decoded.KeyID != "" {
		return decoded.KeyID
	}
	keys := ring.KeySet().All()
	i, err := tokens.SignedWith(token, keys)
	if err != nil {
		return ""
	}
	return keys[i].ID
}
