// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy provides a proxy between a client and kube-apiserver that records every request
// and holds chosen ones.
//
// It is a reverse proxy over HTTPS, so that the client under test is the real
// binary with an ordinary kubeconfig and HTTP/2. Beneath that, connections can fall silent, which a
// client learns from its own clocks alone. The client has no credentials of its own: the proxy
// calls kube-apiserver with the credentials of its configuration.
//
// Lifecycle: Start, then Hold and Silence as often as wanted, then Close, which also
// ends requests that are held and connections that are silent.
//
// Concurrency: all methods may be called from any goroutine.
//
// The proxy must never cause a fault that nobody has asked for. A request that the proxy
// itself cannot pass on is an answer without a status in the list of requests, as
// kube-apiserver being away would be.
package faultproxy
