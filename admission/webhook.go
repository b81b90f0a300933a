// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// The URL paths of the webhook, without the leading slash. They are also the values of the metric
// label "path".
const (
	pathMutate   = "mutate"
	pathValidate = "validate"
)

// mediaType is that of requests and responses.
const mediaType = "application/json"

// WebhookConfig configures a Webhook.
type WebhookConfig struct {
	// Plugin decides: POST /mutate calls Admit, and POST /validate calls Validate.
	Plugin Plugin
	// Probe, unless nil, is called before the plugin, and answers what proves that kube-apiserver reaches this process.
	Probe func(request *Request, response *Response, mutates bool)
	// MaxInFlight limits the calls that are decided at the same time, over both paths; zero means
	// DefaultMaxInFlight. Calls beyond it get 429 and may retry.
	MaxInFlight int
	// Metrics counts the calls. Nil counts nothing.
	Metrics *Metrics
}

// Webhook answers AdmissionReviews of admission.k8s.io/v1 and v1beta1 in the version they come in.
// It is the only place that converts between bytes and requests; the plugin sees neither the HTTP call
// nor the encoding.
//
// Every response but 404 is a well-formed AdmissionReview with the uid of the request. The HTTP
// status is 200, because the apiserver ignores the body of any other status and applies
// failurePolicy. Only if the uid is unknown does the HTTP status repeat the code of the refusal.
type Webhook struct {
	plugin   Plugin
	probe    func(*Request, *Response, bool)
	deciding *semaphore.Weighted // how many
	large    *semaphore.Weighted // how much memory, see share
	metrics  *Metrics
}

// NewWebhook returns a Webhook. It is safe for concurrent use.
func NewWebhook(config WebhookConfig) *Webhook {
	return &Webhook{
		plugin: config.Plugin,
		probe:  config.Probe,
		// A body that is on its way takes no place: slow ones do not keep others out.
		deciding: semaphore.NewWeighted(int64(orDefault(config.MaxInFlight))),
		large:    semaphore.NewWeighted(largeCalls),
		metrics:  cmp.Or(config.Metrics, NewMetrics(nil)),
	}
}

// decideFunc is Plugin.Admit or Plugin.Validate.
type decideFunc func(context.Context, *Request, *Response) error

// ServeHTTP answers /mutate and /validate.
func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/" + pathMutate:
		w.serve(rw, r, pathMutate, w.plugin.Admit)
	case "/" + pathValidate:
		w.serve(rw, r, pathValidate, w.plugin.Validate)
	default:
		http.NotFound(rw, r)
	}
}

func (w *Webhook) serve(rw http.ResponseWriter, r *http.Request, path string, decide decideFunc) {
	start := time.Now()
	var answer *admissionv1.AdmissionReview
	outcome := outcomeOverload
	if end, ok := connectionOf(r).begin(); ok {
		defer end()
		answer, outcome = w.answer(rw, r, path == pathMutate, decide)
	} else {
		answer = refusedReview(readEnvelope(rw, r), &Response{}, TooManyRequests("too many connections, please try again"))
	}
	w.metrics.requestEnds(path, outcome, start)
	writeReview(rw, r, answer)
}

// answer takes a call through its stages. Each stage may end it.
func (w *Webhook) answer(rw http.ResponseWriter, r *http.Request, mutates bool, decide decideFunc) (*admissionv1.AdmissionReview, string) {
	ctx, cancel := context.WithTimeout(r.Context(), timeToDecide(r.URL.Query().Get("timeout")))
	defer cancel()
	if err := checkCall(r); err != nil {
		return refusedReview(envelope{}, &Response{}, err), outcomeInvalid
	}
	if err := checkLength(r); err != nil {
		return refusedReview(readEnvelope(rw, r), &Response{}, err), outcomeInvalid
	}
	held := share{of: w.large}
	defer held.release()
	if err := held.grow(r.ContentLength, 0); err != nil {
		return refusedReview(readEnvelope(rw, r), &Response{}, err), outcomeOverload
	}
	body, err := read(rw, r)
	if err != nil {
		return refusedReview(findEnvelope(bytes.NewReader(body)), &Response{}, err), outcomeInvalid
	}
	if !w.deciding.TryAcquire(1) {
		err = TooManyRequests("too many admission requests at the same time, please try again")
		return refusedReview(findEnvelope(bytes.NewReader(body)), &Response{}, err), outcomeOverload
	}
	w.metrics.inFlight.Inc()
	defer func() { w.metrics.inFlight.Dec(); w.deciding.Release(1) }()
	request, found, err := decodeReview(body)
	if err != nil {
		return refusedReview(found, &Response{}, err), outcomeInvalid
	}
	if err := held.grow(r.ContentLength, request.parts); err != nil {
		return refusedReview(found, &Response{}, err), outcomeOverload
	}
	request.NoWait, request.First = request.DryRun || held.held > 0, connectionOf(r).isFirst()
	response := &Response{}
	err = w.decide(ctx, request, response, mutates, decide)
	if response.Close {
		rw.Header().Set("Connection", "close")
	}
	return concluded(ctx, found, request, response, err)
}

// checkCall refuses calls that an apiserver never makes, before it reads the body.
func checkCall(r *http.Request) error {
	if r.Method != http.MethodPost {
		return invalidReview(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"found method %.20s; expected POST", r.Method)
	}
	found := r.Header.Get("Content-Type")
	if !isJSON(found) {
		return invalidReview(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"found Content-Type %.100q; expected "+mediaType, found)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return invalidReview(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"found Content-Encoding %.100q; the body must not be compressed", encoding)
	}
	return nil
}

// checkLength refuses reviews of objects that etcd never stores.
func checkLength(r *http.Request) error {
	if r.ContentLength < 0 {
		return invalidReview(http.StatusLengthRequired, metav1.StatusReasonBadRequest, "the call has no Content-Length")
	}
	if r.ContentLength > maxBody {
		return errTooLarge("the AdmissionReview is larger than %d MiB", maxBody>>20)
	}
	return nil
}

func isJSON(contentType string) bool {
	if contentType == mediaType {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == mediaType
}

// decide allows a CREATE or UPDATE without an object: there is nothing to decide on. DELETE and CONNECT may have none and
// are decided. A panic refuses the request.
func (w *Webhook) decide(ctx context.Context, request *Request, response *Response, mutates bool, decide decideFunc) (err error) {
	if request.Object == nil && (request.Operation == Create || request.Operation == Update) {
		return nil
	}
	defer recoverAs(ctx, &err)
	if w.probe != nil {
		w.probe(request, response, mutates)
	}
	if err := w.plugin.Ready(ctx); err != nil {
		return notReadyError{Forbidden(request, err)} // as upstream
	}
	return decide(ctx, request, response)
}

// concluded turns a decision into a response.
func concluded(ctx context.Context, found envelope, request *Request, response *Response, err error) (
	answer *admissionv1.AdmissionReview, outcome string) {
	if err == nil {
		answer, err = allowedReview(found, response)
	}
	if err != nil {
		answer = refusedReview(found, response, err)
	}
	outcome = outcomeOf(response, err)
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() { // avoids building the arguments for each request
		logger.Info("Decided an admission request", "operation", request.Operation,
			"resource", request.groupResource(), "subResource", request.SubResource, "namespace", request.Namespace,
			"name", request.Name, "uid", request.UID, "dryRun", request.DryRun, "outcome", outcome)
	}
	return answer, outcome
}

// writeReview writes the response. For the HTTP status see Webhook.
func writeReview(rw http.ResponseWriter, r *http.Request, answer *admissionv1.AdmissionReview) {
	encoded, err := json.Marshal(answer)
	if err != nil {
		klog.FromContext(r.Context()).Error(nil, "Failed to encode the AdmissionReview", "cause", err.Error())
		http.Error(rw, "failed to encode the AdmissionReview", http.StatusInternalServerError)
		return
	}
	code := http.StatusOK
	if answer.Response.UID == "" {
		code = int(answer.Response.Result.Code)
	}
	if code == http.StatusMethodNotAllowed {
		rw.Header().Set("Allow", http.MethodPost)
	}
	rw.Header().Set("Content-Type", mediaType)
	rw.WriteHeader(code)
	if _, err := rw.Write(encoded); err != nil {
		klog.FromContext(r.Context()).V(4).Info("The caller disconnected before the response was written", "cause", err.Error())
	}
}
