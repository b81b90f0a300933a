// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// selector is what a list or a watch selects.
type selector struct {
	namespace string
	fields    fields.Selector
	labels    labels.Selector
}

func selectorOf(r *Request) (selector, error) {
	byField, err := fields.ParseSelector(r.Query.Get("fieldSelector"))
	if err != nil {
		return selector{}, apierrors.NewBadRequest(err.Error())
	}
	byLabel, err := labels.Parse(r.Query.Get("labelSelector"))
	if err != nil {
		return selector{}, apierrors.NewBadRequest(err.Error())
	}
	return selector{r.Namespace, byField, byLabel}, nil
}

func (s selector) selects(object Object) bool {
	if s.namespace != "" && s.namespace != object.GetNamespace() {
		return false
	}
	if !s.fields.Empty() {
		set := fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}
		if secret, ok := object.(*corev1.Secret); ok {
			set["type"] = string(secret.Type)
		}
		if !s.fields.Matches(set) {
			return false
		}
	}
	return s.labels.Empty() || s.labels.Matches(labels.Set(object.GetLabels()))
}

// list answers from the newest state, in pages if they are asked for.
func (s *Server) list(t *table, r *Request) (any, error) {
	selects, err := selectorOf(r)
	if err != nil {
		return nil, err
	}
	this := page{revision: s.revision}
	if token := r.Query.Get("continue"); token != "" {
		var known bool
		if this, known = s.pages[token]; !known {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old")
		}
	} else {
		for _, v := range t.sorted(selects.namespace) {
			if selects.selects(v.object) {
				this.rest = append(this.rest, v)
			}
		}
	}
	list, err := scheme.Scheme.New(t.gvk.GroupVersion().WithKind(t.gvk.Kind + "List"))
	if err != nil {
		return nil, err
	}
	access, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	access.SetResourceVersion(strconv.FormatInt(this.revision, 10))
	if limit, _ := strconv.Atoi(r.Query.Get("limit")); limit > 0 && limit < len(this.rest) && r.Query.Get("resourceVersion") != "0" {
		s.made++
		token := strconv.Itoa(s.made)
		s.pages[token] = page{this.revision, this.rest[limit:]}
		access.SetContinue(token)
		this.rest = this.rest[:limit]
	}
	var items []runtime.Object
	for _, v := range this.rest {
		items = append(items, v.object)
	}
	return list, meta.SetList(list, items)
}
