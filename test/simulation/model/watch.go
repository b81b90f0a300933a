// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// Watch is one that a client has begun.
type Watch struct {
	selector
	table     *table
	proto     bool
	from      string
	initial   bool // it begins with a list
	client    string
	bookmarks bool
}

// Resource is what is watched.
func (w *Watch) Resource() string { return w.table.resource.Resource }

func (s *Server) watch(t *table, r *Request) (*Watch, error) {
	selects, err := selectorOf(r)
	if err != nil {
		return nil, err
	}
	w := &Watch{selector: selects, table: t, client: r.Client, from: r.Query.Get("resourceVersion"),
		initial: r.Query.Get("sendInitialEvents") == "true", bookmarks: r.Query.Get("allowWatchBookmarks") == "true"}
	if w.initial && s.NoWatchList {
		return nil, apierrors.NewInvalid(t.gvk.GroupKind(), "", nil)
	}
	if from, err := strconv.ParseInt(w.from, 10, 64); err == nil && w.initial && from > s.cached(r.Client) {
		return nil, tooLarge(from, s.cached(r.Client))
	}
	w.initial = w.initial || w.from == "" || w.from == "0"
	return w, nil
}

// Begin pushes what the watch has to be told first.
func (s *Server) Begin(w *Watch) {
	s.watches = append(s.watches, w)
	if w.initial {
		at := s.revision
		if w.from != "" { // and else a consistent read
			at = max(s.cached(w.client), s.compacted)
		}
		for _, v := range w.table.sorted(w.namespace, at) {
			if w.selects(v.object) {
				s.Push(w, Event{What: watch.Added, version: v, Name: nameOf(v.object), at: v.revision})
			}
		}
		if w.bookmarks {
			s.Push(w, Event{What: watch.Bookmark, ends: true, at: at})
		}
		s.since(w, at)
		return
	}
	from, err := strconv.ParseInt(w.from, 10, 64)
	if err != nil || from < s.compacted {
		status := apierrors.NewResourceExpired("too old resource version").Status()
		s.Push(w, Event{What: watch.Error, status: &status, at: s.revision})
		s.End(w)
		return
	}
	s.since(w, from)
}

func (s *Server) since(w *Watch, from int64) {
	for _, v := range w.table.history {
		if v.revision > from && w.selects(v.object) {
			s.Push(w, w.event(v))
		}
	}
}

// Bookmark pushes one, if the watch asks for them.
func (s *Server) Bookmark(w *Watch) {
	if w.bookmarks && slices.Contains(s.watches, w) {
		s.Push(w, Event{What: watch.Bookmark, at: s.revision})
	}
}

// End forgets a watch.
func (s *Server) End(w *Watch) {
	s.watches = slices.DeleteFunc(s.watches, func(other *Watch) bool { return other == w })
}

func (w *Watch) event(v *version) Event {
	e := Event{What: watch.Modified, version: v, Name: nameOf(v.object), at: v.revision}
	switch {
	case v.deleted:
		e.What = watch.Deleted
	case v.fresh:
		e.What = watch.Added
	}
	return e
}

func nameOf(object Object) string { return object.GetNamespace() + "/" + object.GetName() }

// Encode is the event as it is sent.
func (w *Watch) Encode(e Event) []byte {
	var raw []byte
	switch {
	case e.version != nil:
		raw = e.version.encode(w.proto)
	case e.status != nil:
		raw = encode(e.status, w.proto)
	default:
		object, err := scheme.Scheme.New(w.table.gvk)
		if err != nil {
			panic(err) // a type of the table
		}
		mark, _ := meta.Accessor(object)
		mark.SetResourceVersion(strconv.FormatInt(e.at, 10))
		if e.ends {
			mark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
		object.GetObjectKind().SetGroupVersionKind(w.table.gvk)
		raw = encode(object, w.proto)
	}
	var framed bytes.Buffer
	stream := serializer(w.proto).StreamSerializer
	event := &metav1.WatchEvent{Type: string(e.What), Object: runtime.RawExtension{Raw: raw}}
	if err := stream.Serializer.Encode(event, stream.Framer.NewFrameWriter(&framed)); err != nil {
		panic(err)
	}
	return framed.Bytes()
}

func (w *Watch) contentType() string {
	if w.proto {
		return runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return runtime.ContentTypeJSON
}

func contentType(proto bool) string {
	if proto {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

var serializers = func() [2]runtime.SerializerInfo {
	all := scheme.Codecs.SupportedMediaTypes()
	asJSON, _ := runtime.SerializerInfoForMediaType(all, runtime.ContentTypeJSON)
	asProtobuf, _ := runtime.SerializerInfoForMediaType(all, runtime.ContentTypeProtobuf)
	return [2]runtime.SerializerInfo{asJSON, asProtobuf}
}()

func serializer(proto bool) runtime.SerializerInfo { return serializers[index(proto)] }

func index(proto bool) int {
	if proto {
		return 1
	}
	return 0
}

func (v *version) encode(proto bool) []byte {
	if v.encoded[index(proto)] == nil {
		v.encoded[index(proto)] = encode(v.object, proto)
	}
	return v.encoded[index(proto)]
}

// Encoded is an object as clients send it.
func Encoded(object runtime.Object) []byte { return encode(object, true) }

func encode(object runtime.Object, proto bool) []byte {
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		panic(err) // a type of the server
	}
	gvk := kinds[0]
	if _, ok := object.(*metav1.Status); ok {
		gvk.Version = "v1"
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	var encoded bytes.Buffer
	if err := serializer(proto).Serializer.Encode(object, &encoded); err != nil {
		panic(err)
	}
	return encoded.Bytes()
}

func (s *Server) review(r *Request) (any, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	switch review := decoded.(type) {
	case *authenticationv1.TokenReview:
		review.Status = s.Review(review.Spec.Token, review.Spec.Audiences)
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo.Username = "system:" + r.Manager
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status.Allowed = true
	}
	return decoded, nil
}

// lastUsed is what kube-apiserver writes on a Secret whose token was used.
const lastUsed = "kubernetes.io/legacy-token-last-used"

// Review is kube-apiserver's judgement of a token.
func (s *Server) Review(token string, audiences []string) (status authenticationv1.TokenReviewStatus) {
	user, granted, err := s.authenticate(token, audiences)
	if err != nil {
		status.Error = err.Error()
		return status
	}
	status.Authenticated, status.User, status.Audiences = true, user, granted
	return status
}

func (s *Server) authenticate(token string, audiences []string) (user authenticationv1.UserInfo, granted []string, err error) {
	if err := s.Verify(token); err != nil {
		return user, nil, errors.New("invalid bearer token")
	}
	var claims struct {
		Issuer    string `json:"iss"`
		Audience  any    `json:"aud"`
		Namespace string `json:"kubernetes.io/serviceaccount/namespace"`
		Secret    string `json:"kubernetes.io/serviceaccount/secret.name"`
		Name      string `json:"kubernetes.io/serviceaccount/service-account.name"`
		UID       string `json:"kubernetes.io/serviceaccount/service-account.uid"`
		Bound     struct {
			Namespace string `json:"namespace"`
			Account   struct {
				Name string `json:"name"`
				UID  string `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	if err != nil {
		return user, nil, errors.New("invalid bearer token")
	}
	switch claims.Issuer {
	case "kubernetes/serviceaccount":
		v, err := s.tables["secrets"].get(claims.Namespace, claims.Secret)
		if err != nil || string(v.object.(*corev1.Secret).Data[corev1.ServiceAccountTokenKey]) != token {
			return user, nil, errors.New("token has been invalidated")
		}
		defer func() {
			if err == nil {
				s.noteUse(v)
			}
		}()
	case s.Issuer:
		claims.Namespace, claims.Name, claims.UID = claims.Bound.Namespace, claims.Bound.Account.Name, claims.Bound.Account.UID
		of, _ := claims.Audience.([]any)
		for _, one := range of {
			if name, _ := one.(string); slices.Contains(audiences, name) {
				granted = append(granted, name)
			}
		}
		if len(granted) == 0 {
			return user, nil, errors.New("token audiences is invalid for the target audiences")
		}
	default:
		return user, nil, errors.New("invalid bearer token")
	}
	v, err := s.tables["serviceaccounts"].get(claims.Namespace, claims.Name)
	if err != nil || v.object.GetUID() != types.UID(claims.UID) {
		return user, nil, fmt.Errorf("the ServiceAccount %s/%s with UID %s is gone", claims.Namespace, claims.Name, claims.UID)
	}
	name := "system:serviceaccount:" + claims.Namespace + ":" + claims.Name
	return authenticationv1.UserInfo{Username: name, UID: claims.UID}, granted, nil
}

// noteUse sets the label of kube-apiserver, without its name in managedFields, which nothing here reads for it.
func (s *Server) noteUse(v *version) {
	secret := v.object.DeepCopyObject().(*corev1.Secret)
	if secret.Labels == nil {
		secret.Labels = map[string]string{}
	}
	today := time.Now().UTC().Format(time.DateOnly)
	if secret.Labels[lastUsed] == today {
		return
	}
	secret.Labels[lastUsed] = today
	t := s.tables["secrets"]
	s.commit(t, v, secret)
}
