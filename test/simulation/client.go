// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"path"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"sa-controller-manager/test/integration/faultproxy"

	"sa-controller-manager/test/simulation/model"
)

// client is the transport of one process, or of a user.
type client struct {
	network *network
	name    string
	replica int
	user    bool
	ahead   bool // its clock is an hour
	journal []*faultproxy.Request

	dead bool // the lock of the network guards it
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// nameIn is the name of the object in a body.
func nameIn(sent []byte) string {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(sent, nil, nil)
	if object, ok := decoded.(model.Object); err == nil && ok {
		return object.GetName()
	}
	return ""
}

// anHourAhead is a Lease as a process writes it whose clock is.
func anHourAhead(sent []byte) []byte {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(sent, nil, nil)
	lease, ok := decoded.(*coordinationv1.Lease)
	if err != nil || !ok || lease.Spec.RenewTime == nil {
		return sent
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(time.Hour)}
	return model.Encoded(lease)
}

// RoundTrip implements http.RoundTripper.
func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		return nil, err
	}
	if info.Resource == "namespaces" {
		info.Namespace = ""
	}
	query := r.URL.Query()
	manager, _, _ := strings.Cut(r.UserAgent(), "/")
	if by := query.Get("fieldManager"); by != "" {
		manager = by
	}
	asked := &call{client: c, began: time.Now(), answer: make(chan answer, 1), request: &model.Request{
		Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name, Subresource: info.Subresource, Path: r.URL.Path,
		Query: query, ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"), Manager: manager, Body: sent,
		Client: c.name, Began: time.Now(),
	}}
	if c.ahead && info.Resource == "leases" && sent != nil {
		sent = anHourAhead(sent)
	}
	name := info.Name
	if info.Verb == "create" && name == "" {
		name = nameIn(sent)
	}
	asked.name = strings.Join([]string{c.name, info.Verb, path.Join(info.Resource, info.Namespace, name, info.Subresource)}, " ")
	switch {
	case info.Resource == "":
		asked.name += r.URL.Path
	case strings.HasPrefix(info.Resource, "selfsubject"): // many at once, which their bodies tell apart
		hash := fnv.New32a()
		hash.Write(sent)
		asked.name += fmt.Sprintf("/%08x", hash.Sum32())
	}
	asked.journal = &faultproxy.Request{
		Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name, Subresource: info.Subresource, Began: asked.began,
	}
	n := c.network
	n.mu.Lock()
	if c.dead {
		n.mu.Unlock()
		return nil, syscall.ECONNREFUSED
	}
	c.journal = append(c.journal, asked.journal)
	n.arrived = append(n.arrived, asked)
	n.mu.Unlock()
	n.wakeUp()
	select {
	case <-r.Context().Done():
		asked.request.Unanswered = true
		return nil, r.Context().Err()
	case a := <-asked.answer:
		if a.err != nil {
			return nil, a.err
		}
		return responseOf(r, a), nil
	}
}

func responseOf(r *http.Request, a answer) *http.Response {
	response := &http.Response{
		Status: http.StatusText(a.Code), StatusCode: a.Code, Proto: "HTTP/2.0", ProtoMajor: 2, Request: r,
		Header: http.Header{"Content-Type": []string{a.ContentType}}, Body: io.NopCloser(bytes.NewReader(a.Body)),
	}
	if a.RetryAfter != "" {
		response.Header.Set("Retry-After", a.RetryAfter)
	}
	if a.body != nil {
		a.body.ends = r.Context().Done()
		response.Body = a.body
	}
	return response
}
