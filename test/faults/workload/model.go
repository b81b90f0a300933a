// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
)

// Names that Kubernetes and the product give a meaning to.
const (
	DefaultAccount    = "default"
	RootCAConfigMap   = "kube-root-ca.crt"
	AutoCreatedLabel  = "sa-controller-manager/auto-created"
	LastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	ReplacesLabel     = "sa-controller-manager/replaces"
	ConfigurationName = "00-sa-controller-manager"
	CASecretName      = "sa-controller-manager-webhook-ca"
	KeyRingSecret     = "sa-controller-manager-key-ring"
	ProductManager    = "sa-controller-manager"
	LeaseName         = "sa-controller-manager"
)

// Model is what users have asked for and kube-apiserver has acknowledged: what there must
// be, whatever the product does. It has no lock; each of its namespaces belongs to one
// goroutine until all of them have ended.
type Model map[string]*Namespace

// Namespace is one that a user has made and not deleted.
type Namespace struct {
	Name       string
	Accounts   map[string]*Account
	Secrets    map[string]*TokenSecret
	Bystanders map[string]*Bystander

	spoiled bool // its root CA was edited
}

// Edited reports whether a user has edited what the account lists, or copied a Secret of it.
func (m Model) Edited(namespace, account string) bool {
	n := m[namespace]
	return n != nil && n.Accounts[account] != nil && n.Accounts[account].Edited
}

// Account is a live ServiceAccount that a user has made. Foreign and Pulls are lists of
// the user's, and Note is an annotation.
type Account struct {
	UID     types.UID
	Foreign []string
	Pulls   []string
	Note    string
	Since   time.Time
	// Edited: the user has taken references to auto-created Secrets away, or copied such a Secret.
	Edited bool
}

// AwaitNextSecond waits until the next second. A Secret that is made before the caches of the product
// show the account may be filled for the previous one, and then goes as an orphan.
func (a *Account) AwaitNextSecond(ctx context.Context) {
	await.Sleep(ctx, time.Until(a.Since.Truncate(time.Second).Add(time.Second)))
}

// TokenSecret is one that a user has made and not deleted, or an auto-created one that the account
// listed when a user edited the list.
type TokenSecret struct {
	UID     types.UID
	Account string
	// Owner is the account that lived when the Secret was made.
	Owner types.UID
	Extra string // what the user keeps in it beside the token
}

// usersSecrets are the names of the account's Secrets that a user has made, sorted.
func (n *Namespace) usersSecrets(account string) []string {
	var names []string
	for name, secret := range n.Secrets {
		if secret.Account == account && n.SameOwner(secret) && !IsOwnName(account, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Bystander is a Secret of another type, or a ConfigMap: none of the product's business.
type Bystander struct {
	UID    types.UID
	Secret bool
	Value  string
}

// NewNamespace returns a namespace with nothing in it.
func NewNamespace(name string) *Namespace {
	return &Namespace{Name: name, Accounts: map[string]*Account{}, Secrets: map[string]*TokenSecret{}, Bystanders: map[string]*Bystander{}}
}

// SameOwner reports whether the Secret belongs to an account that has lived ever since.
func (n *Namespace) SameOwner(secret *TokenSecret) bool {
	account := n.Accounts[secret.Account]
	return account != nil && account.UID == secret.Owner
}

// Call is one Pod and what became of it.
type Call struct {
	Begun, Ended    time.Time
	Namespace, Name string
	Err             error
	// Lacks says what the Pod was not given, "" if it has everything.
	Lacks string
	// Unwanted: it names an account that there is not, so that it has to be refused.
	Unwanted bool
	// AccountSince is when its account, or its namespace, was made.
	AccountSince time.Time
}

// lacks looks at an admitted Pod: its account and its projected token.
func lacks(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName != DefaultAccount {
		return "account"
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ServiceAccountToken != nil && mounted(pod, volume.Name) {
				return ""
			}
		}
	}
	return "token"
}

func mounted(pod *corev1.Pod, volume string) bool {
	for _, container := range pod.Spec.Containers {
		found := false
		for _, mount := range container.VolumeMounts {
			found = found || mount.Name == volume
		}
		if !found {
			return false
		}
	}
	return true
}

// ownName is how token controllers name the Secrets that they make.
var ownName = regexp.MustCompile(`-token-[a-z0-9]{5}$`)

// IsOwnName reports whether a token controller names a Secret of the account so.
func IsOwnName(account, secret string) bool {
	return len(secret) == len(account)+len("-token-")+5 && secret[:len(account)] == account && ownName.MatchString(secret)
}

// Owner is the UID that a token Secret says it belongs to.
func Owner(secret *corev1.Secret) types.UID {
	return types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])
}

// Mode is the product's --token-secrets.
type Mode string

const (
	// Auto makes a token Secret for each account.
	Auto Mode = "auto"
	// Manual fills those that users make.
	Manual Mode = "manual"
)

// ModeOf is the mode of a run: that of one seed in three is Manual.
func ModeOf(seed uint64) Mode {
	if seed%3 == 0 {
		return Manual
	}
	return Auto
}

// OwnSecrets is how many auto-created Secrets each account has.
func (m Mode) OwnSecrets() int {
	if m == Auto {
		return 1
	}
	return 0
}

const (
	// podPace is five Pods a second, whether or not those before have been answered.
	podPace = 200 * time.Millisecond
	// podTimeout is longer than kube-apiserver waits for a webhook.
	podTimeout = 15 * time.Second
	// freshEvery is how often a Pod comes at the same moment as its namespace, unwantedEvery how often one must be
	// refused.
	freshEvery    = 10
	unwantedEvery = 7
)

// podUser creates Pods and writes down what became of each.
type podUser struct {
	Client

	prefix     string
	namespaces []*Namespace
	first      time.Time // when the first one was there, with its account
	since      time.Time // the same for the newest one
	pending    sync.WaitGroup

	mu    sync.Mutex
	calls []Call
}

func (u *podUser) run(ctx context.Context, w *Workload) {
	defer u.pending.Wait()
	pace := time.NewTicker(podPace)
	defer pace.Stop()
	for i := 0; ; i++ {
		if i%freshEvery == 0 {
			if err := u.fresh(ctx); err != nil {
				if ctx.Err() == nil {
					w.fail(err)
				}
				return
			}
			w.count()
		}
		// Old ones and the newest alternate.
		n, since := u.namespaces[0], u.first
		if i%2 == 0 {
			n, since = u.namespaces[len(u.namespaces)-1], u.since
		}
		w.count()
		one := Call{Namespace: n.Name, Name: fmt.Sprintf("pod-%d", i), AccountSince: since, Unwanted: i%unwantedEvery == 1}
		u.pending.Go(func() { u.call(context.WithoutCancel(ctx), one) })
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}

func (u *podUser) fresh(ctx context.Context) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*RestartTimeout)
	defer cancel()
	n := NewNamespace(fmt.Sprintf("%s-%d", u.prefix, len(u.namespaces)))
	if err := u.CreateNamespace(limit, n.Name); err != nil {
		return err
	}
	u.namespaces, u.since = append(u.namespaces, n), time.Now()
	if u.first.IsZero() {
		u.first = u.since
	}
	return nil
}

// call asks once, and has the Pod go again.
func (u *podUser) call(ctx context.Context, one Call) {
	account := ""
	if one.Unwanted {
		account = "nobody"
	}
	u.CreatePod(ctx, &one, NewPod(one.Name, account), metav1.CreateOptions{})
	u.mu.Lock()
	u.calls = append(u.calls, one)
	u.mu.Unlock()
	if one.Err == nil {
		limit, cancel := context.WithTimeout(ctx, podTimeout)
		defer cancel()
		_ = u.CoreV1().Pods(one.Namespace).Delete(limit, one.Name, *metav1.NewDeleteOptions(0)) // nobody minds it
	}
}

// CreatePod creates the Pod of a call, and notes what became of that.
func (c Client) CreatePod(ctx context.Context, call *Call, pod *corev1.Pod, options metav1.CreateOptions) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	call.Begun = time.Now()
	admitted, err := c.CoreV1().Pods(call.Namespace).Create(ctx, pod, options)
	call.Ended, call.Err = time.Now(), err
	if err == nil && !call.Unwanted {
		call.Lacks = lacks(admitted)
	}
}

// NewPod names an account, or none.
func NewPod(name, account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
}
