// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"crypto"
	"errors"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/controllers/keyring/reissue"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/controllers/tokencontroller"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/accounttemplate"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/simulation/model"
)

var (
	key, nextKey = testkeys.Parse(testkeys.P256()), testkeys.Parse(testkeys.P256Other())
	ownKeys      = &checker.KeyRing{Keys: map[string]crypto.PublicKey{key.ID(): key.Public().Key, nextKey.ID(): nextKey.Public().Key}}
)

// keysInMemory is a signing.Store of the ring that all replicas share; each takes a change in its own time.
type keysInMemory struct {
	ring    atomic.Pointer[signing.Ring]
	changed chan *signing.Ring
}

func (s *keysInMemory) Load() *signing.Ring { return s.ring.Load() }

func (s *keysInMemory) Watch(ctx context.Context, changed func(*signing.Ring), _ func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case ring := <-s.changed:
			s.ring.Store(ring)
			changed(ring)
		}
	}
}

func (s *keysInMemory) Status() signing.StoreStatus { return signing.StoreStatus{} }

// verify says what is wrong with a token that the product has signed.
func (w *world) verify(token string) error {
	if w.revoked[checker.SignedWith(token)] {
		return errors.New("its key is revoked")
	}
	return w.signed(token)
}

// everywhere has each replica take a change in its own time; those that start later have it from the start.
func (w *world) everywhere(what string, take func(p *process)) {
	for _, p := range w.processes {
		if p == nil || p.down || p.manager == nil {
			continue
		}
		after := time.Duration(w.network.draw(what + p.client.name).Int64N(int64(5 * time.Second)))
		w.network.at(time.Now().Add(after), p.client.name+" "+what, func() { take(p) })
	}
}

func (w *world) takeRing(ring *signing.Ring) {
	w.ring.Store(ring)
	w.everywhere("takes the ring", func(p *process) { p.keys.changed <- ring })
}

// rotate retires the key. With revoke it is also revoked, a little later.
func (w *world) rotate(revoke bool, after time.Duration) {
	w.takeRing(signing.NewRing(nextKey.As(signing.Active), key.As(signing.Retired)))
	w.rotated = true
	if revoke {
		w.network.at(time.Now().Add(15*time.Second+after), "revocation", func() {
			w.revoked[key.ID()] = true
			w.takeRing(signing.NewRing(nextKey.As(signing.Active)).Without(map[string]bool{key.ID(): true}))
		})
	}
}

// deleteFilledElsewhere is an operator who has switched the second token controller off, and deletes what it has filled with
// a retired key, as an Event and docs/rotation.md say.
func (w *world) deleteFilledElsewhere() {
	time.Sleep(2 * acting)
	w.network.now(func() {
		for _, object := range w.server.Objects("secrets") {
			secret := tokensecrets.Observe(object.(*corev1.Secret))
			if secret.Predecessor.Name != "" && secret.TokenWriter == "kube-controller-manager" && secret.Token.KeyID() == key.ID() {
				w.remove("secrets", secret.Namespace, secret.Name)
			}
		}
	})
}

// reissuing is the part of the extras that re-issues Secrets after a rotation.
func (w *world) reissuing(p *process) func() []app.Part {
	return func() []app.Part {
		return []app.Part{{Name: "token-reissue", Phase: app.Leading, Build: func(part *app.Part) error {
			h := part.Host
			reissuer := reissue.New(reissue.Config{
				Client: h.Client, Informers: part.Informers, Ring: h.Keyring, Confirmed: h.Probe.Confirmed, Recorder: h.Recorder,
				Metrics: reissue.NewMetrics(h.Registry.MustRegister), Loops: h.Loops, Auto: w.mode == workload.Auto,
				MayReissue: func() error {
					if p.keys.Load() != w.ring.Load() {
						return errors.New("a newer key ring is published")
					}
					return nil
				},
			})
			h.Probe.Proven.Subscribe(func(string) { reissuer.QueueSurvey() })
			h.Keyring.Changed.Subscribe(func(*signing.Ring) { reissuer.QueueSurvey() })
			part.Run = reissuer.Run
			return nil
		}}}
	}
}

//go:linkname newRootCA sa-controller-manager/cmd/sa-controller-manager/app.(*Manager).newRootCA
func newRootCA(m *app.Manager, bundle *rootca.Bundle)

const overlap = time.Minute

// changeRootCA is an operator who puts another root CA into the file of each replica.
func (w *world) changeRootCA() {
	w.ca = anotherCA()
	if w.caKnown { // or else nothing was published before
		w.caChanged = time.Now()
	}
	bundle, err := rootca.ParseBundle(w.ca)
	if err != nil {
		panic(err)
	}
	w.everywhere("reads the root CA", func(p *process) { newRootCA(p.manager, bundle) })
}

// judgeCA wants both root CAs in what replicas publish during the overlap.
func (w *world) judgeCA(what, published string) {
	since := time.Since(w.caChanged)
	if w.caChanged.IsZero() || !strings.HasPrefix(published, "-----BEGIN") { // a policy has rewritten it
		return
	}
	if since < overlap && !strings.Contains(published, string(rootCA())) {
		w.violated(1, "%s: it has the new root CA alone, %v after the change", what, since)
	}
}

// judgeTrustBundles wants one ClusterTrustBundle with the root CA.
func (w *world) judgeTrustBundles(when string) {
	all := w.server.Objects("clustertrustbundles")
	if len(all) != 1 || all[0].(*certificatesv1.ClusterTrustBundle).Spec.TrustBundle != string(w.ca) {
		w.violated(1, "%s: there are %d ClusterTrustBundles, want one with the root CA", when, len(all))
	}
}

// template is what accounts look like that replicas create.
var template = func() *accounttemplate.Template {
	parsed, err := accounttemplate.Parse([]byte("schemaVersion: 1\nrules:\n- labels: {team: ours}\n"))
	if err != nil {
		panic(err)
	}
	return parsed
}()

// prepare gives a manager what it has no flag for but one with a file.
func (w *world) prepare(p *process) {
	accounts := reflect.ValueOf(p.manager).Elem().FieldByName("accounts")
	(*(**serviceaccount.Controller)(accounts.Addr().UnsafePointer())).Template = func() *accounttemplate.Template { return template }
	p.controller = controllerOf(p.manager)
	watched := reflect.ValueOf(p.manager).Elem().FieldByName("informers").Elem().FieldByName("watched")
	for i := range watched.Len() {
		store := sharedInformer(watched.Index(i).FieldByName("informer")).FieldByName("indexer").Elem().Elem().FieldByName("cacheStorage")
		inner := fieldOf[cache.ThreadSafeStore](store)
		*inner = ordered{*inner, &p.visited}
	}
}

// sharedInformer is what client-go has behind an informer: a typed one has it inside.
func sharedInformer(informer reflect.Value) reflect.Value {
	informer = informer.Elem().Elem()
	for !informer.FieldByName("processor").IsValid() {
		informer = informer.Field(0).Elem().Elem()
	}
	return informer
}

func fieldOf[T any](field reflect.Value) *T { return (*T)(field.Addr().UnsafePointer()) }

// controllerOf finds the token controller of a manager: a method of it is called when the ring has changed.
func controllerOf(m *app.Manager) *tokencontroller.Controller {
	for _, changed := range *fieldOf[[]func(*signing.Ring)](reflect.ValueOf(&m.Keyring.Changed).Elem().FieldByName("subscribers")) {
		name := runtime.FuncForPC(reflect.ValueOf(changed).Pointer()).Name()
		if strings.HasSuffix(name, "tokencontroller.(*Controller).ringChanged-fm") {
			method := *(**struct {
				_        uintptr
				receiver *tokencontroller.Controller
			})(unsafe.Pointer(&changed)) //nolint:gosec // a method value has its receiver there, and nothing else leads to it
			return method.receiver
		}
	}
	panic("the manager has no token controller")
}

// ordered is a cache that lists in the same order in each run, and counts what it has returned.
type ordered struct {
	cache.ThreadSafeStore

	visited *atomic.Int64
}

func (o ordered) List() []any { return o.get(o.ListKeys()) }

func (o ordered) ByIndex(index, value string) ([]any, error) {
	keys, err := o.IndexKeys(index, value)
	return o.get(keys), err
}

func (o ordered) Get(key string) (any, bool) {
	o.visited.Add(1)
	return o.ThreadSafeStore.Get(key)
}

func (o ordered) get(keys []string) []any {
	slices.Sort(keys)
	all := make([]any, 0, len(keys))
	for _, key := range keys {
		if one, ok := o.Get(key); ok {
			all = append(all, one)
		}
	}
	return all
}

// judgeLeftovers looks into the leader once all is quiet: what it keeps is of objects that are there, and its
// informers have as many handlers as in its first term.
func (w *world) judgeLeftovers() {
	p := w.processes[w.leader()]
	if p == nil || p.controller == nil || p.down {
		return
	}
	in := reflect.ValueOf(p.controller).Elem()
	for _, name := range []string{"written", "waiting", "created", "gone", "observed"} {
		kept := in.FieldByName(name)
		for kept.Kind() == reflect.Struct {
			kept = kept.FieldByIndex(mapIn(kept.Type()))
		}
		resource := map[bool]string{true: "secrets", false: "serviceaccounts"}[name == "written" || name == "waiting"]
		for _, key := range kept.MapKeys() {
			if namespace, name_ := key.Field(0).String(), key.Field(1).String(); w.server.Get(resource, namespace, name_) == nil {
				w.violated(10, "%s keeps something of %s %s/%s, which is gone, in %s", p.client.name, resource, namespace, name_, name)
			}
		}
	}
	listeners := sharedInformer(in.FieldByName("secretInformer")).FieldByName("processor").Elem().FieldByName("listeners").Len()
	if want := map[bool]int{true: 2, false: 1}[w.plan.rotates]; listeners > want {
		w.violated(10, "%s has %d handlers of token Secrets, want %d", p.client.name, listeners, want)
	}
	if most := int64(visits*w.commits + w.price.again[p.client.name]); p.visited.Load() > most {
		w.violated(10, "the listers of %s have visited %d objects for %d changes, want %d at most",
			p.client.name, p.visited.Load(), w.commits, most)
	}
}

// visits is how many objects listers may visit for each change, on average.
const visits = 64

// mapIn is the index of the map in an expectation, or of the expectation in what embeds it.
func mapIn(t reflect.Type) []int {
	for i := range t.NumField() {
		if kind := t.Field(i).Type.Kind(); kind == reflect.Map || t.Field(i).Anonymous {
			return []int{i}
		}
	}
	panic("no map in " + t.String())
}

// Secrets of a namespace that was there before the world began, by what the legacy token cleaner does about them.
const (
	oldNamespace = "old"
	longAgo      = "1999-06-01"
)

var oldSecrets = map[string]struct {
	labels, annotations map[string]string
	listed              bool
	want                string // "kept", "marked" or "deleted"
}{
	"an-account-keeps-it": {want: "kept", listed: true},
	"unused":              {want: "marked", listed: true},
	"used-long":           {labels: map[string]string{workload.LastUsedLabel: longAgo}, listed: true, want: "marked"},
	"used":                {labels: map[string]string{workload.LastUsedLabel: "1999-12-31"}, listed: true, want: "kept"},
	"unreferenced":        {want: "kept"},
	"marked":              {labels: map[string]string{invalidSince: longAgo}, listed: true, want: "deleted"},
	"marked-and-tried": {
		labels: map[string]string{invalidSince: longAgo, workload.LastUsedLabel: "1999-12-31"}, listed: true, want: "kept"},
	"marked-to-keep": {
		labels: map[string]string{invalidSince: longAgo}, annotations: map[string]string{"sa-controller-manager/keep": "true"},
		listed: true, want: "kept"},
	"marked-unreferenced": {labels: map[string]string{invalidSince: longAgo}, want: "kept"},
}

// makeOld has a cluster that has been there for long.
func (w *world) makeOld() {
	w.server.Put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: oldNamespace}})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: oldNamespace, Name: "app"}}
	uid := w.server.Put("serviceaccounts", account).GetUID()
	for _, name := range slices.Sorted(maps.Keys(oldSecrets)) {
		old := oldSecrets[name]
		annotations := map[string]string{corev1.ServiceAccountNameKey: "app", corev1.ServiceAccountUIDKey: string(uid)}
		maps.Copy(annotations, old.annotations)
		token, err := tokens.NewIssuer(signing.NewKeyring(w.ring.Load()), tokens.CompatClaims).Legacy(context.Background(),
			tokens.Account{Namespace: oldNamespace, Name: "app", UID: string(uid)}, name)
		if err != nil {
			panic(err)
		}
		w.server.Put("secrets", &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: oldNamespace, Name: name, Labels: maps.Clone(old.labels), Annotations: annotations},
			Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{
				corev1.ServiceAccountTokenKey: []byte(token), corev1.ServiceAccountNamespaceKey: []byte(oldNamespace),
				corev1.ServiceAccountRootCAKey: rootCA()}})
		if old.listed {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
		}
	}
	w.server.Change("serviceaccounts", oldNamespace, "app", func(o model.Object) { o.(*corev1.ServiceAccount).Secrets = account.Secrets })
}

// judgeOld compares the Secrets with what the cleaner does.
func (w *world) judgeOld(when string) {
	for _, name := range slices.Sorted(maps.Keys(oldSecrets)) {
		old, got := oldSecrets[name], "deleted"
		if secret, _ := w.server.Get("secrets", oldNamespace, name).(*corev1.Secret); secret != nil {
			got = "kept"
			if old.labels[invalidSince] == "" && secret.Labels[invalidSince] != "" {
				got = "marked"
			}
		}
		want := old.want
		if name == "an-account-keeps-it" && w.mode == workload.Manual {
			want = "marked"
		}
		// What fails or has changed meanwhile waits a day, and so does what a restored etcd has back.
		if got != want && w.plan.cleans && !(got == "kept" && (w.plan.restores || w.price.failed["secrets "+oldNamespace+"/"+name])) {
			w.violated(1, "%s: token Secret %s/%s is %s, want %s", when, oldNamespace, name, got, want)
		}
	}
}
