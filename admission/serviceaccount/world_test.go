// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

const (
	testNamespace = "shop"
	testSuffix    = "abcde"
)

var errBoom = errors.New("boom")

// world is what a plugin under test sees: a cache and an apiserver, which may differ.
type world struct {
	cache         cache.Indexer
	server        cache.Store
	err           error // of the apiserver
	gets, ensured atomic.Int32
	ensure        func(context.Context, string, string) (bool, error)
	tokens        map[string]bool // usable token Secrets
	waiters       *Waiters
	requests      chan struct{} // receives, if not nil, before a GET is answered
}

// newWorld has accounts in the cache and in the apiserver.
func newWorld(accounts ...*corev1.ServiceAccount) *world {
	w := &world{
		cache:   cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		server:  cache.NewStore(cache.MetaNamespaceKeyFunc),
		tokens:  map[string]bool{},
		waiters: NewWaiters(mostWaiters, nil),
	}
	for _, account := range accounts {
		_ = w.cache.Add(account)
		_ = w.server.Add(account)
	}
	return w
}

func (w *world) plugin(config Config) *Plugin {
	return New(config, Dependencies{
		Accounts:    corev1listers.NewServiceAccountLister(w.cache),
		Client:      w,
		Ensure:      w.ensure,
		UsableToken: func(_ *corev1.ServiceAccount, secret string) bool { return w.tokens[secret] },
		Waiters:     w.waiters,
		Suffix:      func() string { return testSuffix },
	})
}

// show makes the informer deliver account.
func (w *world) show(account *corev1.ServiceAccount) {
	_ = w.cache.Add(account)
	w.waiters.Wake(cache.MetaObjectToName(account))
}

// creates makes the world's Ensure put accounts into the apiserver but not the cache.
func (w *world) creates() *world {
	w.ensure = func(_ context.Context, namespace, name string) (bool, error) {
		w.ensured.Add(1)
		return true, w.server.Add(account(namespace, name))
	}
	return w
}

func (w *world) ServiceAccounts(namespace string) corev1client.ServiceAccountInterface {
	return liveAccounts{world: w, namespace: namespace}
}

type liveAccounts struct {
	corev1client.ServiceAccountInterface

	world     *world
	namespace string
}

func (l liveAccounts) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.ServiceAccount, error) {
	l.world.gets.Add(1)
	if l.world.requests != nil {
		select {
		case <-l.world.requests:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if l.world.err != nil {
		return nil, l.world.err
	}
	object, exists, err := l.world.server.GetByKey(l.namespace + "/" + name)
	if err != nil || !exists {
		return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
	}
	return object.(*corev1.ServiceAccount), nil
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"}}
}

// calls returns what kube-apiserver calls.
func (p *Plugin) calls() map[string]func(context.Context, *admission.Request, *admission.Response) error {
	return map[string]func(context.Context, *admission.Request, *admission.Response) error{"Admit": p.Admit, "Validate": p.Validate}
}

// creation asks for the Pod with that JSON.
func creation(object []byte) *admission.Request {
	return &admission.Request{
		UID:       "u",
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: testNamespace,
		Operation: admission.Create,
		Object:    object,
	}
}

// ephemeralUpdate asks for an update of the Pod's ephemeral containers.
func ephemeralUpdate(object []byte) *admission.Request {
	request := creation(object)
	request.Operation, request.SubResource = admission.Update, ephemeralContainer
	return request
}

// apply applies a patch with a library that the plugin does not use.
func apply(t *testing.T, object []byte, operations []admission.PatchOperation) []byte {
	t.Helper()
	if len(operations) == 0 {
		return object
	}
	encoded := testutil.Get(json.Marshal(operations))(t)
	patch := testutil.Get(jsonpatch.DecodePatch(encoded))(t)
	return testutil.Get(patch.Apply(object))(t)
}

// admitTwice admits the Pod of request, patches it and admits it again, which must
// change nothing. It returns what the first call said and the patched Pod.
func admitTwice(t *testing.T, plugin *Plugin, request *admission.Request) (*admission.Response, []byte, error) {
	t.Helper()
	first := &admission.Response{}
	if err := plugin.Admit(t.Context(), request, first); err != nil {
		testutil.Expect(t, len(first.Patch) == 0, "a refusal came with a patch: %v", first.Patch)
		return first, nil, err
	}
	again := *request
	again.Object = apply(t, request.Object, first.Patch)
	checkOnlyAdds(t, request.Object, first.Patch)
	second := &admission.Response{}
	err := plugin.Admit(t.Context(), &again, second)
	testutil.Require(t, err == nil, "the patched Pod was refused: %v\n%s", err, again.Object)
	testutil.Expect(t, len(second.Patch) == 0, "the patched Pod was patched again: %+v", second.Patch)
	testutil.CheckError(t, "the admitted Pod is not valid", "", plugin.Validate(t.Context(), &again, &admission.Response{}))
	return first, again.Object, nil
}

// scalars may get another value. Lists may get longer at their end; as a whole they are added only
// where there is none. Nothing else is the plugin's.
var (
	scalars = regexp.MustCompile(`^/spec/serviceAccount(Name)?$`)
	lists   = regexp.MustCompile(`^/spec(/(volumes|imagePullSecrets|(containers|initContainers)/[0-9]+/volumeMounts))?$`)
)

// checkOnlyAdds holds a patch to the invariant that all that was there stays as it was.
func checkOnlyAdds(t *testing.T, object []byte, operations []admission.PatchOperation) {
	t.Helper()
	var before any
	testutil.Must(t, json.Unmarshal(object, &before))
	for _, operation := range operations {
		list, appends := strings.CutSuffix(operation.Path, "/-")
		switch {
		case operation.Op != "add" || !scalars.MatchString(operation.Path) && !lists.MatchString(list):
			t.Errorf("the patch does %q at %s", operation.Op, operation.Path)
		case !appends && lists.MatchString(list) && valueAt(before, list) != nil:
			t.Errorf("the patch replaces %s of %s", list, object)
		}
	}
}

// valueAt follows a JSON pointer; nil if it leads nowhere.
func valueAt(value any, pointer string) any {
	for token := range strings.SplitSeq(pointer[1:], "/") {
		switch in := value.(type) {
		case map[string]any:
			value = in[token]
		case []any:
			index, _ := strconv.Atoi(token)
			value = in[index]
		default:
			return nil
		}
	}
	return value
}

// codeAndMessage is what the user sees of a refusal.
func codeAndMessage(err error) (int32, string) {
	if err == nil {
		return 0, ""
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code, status.Status().Message
	}
	return -1, err.Error()
}
