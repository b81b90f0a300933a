// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
)

// nudgeInterval is the interval at which kube-apiservers are asked whether they still accept a removed
// key. Each time a new token is used: kube-apiserver caches the review of a token for 10 s.
const nudgeInterval = 500 * time.Millisecond

// Find looks up all kube-apiservers of the cluster, each at its own address, unless Others has them.
// It returns an error with the names of the hosts if it finds fewer addresses than hosts: what one
// kube-apiserver says about a key says nothing about the others.
func (c *Cluster) Find(ctx context.Context) error {
	if c.found {
		return nil
	}
	hosts, err := registration.LiveHosts(ctx, c.Client, time.Now())
	if err != nil {
		return err
	}
	others, asked := c.Others, 1+len(c.Others)
	if len(hosts) > 1 && len(others) == 0 && c.Dial != nil {
		if others, err = c.endpoints(ctx); err != nil {
			return err
		}
		asked = len(others) // the first one is among them
	}
	if asked < len(hosts) {
		return fmt.Errorf("kube-apiserver runs on %d hosts (%s), and only %d can be asked", len(hosts), strings.Join(hosts, ", "), max(asked, 1))
	}
	c.Others, c.found = others, true
	return nil
}

// endpoints returns the kube-apiservers behind the Service kubernetes.
func (c *Cluster) endpoints(ctx context.Context) ([]APIServer, error) {
	slices, err := c.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return nil, fmt.Errorf("look up the addresses of kube-apiserver: %w", err)
	}
	var found []APIServer
	for _, slice := range slices.Items {
		if len(slice.Ports) != 1 || slice.Ports[0].Port == nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				url := "https://" + net.JoinHostPort(address, strconv.Itoa(int(*slice.Ports[0].Port)))
				client, err := c.Dial(url)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", url, err)
				}
				found = append(found, APIServer{URL: url, Client: client})
			}
		}
	}
	return found, nil
}

// everyAPIServer refuses a step if a kube-apiserver would not be asked.
func (o *Operator) everyAPIServer(ctx context.Context, breaks string) error {
	if o.Cluster == nil {
		return nil
	}
	if err := o.Cluster.Find(ctx); err != nil {
		return &rotation.Refusal{Reason: err.Error(), Remedy: "name each of them with --apiserver", Breaks: breaks}
	}
	return nil
}

// all returns the kube-apiservers to ask, each at its own address if that is known.
func (c *Cluster) all() []APIServer {
	if len(c.Others) > 0 && c.found {
		return append([]APIServer{{URL: "the kube-apiserver of --kubeconfig", Client: c.Client}}, c.Others...)
	}
	return append([]APIServer{{URL: "kube-apiserver", Client: c.Client}}, c.Others...)
}

// AwaitRefused makes every kube-apiserver with an external signer fetch the key set immediately, and
// returns when each refuses a new token of the removed key. It waits for a signer whose ring still
// has the key until the ring is imported there.
func (o *Operator) AwaitRefused(ctx context.Context, key rotation.Key) error {
	private := key.Pair.Private()
	if o.Cluster == nil || private == nil {
		return nil
	}
	rings, err := tokenreissue.LivePublishedRings(ctx, o.Cluster.Client)
	if err != nil {
		return err
	}
	signer := false
	for _, ring := range rings {
		signer = signer || ring.Signer
	}
	if !signer {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("key %s has left the ring; kube-apiserver has key files of its own: bring them up to date and restart it on every node", key.ID), 0)
		}
		return nil
	}
	if err := o.Cluster.Find(ctx); err != nil {
		return fmt.Errorf("key %s has left the ring: %w: name each of them with --apiserver", key.ID, err)
	}
	for {
		waiting, err := o.Cluster.stillAccept(ctx, private)
		if err != nil {
			return fmt.Errorf("key %s has left the ring, and it cannot be seen whether kube-apiserver refuses it: %w", key.ID, err)
		}
		if len(waiting) == 0 {
			return nil
		}
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("key %s is still accepted by %s; the ring must be there too (keys import)", key.ID, strings.Join(waiting, ", ")), 0)
		}
		timer := o.Clock.NewTimer(nudgeInterval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("key %s has left the ring and is still accepted by %s: bring the ring there (keys import)", key.ID, strings.Join(waiting, ", "))
		}
	}
}

// stillAccept returns the kube-apiservers that do not refuse a new token of the key. It makes each of
// them fetch the key set first. The error says that the key does not sign any more.
func (c *Cluster) stillAccept(ctx context.Context, key *signing.PrivateKey) (accept []string, err error) {
	account, err := c.account(ctx)
	if err != nil {
		return []string{err.Error()}, nil //nolint:nilerr // it is asked again
	}
	for _, server := range c.all() {
		nudge(ctx, server)
		err := keyprobe.Prove(ctx, server.Client, c.Issuer, account, key)
		if _, away := errors.AsType[*signing.UnavailableError](err); away {
			return nil, err
		}
		if !keyprobe.IsRefusal(err) {
			accept = append(accept, server.URL)
		}
	}
	return accept, nil
}

// nudge presents a token with an unknown key ID, so that kube-apiserver fetches the key set
// immediately (pkg/serviceaccount/externaljwt/plugin/keycache.go). The answer does not matter.
func nudge(ctx context.Context, server APIServer) {
	encode := base64.RawURLEncoding.EncodeToString
	token := encode([]byte(`{"alg":"RS256","kid":"unknown-`+utilrand.String(20)+`"}`)) + "." + encode([]byte(`{"iss":"kubernetes/serviceaccount"}`)) + "." + encode(make([]byte, 256))
	_, _ = server.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
}
