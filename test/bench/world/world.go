// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world makes what the measurements need: a fresh control plane, many objects at
// once, programs that look after them, and a clock that stops when the last object is as
// it should be. What is awaited is awaited by watch, so that waiting costs the same
// the program that is measured. Everything is bounded by its context.
package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/test/devcluster"
)

// User is whom the measured programs are for kube-apiserver. It belongs to
// system:masters, whose requests wait in no queue of priority and fairness.
const User = "measured"

// World is a control plane that is measured on, and its administrator.
type World struct {
	*devcluster.Cluster

	Client     kubernetes.Interface
	kubeconfig string // of User
}

// New starts a fresh control plane.
func New(ctx context.Context, options devcluster.Options) (*World, error) {
	cluster, err := devcluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	w, err := around(cluster)
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	return w, nil
}

// Beside is another kube-apiserver on the same etcd; see devcluster.Cluster.Beside.
func (w *World) Beside(ctx context.Context, name string, flags map[string][]string) (*World, error) {
	cluster, err := w.Cluster.Beside(ctx, name, flags)
	if err != nil {
		return nil, err
	}
	beside, err := around(cluster)
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	return beside, nil
}

func around(cluster *devcluster.Cluster) (*World, error) {
	config := cluster.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make an admin client: %w", err)
	}
	kubeconfig, _, err := cluster.Identity(User, "system:masters")
	if err != nil {
		return nil, err
	}
	return &World{Cluster: cluster, Client: client, kubeconfig: kubeconfig}, nil
}

// revision is the cluster's newest, to watch from.
func (w *World) revision(ctx context.Context, resource string) (string, error) {
	list := &metav1.PartialObjectMetadataList{}
	raw, err := w.Client.CoreV1().RESTClient().Get().Resource(resource).Param("limit", "1").
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the newest revision of %s: %w", resource, err)
	}
	if err := json.Unmarshal(raw, list); err != nil {
		return "", fmt.Errorf("ask for the newest revision of %s: %w", resource, err)
	}
	return list.ResourceVersion, nil
}
