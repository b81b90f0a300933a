// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package model is an API server in memory: revisions, lists in pages, watches with history, preconditions,
// patches, managedFields and TokenReviews, of the resources that token controllers use.
//
// It is used by one goroutine at a time and never blocks: its caller decides when a request is answered, and
// when a watch gets a change.
package model

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object is what the server stores.
type Object interface {
	runtime.Object
	metav1.Object
}

// Request is one that a client has sent.
type Request struct {
	Verb, Resource, Namespace, Name, Subresource, Path string
	Client                                             string // who asks

	Query               url.Values
	ContentType, Accept string
	Manager             string // whom managedFields name
	Body                []byte
	Began               time.Time
	Unanswered          bool // it may have been served, and who has asked does not know

	// Preconditioned is set by the server: a write names the UID and the Version of what it changes.
	Preconditioned bool
	Version        string
}

// precondition reports whether a write names the UID and the version of what it changes.
func (r *Request) precondition(t *table) bool {
	var of metav1.Object
	switch r.Verb {
	case "patch":
		of = &metav1.PartialObjectMetadata{}
		if json.Unmarshal(r.Body, of) != nil {
			return false
		}
	case "update":
		object, err := decode(t, r.Body)
		if err != nil {
			return false
		}
		of = object
	default:
		var options metav1.DeleteOptions
		_, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, &options)
		p := options.Preconditions
		return err == nil && p != nil && p.UID != nil && p.ResourceVersion != nil
	}
	r.Version = of.GetResourceVersion()
	return of.GetUID() != "" && r.Version != ""
}

// Answer is what the server says. If Watch is not nil, its events follow once Begin is called.
type Answer struct {
	Code        int
	ContentType string
	Body        []byte
	RetryAfter  string // seconds
	Watch       *Watch
}

// kind is a resource that the server has.
type kind struct {
	gvk      schema.GroupVersionKind
	resource schema.GroupResource
	// managed: managedFields are kept. Nothing reads those of the others.
	managed bool
}

var kinds = map[string]kind{
	"namespaces":      {gvk: corev1.SchemeGroupVersion.WithKind("Namespace")},
	"serviceaccounts": {gvk: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), managed: true},
	"secrets":         {gvk: corev1.SchemeGroupVersion.WithKind("Secret"), managed: true},
	"configmaps":      {gvk: corev1.SchemeGroupVersion.WithKind("ConfigMap"), managed: true},
	"pods":            {gvk: corev1.SchemeGroupVersion.WithKind("Pod")},
	"events":          {gvk: corev1.SchemeGroupVersion.WithKind("Event")},
	"leases":          {gvk: schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}},
	"clustertrustbundles": {
		gvk: schema.GroupVersionKind{Group: "certificates.k8s.io", Version: "v1", Kind: "ClusterTrustBundle"}, managed: true,
	},
}

// version is one version of an object. It never changes.
type version struct {
	object   Object
	revision int64
	deleted  bool
	fresh    bool      // it was created by this version
	encoded  [2][]byte // as JSON and as protobuf, once it was asked for
}

// table has the objects of a resource, and what became of them since the history was compacted.
type table struct {
	kind
	objects map[types.NamespacedName]*version
	history []*version
	log     []*version // all that ever was
}

// Server is the API server. Build it with New.
type Server struct {
	// Committed, if not nil, is called with each change and the request that made it, nil for the server itself. before
	// is nil if the object is new, after if it is gone.
	Committed func(by *Request, resource string, before, after Object)
	// Admit, if not nil, refuses or changes what a request has stored, as admission does. after is nil for a deletion.
	Admit func(by *Request, resource string, before, after Object) (Object, error)
	// Cached is the revision that the watch cache of a client's kube-apiserver has.
	Cached func(client string) int64
	// NoWatchList: lists come from lists.
	NoWatchList bool
	// Push is called with each event of a watch, in their order; the event is sent by Watch.Send.
	Push func(w *Watch, event Event)
	// Verify says what is wrong with the signature of a token.
	Verify func(token string) error
	// Issuer is that of bound tokens.
	Issuer string

	revision  int64
	events    int64 // their revision: how many there are depends on the order of goroutines
	compacted int64
	made      int // UIDs, and ends of names
	tables    map[string]*table
	watches   []*Watch
	pages     map[string]page
	by        *Request // which is being served
}

type page struct {
	revision int64
	rest     []*version
}

// Put creates an object that was there a year before the world began.
func (s *Server) Put(resource string, object Object) Object {
	v, err := s.create(s.tables[resource], object, "kube-controller-manager")
	if err != nil {
		panic(err)
	}
	v.object.SetCreationTimestamp(metav1.NewTime(time.Now().AddDate(-1, 0, 0)))
	return v.object
}

// Change changes an object.
func (s *Server) Change(resource, namespace, name string, change func(Object)) {
	t := s.tables[resource]
	if v, err := t.get(namespace, name); err == nil {
		object := v.object.DeepCopyObject().(Object)
		change(object)
		if v = s.commit(t, v, object); object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
			s.commit(t, v, nil)
		}
	}
}

// New returns a server with the namespaces of the control plane.
func New(verify func(string) error, issuer string) *Server {
	s := &Server{Verify: verify, Issuer: issuer, revision: 1, tables: map[string]*table{}, pages: map[string]page{}}
	for name, k := range kinds {
		k.resource = schema.GroupResource{Group: k.gvk.Group, Resource: name}
		s.tables[name] = &table{kind: k, objects: map[types.NamespacedName]*version{}}
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		_, _ = s.create(s.tables["namespaces"], &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, "kube-apiserver")
	}
	// With it the product asks whether kube-apiserver takes its key.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "default"}}
	_, _ = s.create(s.tables["serviceaccounts"], account, "kube-controller-manager")
	tracking := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-legacy-service-account-token-tracking"},
		Data:       map[string]string{"since": "2000-01-01"},
	}
	_, _ = s.create(s.tables["configmaps"], tracking, "kube-apiserver")
	// Its administrator has applied it with the permissions.
	state := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "sa-controller-manager-root-ca"}}
	_, _ = s.create(s.tables["secrets"], state, "kubectl")
	return s
}

// Revision is the newest one.
func (s *Server) Revision() int64 { return s.revision }

// Get returns an object, nil if there is none.
func (s *Server) Get(resource, namespace, name string) Object {
	if v, err := s.tables[resource].get(namespace, name); err == nil {
		return v.object
	}
	return nil
}

// Count returns how many objects a namespace has.
func (s *Server) Count(resource, namespace string) (n int) {
	for name := range s.tables[resource].objects {
		if name.Namespace == namespace {
			n++
		}
	}
	return n
}

// Restore puts etcd back to a revision, and goes on with higher ones than there were, as etcdutl --bump-revision and
// --mark-compacted do.
func (s *Server) Restore(revision int64) {
	for name, t := range s.tables {
		if name == "events" || name == "leases" {
			continue
		}
		t.objects = t.at(revision)
		t.log = slices.DeleteFunc(t.log, func(v *version) bool { return v.revision > revision })
	}
	s.revision += 1000
	s.Compact()
}

// Objects returns what there is of a resource, sorted.
func (s *Server) Objects(resource string) []Object {
	var all []Object
	for _, v := range s.tables[resource].sorted("", s.revision) {
		all = append(all, v.object)
	}
	return all
}

// Compact forgets the history: what watches have not been told of until now, later ones are not.
func (s *Server) Compact() {
	s.compacted = s.revision
	for _, t := range s.tables {
		t.history = nil
	}
	clear(s.pages)
}

// at returns what there was at a revision.
func (t *table) at(revision int64) map[types.NamespacedName]*version {
	if len(t.log) == 0 || t.log[len(t.log)-1].revision <= revision {
		return t.objects
	}
	was := map[types.NamespacedName]*version{}
	for _, v := range t.log {
		name := types.NamespacedName{Namespace: v.object.GetNamespace(), Name: v.object.GetName()}
		switch {
		case v.revision > revision:
			return was
		case v.deleted:
			delete(was, name)
		default:
			was[name] = v
		}
	}
	return was
}

func (t *table) sorted(namespace string, revision int64) []*version {
	var all []*version
	for name, v := range t.at(revision) {
		if namespace == "" || name.Namespace == namespace {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *version) int {
		return strings.Compare(a.object.GetNamespace()+"/"+a.object.GetName(), b.object.GetNamespace()+"/"+b.object.GetName())
	})
	return all
}

// Serve answers a request.
func (s *Server) Serve(r *Request) Answer {
	s.by = r
	defer func() { s.by = nil }()
	proto := strings.Contains(r.Accept, runtime.ContentTypeProtobuf)
	result, err := s.serve(r)
	switch result := result.(type) {
	case nil:
	case *Watch:
		result.proto = proto
		return Answer{Code: http.StatusOK, ContentType: result.contentType(), Watch: result}
	case document:
		return Answer{Code: http.StatusOK, ContentType: runtime.ContentTypeJSON, Body: result}
	case *version:
		code := http.StatusOK
		if r.Verb == "create" {
			code = http.StatusCreated
		}
		return Answer{Code: code, ContentType: contentType(proto), Body: result.encode(proto)}
	case runtime.Object:
		return Answer{Code: http.StatusOK, ContentType: contentType(proto), Body: encode(result, proto)}
	}
	if err == nil {
		return Answer{Code: http.StatusOK, ContentType: contentType(proto),
			Body: encode(&metav1.Status{Status: metav1.StatusSuccess}, proto)}
	}
	return Failure(err, r.Accept)
}

// Failure is the answer that says err.
func Failure(err error, accept string) Answer {
	proto := strings.Contains(accept, runtime.ContentTypeProtobuf)
	status := statusOf(err)
	answer := Answer{Code: int(status.Code), ContentType: contentType(proto), Body: encode(&status, proto)}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		answer.RetryAfter = strconv.Itoa(int(status.Details.RetryAfterSeconds))
	}
	return answer
}

func statusOf(err error) metav1.Status {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status()
	}
	return apierrors.NewInternalError(err).Status()
}

type document []byte // JSON of no API type

func (s *Server) serve(r *Request) (any, error) {
	if text, ok := map[string]string{
		"/version":                          `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`,
		"/.well-known/openid-configuration": fmt.Sprintf(`{"issuer":%q}`, s.Issuer),
	}[r.Path]; ok {
		return document(text), nil
	}
	switch r.Resource {
	case "tokenreviews", "selfsubjectaccessreviews", "selfsubjectreviews":
		return s.review(r)
	}
	t := s.tables[r.Resource]
	if t == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: r.Resource}, r.Name)
	}
	if r.Verb == "patch" || r.Verb == "update" || r.Verb == "delete" {
		r.Preconditioned = r.precondition(t)
	}
	switch r.Verb {
	case "get":
		v, err := t.get(r.Namespace, r.Name)
		return orNil(v), err
	case "list":
		return s.list(t, r)
	case "watch":
		w, err := s.watch(t, r)
		if err != nil {
			return nil, err
		}
		return w, nil
	case "create":
		object, err := decode(t, r.Body)
		if err != nil {
			return nil, err
		}
		object.SetNamespace(r.Namespace)
		v, err := s.create(t, object, r.Manager)
		return orNil(v), err
	case "update":
		object, err := decode(t, r.Body)
		if err != nil {
			return nil, err
		}
		if r.Subresource == "finalize" { // the content is removed by who calls Finalize
			return object, nil
		}
		v, err := s.update(t, r.Namespace, r.Name, r.Manager, func(Object) (Object, error) { return object, nil })
		return orNil(v), err
	case "patch":
		v, err := s.update(t, r.Namespace, r.Name, r.Manager, func(before Object) (Object, error) {
			return patched(before, types.PatchType(r.ContentType), r.Body)
		})
		return orNil(v), err
	case "delete":
		return nil, s.remove(t, r)
	case "deletecollection": // only of a namespace that is being deleted: likewise
		return nil, nil
	}
	return nil, apierrors.NewMethodNotSupported(t.resource, r.Verb)
}

func orNil(v *version) any {
	if v == nil {
		return nil
	}
	return v
}

func decode(t *table, body []byte) (Object, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &t.gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	object, ok := decoded.(Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("want a %s, got %T", t.gvk.Kind, decoded))
	}
	return object, nil
}

// Event is one of a watch: an object, a bookmark or an error.
type Event struct {
	What    watch.EventType
	Name    string // namespace and name of the object
	version *version
	status  *metav1.Status
	ends    bool // the first list of a watch
	at      int64
}

// Object is that of the event, nil if it has none.
func (e Event) Object() Object {
	if e.version == nil {
		return nil
	}
	return e.version.object
}

func (e Event) String() string { return fmt.Sprintf("%s @%d %s", e.What, e.at, e.Name) }

func marshal(object any) []byte {
	encoded, err := json.Marshal(object)
	if err != nil {
		panic(err) // an API type
	}
	return encoded
}
