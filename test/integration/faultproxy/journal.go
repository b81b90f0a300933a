// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"io"
	"sync"
	"time"
)

// journal is the list of all requests.
type journal struct {
	mu       sync.Mutex
	requests []*Request
}

func (j *journal) begin(request Request) *Request {
	request.Began = time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.requests = append(j.requests, &request)
	return &request
}

func (j *journal) selected(match Match) (found []Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, request := range j.requests {
		if match(*request) {
			found = append(found, *request)
		}
	}
	return found
}

// answered notes that kube-apiserver has answered and the client is getting that.
func (j *journal) answered(request *Request, code int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	request.Served, request.Code = code, code
}

// ended notes that the exchange is over, with or without an answer.
func (j *journal) ended(request *Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	request.Open = false
}

// trackedBody is an answer's body that notes its end.
type trackedBody struct {
	io.ReadCloser

	ended func()
}

// Close implements io.Closer.
func (b trackedBody) Close() error {
	err := b.ReadCloser.Close()
	b.ended()
	return err
}
