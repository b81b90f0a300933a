// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/reissue"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/paging"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/tokens"
)

const (
	// probeSeconds is the least that kube-apiserver issues a token for.
	probeSeconds = 600
	// maxNames is how many Secrets of a key are listed by name. All are counted.
	maxNames = 1000
)

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

// Find looks up all kube-apiservers of the cluster, each at its own address, unless Others has them. One may have
// joined since the last time. hosts are those on which one was ever seen. If fewer addresses are found, the error names
// the hosts that are not asked: what one kube-apiserver says about a key says nothing about the others. Those that
// are found can be asked nevertheless. Hosts of without do not count.
func (c *Cluster) Find(ctx context.Context, hosts []string, without ...string) error {
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return slices.Contains(without, host) })
	others := c.Others
	if c.dialled {
		others = nil
	}
	asked := 1 + len(others)
	dials := len(hosts) > 1 && len(others) == 0 && c.Dial != nil
	if dials {
		var err error
		if others, err = c.dialAll(ctx); err != nil {
			return err
		}
		asked = len(others) // the first one is among them
	}
	c.Others, c.dialled = others, dials
	if asked < len(hosts) {
		return &ring.Refusal{
			Reason: fmt.Sprintf("kube-apiserver runs on %d hosts, and only %d can be asked: not on %s",
				len(hosts), max(asked, 1), strings.Join(c.unasked(ctx, hosts), ", ")),
			Remedy: "name each of them with --apiserver or, if a host is gone for good, give --without-host=NAME once, keys forget NAME forever",
			Later:  true, // one may restart
		}
	}
	return nil
}

// unasked returns the hosts whose Node has none of the addresses that are asked, or all if that leaves none.
func (c *Cluster) unasked(ctx context.Context, hosts []string) []string {
	away := slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, host, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Status.Addresses, func(address corev1.NodeAddress) bool {
			return slices.ContainsFunc(c.Others, func(server APIServer) bool {
				at, err := url.Parse(server.URL)
				return err == nil && at.Hostname() == address.Address
			})
		})
	})
	if len(away) == 0 {
		return []string{"one of " + strings.Join(hosts, ", ")}
	}
	return away
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
		return append([]APIServer{{URL: "the kube-apiserver of --kubeconfig", Client: c.Client}}, c.Others...)
	}
	return append([]APIServer{{URL: "kube-apiserver", Client: c.Client}}, c.Others...)
}

// Accepts returns nil if every kube-apiserver accepts a short token that is signed with key (package
// keyprobe). The error says what to do.
func (c *Cluster) Accepts(ctx context.Context, key ring.Key) error {
	account, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).Get(ctx, c.Account, metav1.GetOptions{})
	if err != nil {
		return notAccepted(key, fmt.Errorf("get service account %s/%s to prove a key with: %w", c.Namespace, c.Account, err))
	}
	if err := keyprobe.Prove(ctx, c.Client, c.Issuer, account, key.Private); err != nil {
		return notAccepted(key, err)
	}
	for _, other := range c.Others {
		if err := keyprobe.Prove(ctx, other.Client, c.Issuer, account, key.Private); err != nil {
			return notAccepted(key, fmt.Errorf("%s: %w", other.URL, err))
		}
	}
	return nil
}

// SigningKeyIDs returns the IDs of the keys that kube-apiservers sign bound tokens with, and which of them
// does.
func (c *Cluster) SigningKeyIDs(ctx context.Context) (map[string]string, error) {
	ids := map[string]string{}
	for _, server := range c.all() {
		id, err := c.signingKeyID(ctx, server.Client)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", server.URL, err)
		}
		ids[id] = server.URL
	}
	return ids, nil
}

func (c *Cluster) signingKeyID(ctx context.Context, client kubernetes.Interface) (string, error) {
	answer, err := client.CoreV1().ServiceAccounts(c.Namespace).CreateToken(ctx, c.Account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(probeSeconds))},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token of service account %s/%s, to see which key kube-apiserver signs with: %w",
			c.Namespace, c.Account, err)
	}
	token, err := tokens.Inspect(answer.Status.Token)
	if err != nil {
		return "", fmt.Errorf("look at a token of service account %s/%s: %w", c.Namespace, c.Account, err)
	}
	return token.KeyID, nil
}

// Uses has the token Secrets of each key. The key "" stands for tokens without a key ID that no key of
// the ring has signed.
type Uses struct {
	counts map[string]int
	names  map[string][]string
	// involved are the Secrets of a re-issue: their key is retired, or they replace one of those.
	involved []*tokensecrets.TokenSecret
}

// Count returns the number of token Secrets with a key ID.
func (u *Uses) Count(id string) int { return u.counts[id] }

// Names returns those Secrets as namespace/name, at most a thousand.
func (u *Uses) Names(id string) []string { return u.names[id] }

// Others returns the IDs of the keys that a ring does not have, those with most Secrets first.
func (u *Uses) Others(ring *signing.Ring) []string {
	var others []string
	for id := range u.counts {
		if ring.Role(id) == "" {
			others = append(others, id)
		}
	}
	slices.SortFunc(others, func(a, b string) int { return cmp.Or(cmp.Compare(u.counts[b], u.counts[a]), strings.Compare(a, b)) })
	return others
}

// Uses reads all token Secrets, a page at a time, and counts them by key. A token without a key ID
// counts for the key that signed it.
func (c *Cluster) Uses(ctx context.Context, ring *signing.Ring) (*Uses, error) {
	uses := &Uses{counts: map[string]int{}, names: map[string][]string{}}
	options := metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String(),
	}
	const what = "token secrets, to see which keys they need"
	return uses, paging.Each(ctx, what, c.Client.CoreV1().Secrets(metav1.NamespaceAll).List, options, func(page *corev1.SecretList) error {
		for i := range page.Items {
			uses.add(&page.Items[i], ring)
		}
		return nil
	})
}

func (u *Uses) add(secret *corev1.Secret, ring *signing.Ring) {
	id, ok := keyIDOf(string(secret.Data[corev1.ServiceAccountTokenKey]), ring)
	observed := tokensecrets.Observe(secret)
	if ring.Role(id) == signing.Retired || observed.Predecessor != (tokensecrets.Predecessor{}) {
		u.involved = append(u.involved, observed)
	}
	if !ok {
		return
	}
	u.counts[id]++
	if len(u.names[id]) < maxNames {
		u.names[id] = append(u.names[id], secret.Namespace+"/"+secret.Name)
	}
}

// Reissues returns the progress of the re-issue of each Secret with a retired key of the ring, by
// namespace/name.
func (c *Cluster) Reissues(ctx context.Context, uses *Uses, ring *signing.Ring) (map[string]reissue.Progress, error) {
	if len(uses.involved) == 0 {
		return nil, nil
	}
	accounts, err := c.accountsOf(ctx, uses.involved)
	if err != nil {
		return nil, err
	}
	reissues := map[string]reissue.Progress{}
	account := func(name cache.ObjectName) *corev1.ServiceAccount { return accounts[name] }
	for _, candidate := range reissue.Candidates(uses.involved, account, ring) {
		reissues[candidate.Secret.ObjectName().String()] = candidate.Progress
	}
	return reissues, nil
}

// accountsOf returns the accounts of Secrets. It reads all accounts, a page at a time.
func (c *Cluster) accountsOf(ctx context.Context, secrets []*tokensecrets.TokenSecret) (
	map[cache.ObjectName]*corev1.ServiceAccount, error,
) {
	accounts := map[cache.ObjectName]*corev1.ServiceAccount{}
	for _, secret := range secrets {
		accounts[secret.Account()] = nil
	}
	const what = "service accounts, to see whose token secrets hold a retired key"
	list := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List
	return accounts, paging.Each(ctx, what, list, metav1.ListOptions{}, func(page *corev1.ServiceAccountList) error {
		for i := range page.Items {
			name := cache.MetaObjectToName(&page.Items[i])
			if _, wanted := accounts[name]; wanted {
				accounts[name] = page.Items[i].DeepCopy()
			}
		}
		return nil
	})
}

// keyIDOf returns the ID of the key that a token needs, or "" if it is unknown. ok is false if
// kube-apiserver could not accept the token.
func keyIDOf(token string, ring *signing.Ring) (id string, ok bool) {
	token = tokens.Canonical(token)
	decoded, err := tokens.Inspect(token)
	if err != nil {
		return "", false
	}
	if decoded.KeyID != "" {
		return decoded.KeyID, true
	}
	for _, key := range ring.All() {
		if _, err := tokens.VerifyLegacy(token, signing.NewKeyring(signing.NewRing(key))); err == nil {
			return key.ID, true
		}
	}
	return "", true
}
