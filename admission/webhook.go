// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// The two things that the webhook is asked to do. They are its URL paths, with a slash
// in front, and the values of the metric label "path".
const (
	pathMutate   = "mutate"
	pathValidate = "validate"
)

// WebhookConfig says what a Webhook needs.
type WebhookConfig struct {
	// Chain decides. POST /mutate calls its mutators, POST /validate its validators.
	Chain Chain
	// MaxInFlight is how many calls are decided at the same time, over both paths;
	// zero means DefaultMaxInFlight. More than that are told to try again.
	MaxInFlight int
	// Metrics counts the calls. Nil counts nothing.
	Metrics *Metrics
}

// Webhook answers AdmissionReviews of admission.k8s.io/v1 and v1beta1 in the version
// they come in. It is the only place where bytes become requests and decisions become
// bytes; plugins see neither.
//
// Every answer but 404 is a well-formed AdmissionReview with the uid of the request.
// The HTTP status is 200, because the apiserver hides what any other one says and lets
// failurePolicy decide. Only where the uid cannot be known is it that of the refusal.
type Webhook struct {
	chain              Chain
	arriving, deciding semaphore
	bodies             bodyLimiter
	metrics            *Metrics
}

// NewWebhook returns a Webhook. It may be called from several goroutines.
func NewWebhook(config WebhookConfig) *Webhook {
	return &Webhook{
		chain: config.Chain,
		// Bodies that arrive slowly, or never, keep no small one from being decided: over HTTP/1.1
		// a connection has one at a time.
		arriving: newSemaphore(connectionLimits(config.MaxInFlight).Accepted(), config.Metrics.counterOf(stageArriving)),
		deciding: newSemaphore(orDefault(config.MaxInFlight), config.Metrics.counterOf(stageDeciding)),
		metrics:  config.Metrics,
	}
}

// decideFunc is Chain.Admit or Chain.Validate.
type decideFunc func(context.Context, *Request, *Response) error

// ServeHTTP answers /mutate and /validate.
func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/" + pathMutate:
		w.serve(rw, r, pathMutate, w.chain.Admit)
	case "/" + pathValidate:
		w.serve(rw, r, pathValidate, w.chain.Validate)
	default:
		http.NotFound(rw, r)
	}
}

func (w *Webhook) serve(rw http.ResponseWriter, r *http.Request, path string, decide decideFunc) {
	start := time.Now()
	answer, outcome := w.answer(rw, r, decide)
	w.metrics.requestEnds(path, outcome, start)
	writeReview(rw, r, answer)
}

// answer leads a call through its stages. Each of them may end it.
func (w *Webhook) answer(rw http.ResponseWriter, r *http.Request, decide decideFunc) (*admissionv1.AdmissionReview, string) {
	ctx, cancel := withDeadline(r)
	defer cancel()
	if err := checkCall(r); err != nil {
		return refusedReview(envelope{}, &Response{}, err), outcomeInvalid
	}
	bounded := &limitedBody{from: boundedBody(rw, r), limiter: &w.bodies}
	defer bounded.release()
	body, found, err := w.read(rw, bounded)
	if apierrors.IsTooManyRequests(err) {
		return refusedReview(found, &Response{}, err), outcomeOverload
	}
	if err != nil {
		return refusedReview(found, &Response{}, err), outcomeInvalid
	}
	if !w.deciding.tryAcquire() {
		return refusedReview(findEnvelope(bytes.NewReader(body)), &Response{}, errTooMany()), outcomeOverload
	}
	defer w.deciding.release()
	request, found, err := decodeReview(body)
	if err != nil {
		return refusedReview(found, &Response{}, err), outcomeInvalid
	}
	return runChain(ctx, found, request, decide)
}

// checkCall refuses calls that no apiserver makes, before their body is read.
func checkCall(r *http.Request) error {
	if r.Method != http.MethodPost {
		return invalidReview(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"found method %.20s; an AdmissionReview is sent with POST", r.Method)
	}
	found := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(found); err != nil || media != "application/json" {
		return invalidReview(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"found Content-Type %.100q; expected application/json", found)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return invalidReview(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"found Content-Encoding %.100q; the body must not be compressed", encoding)
	}
	return nil
}

// runChain asks the plugins and turns what they say into an answer.
func runChain(ctx context.Context, found envelope, request *Request, decide decideFunc) (*admissionv1.AdmissionReview, string) {
	response := &Response{}
	err := decideGuarded(ctx, request, response, decide)
	var answer *admissionv1.AdmissionReview
	if err == nil {
		answer, err = allowedReview(found, response)
	}
	if err != nil {
		answer = refusedReview(found, response, err)
	}
	outcome := outcomeOf(response, err)
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() { // or each request would pay for the arguments
		logger.Info("Decided an admission request", "operation", request.Operation,
			"resource", request.groupResource(), "subResource", request.SubResource, "namespace", request.Namespace,
			"name", request.Name, "uid", request.UID, "dryRun", request.DryRun, "outcome", outcome)
	}
	return answer, outcome
}

// decideGuarded lets a request without an object through untouched where there should
// be one: there is nothing to decide on. A deletion has none, and CONNECT may have none.
func decideGuarded(ctx context.Context, request *Request, response *Response, decide decideFunc) (err error) {
	if request.Object == nil && (request.Operation == Create || request.Operation == Update) {
		return nil
	}
	defer recoverAs(ctx, &err, "the admission webhook")
	return decide(ctx, request, response)
}

// read is readBody, if there is room for one more.
func (w *Webhook) read(rw http.ResponseWriter, bounded io.Reader) ([]byte, envelope, error) {
	if !w.arriving.tryAcquire() {
		setReadDeadline(rw, time.Now().Add(rejectedTimeout))
		return nil, findEnvelope(bounded), errTooMany()
	}
	defer w.arriving.release()
	return readBody(rw, bounded)
}

// writeReview sends answer. The status line tells what the review cannot: see Webhook.
func writeReview(rw http.ResponseWriter, r *http.Request, answer *admissionv1.AdmissionReview) {
	encoded, err := json.Marshal(answer)
	if err != nil {
		klog.FromContext(r.Context()).Error(nil, "An answer cannot be encoded", "cause", err.Error())
		http.Error(rw, "the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	code := http.StatusOK
	if answer.Response.UID == "" {
		code = int(answer.Response.Result.Code)
	}
	if code == http.StatusMethodNotAllowed {
		rw.Header().Set("Allow", http.MethodPost)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	if _, err := rw.Write(encoded); err != nil {
		klog.FromContext(r.Context()).V(4).Info("The caller left before its answer", "cause", err.Error())
	}
}
