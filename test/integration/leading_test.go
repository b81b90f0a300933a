// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/integration/faultproxy"
)

// leads is what a manager logs once it works.
const leads = "Controller starts"

// TestLeaderElection covers two replicas and the way from one to the other.
func TestLeaderElection(t *testing.T) {
	c := sharedControlPlane(t)
	const handOver = 3 * time.Second
	flags := []string{
		"--token-secrets=auto", "--leader-elect=true", "--leader-elect-resource-name=two-replicas",
		// A candidate looks at the Lease every 1.0 to 2.2 times this.
		"--leader-elect-retry-period=500ms",
	}
	first := c.manage(t, flags...)
	if err := first.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	second := c.manage(t, flags...)
	holder := c.awaitLease(t, "two-replicas", func(holder string) bool { return holder != "" })
	if !strings.Contains(first.Logs(), holder) {
		t.Errorf("the Lease is held by %q, which is not the first one", holder)
	}
	namespace := c.namespace(t)
	own := c.awaitOwn(t, namespace, "default")
	if strings.Contains(second.Logs(), leads) {
		t.Fatal("both work")
	}

	begun := time.Now()
	stopped := make(chan time.Time, 1)
	go func() {
		first.stop(t)
		stopped <- time.Now()
	}()
	if err := second.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	await.Within(t, "the hand-over", time.Since(begun), handOver)
	<-stopped
	now := c.awaitLease(t, "two-replicas", func(now string) bool { return now != holder && now != "" })
	if !strings.Contains(second.Logs(), now) {
		t.Errorf("the Lease is held by %q, which is not the second one", now)
	}
	c.createAccount(t, namespace, "someone")
	c.accepted(t, c.awaitOwn(t, namespace, "someone"), c.getAccount(t, namespace, "someone"))
	if again := c.awaitOwn(t, namespace, "default"); again.UID != own.UID {
		t.Error("the second one has replaced a Secret of the first one")
	}

	// The last one gives the Lease away too.
	second.stop(t)
	c.awaitLease(t, "two-replicas", func(now string) bool { return now == "" })
}

// TestLeaseIsLost covers the other way from one leader to the next: the first one
// cannot renew, and stops its controllers at once rather than to work beside the second
// one. It leads again when its turn comes.
func TestLeaseIsLost(t *testing.T) {
	c := sharedControlPlane(t)
	flags := append(shortLease("lost"), "--token-secrets=auto")
	proxy := c.proxy(t)
	first := c.manageThrough(t, proxy, flags...)
	if err := first.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	second := c.manage(t, flags...)
	namespace := c.namespace(t)
	c.awaitOwn(t, namespace, "default")

	// It still works, and has a write under way, when it loses the Lease.
	references := faultproxy.On("patch", "serviceaccounts").In(namespace)
	proxy.Use(
		&faultproxy.Rule{Match: faultproxy.On("", "leases"), Fault: faultproxy.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		&faultproxy.Rule{Match: references, Fault: faultproxy.Hold(nil, faultproxy.Forward)},
	)
	account := c.createAccount(t, namespace, "someone")
	if err := second.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	contains(t, first.Logs(), "Controllers have stopped, waiting to lead again")
	c.awaitOneOf(t, namespace, "someone")
	c.accepted(t, c.awaitOwn(t, namespace, "someone"), account)

	proxy.Use()
	works := strings.Count(first.Logs(), leads)
	second.stop(t)
	poll(t, "await that the first one leads again", func() error {
		if now := strings.Count(first.Logs(), leads); now == works {
			return errors.New("no controller has started again")
		}
		return nil
	})
	another := c.createAccount(t, namespace, "another")
	c.accepted(t, c.awaitOwn(t, namespace, "another"), another)
}

// awaitOneOf returns once an account has one Secret of ours, which it references.
func (c *controlPlane) awaitOneOf(t *testing.T, namespace, account string) {
	t.Helper()
	own := c.awaitOwn(t, namespace, account)
	c.awaitSecrets(t, namespace, func(secrets []*corev1.Secret) error {
		for _, secret := range secrets {
			if secret.Annotations[corev1.ServiceAccountNameKey] == account && secret.Name != own.Name {
				return fmt.Errorf("%q is there beside %q", secret.Name, own.Name)
			}
		}
		return nil
	})
}

// awaitLease returns who holds a Lease once that is who is wanted.
func (c *controlPlane) awaitLease(t *testing.T, name string, wanted func(holder string) bool) string {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.client.CoordinationV1().RESTClient(), "leases", metav1.NamespaceSystem, fields.Everything())
	var holder string
	_, err := await.Objects(limited(t), lw, &coordinationv1.Lease{}, one(name, func(lease *coordinationv1.Lease) error {
		holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		if !wanted(holder) {
			return fmt.Errorf("it is held by %q", holder)
		}
		return nil
	}))
	if err != nil {
		t.Fatalf("await Lease %s: %v", name, err)
	}
	return holder
}

// TestSIGTERMUnderLoad covers case 66: what is under way is finished, the process
// ends in time, and the next one does the rest.
func TestSIGTERMUnderLoad(t *testing.T) {
	c := sharedControlPlane(t)
	first := c.manage(t, "--token-secrets=auto")
	namespace := c.namespace(t)
	account := c.createAccount(t, namespace, "someone")
	const total = 300
	created := make(chan struct{})
	go func() {
		defer close(created)
		for i := range total {
			c.createStubbornly(t, tokenSecret(namespace, fmt.Sprintf("mine-%d", i), "someone"))
		}
	}()
	c.awaitSecrets(t, namespace, atLeastFilled(total/10))
	first.stop(t)
	<-created
	secrets := c.awaitSecrets(t, namespace, atLeastFilled(0))
	filled := 0
	for _, secret := range secrets {
		if keys := len(secret.Data); keys != 0 && keys != 3 {
			t.Errorf("secret %q is filled by half: %d keys", secret.Name, keys)
		}
		if len(secret.Data) == 3 {
			filled++
		}
	}
	if filled >= total {
		t.Errorf("all were filled before the end: nothing is proved")
	}
	c.manage(t, "--token-secrets=auto")
	c.awaitSecrets(t, namespace, atLeastFilled(total+2))
	c.accepted(t, c.awaitFilled(t, namespace, "mine-299"), account)
}
