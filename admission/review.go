// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reviewKind is the kind of requests and responses.
const reviewKind = "AdmissionReview"

// reviewVersions lists the supported versions. Their JSON is the same (k8s.io/api admission/v1 and
// v1beta1), so one set of types serves both.
func reviewVersions() []string {
	return []string{"admission.k8s.io/v1", "admission.k8s.io/v1beta1"}
}

// review holds the fields of an AdmissionReview that are decoded. Objects stay bytes: most are
// never decoded, and Go types would lose unknown fields.
type review struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Request    *reviewRequest `json:"request"`
}

type reviewRequest struct {
	Request

	Object span `json:"object"`
}

// span is where a value is in the review: a copy of the value would take as much memory again.
type span struct {
	from, to int64
	parts    int // the names, values and ends that decoding it goes through
}

// errParts is the error of a value that is refused before it is decoded.
var errParts = fmt.Errorf(
	"the object has a list or map of more than %d elements, more than %d names and values, or names of more than %d bytes",
	maxLength, maxParts, maxNames)

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (s *span) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	*s = span{}
	if kind := decoder.PeekKind(); kind != '{' && kind != '[' {
		value, err := decoder.ReadValue()
		s.to = decoder.InputOffset()
		s.from = s.to - int64(len(value))
		return err
	}
	outer, names := decoder.StackDepth(), int64(0)
	for s.parts == 0 || decoder.StackDepth() > outer {
		before := decoder.InputOffset()
		if _, err := decoder.ReadToken(); err != nil {
			return err
		}
		if s.parts == 0 {
			s.from = decoder.InputOffset() - 1
		}
		kind, length := decoder.StackIndex(decoder.StackDepth())
		if kind == '{' {
			names += length % 2 * (decoder.InputOffset() - before) // an odd one is a name
			length /= 2
		}
		if s.parts++; length > maxLength || s.parts > maxParts || names > maxNames {
			return errParts
		}
	}
	s.to = decoder.InputOffset()
	return nil
}

// of returns the value, nil if the review omits it or has null.
func (s *span) of(body []byte) []byte {
	value := body[s.from:s.to:s.to]
	if len(value) == 0 || string(value) == "null" {
		return nil
	}
	return value
}

// envelope holds the fields that a response repeats from its request, even if something else is wrong with
// that.
type envelope struct {
	apiVersion string
	uid        types.UID
}

// decodeReview decodes body as the apiserver would. It returns as much of the envelope as it finds,
// even with an error. The objects of the Request are parts of body.
func decodeReview(body []byte) (*Request, envelope, error) {
	if hasLongName(body) {
		return nil, findEnvelope(bytes.NewReader(body)),
			errTooLarge("the AdmissionReview has a field with a name of more than %d bytes", maxName)
	}
	var r review
	// Of duplicate fields the last one wins.
	err := json.Unmarshal(body, &r, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	found := r.envelope()
	if err != nil && found.uid == "" {
		found = findEnvelope(bytes.NewReader(body))
	}
	if errors.Is(err, errParts) {
		return nil, found, errTooLarge("%v", errParts)
	}
	if err != nil {
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"the body is not an AdmissionReview in JSON: %v", withoutValues(err))
	}
	if r.Kind != reviewKind || !slices.Contains(reviewVersions(), r.APIVersion) {
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"found apiVersion %.100q, kind %.100q; expected kind %s of apiVersion %q", r.APIVersion, r.Kind, reviewKind, reviewVersions())
	}
	if r.Request == nil {
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the AdmissionReview has no request")
	}
	q := r.Request
	if found.uid == "" || max(len(q.Name), len(q.Namespace), len(q.Resource.Group), len(q.Resource.Resource), len(q.Operation)) > maxText {
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"the request of the AdmissionReview has no uid, or a uid, name, namespace, resource or operation of more than %d bytes",
			maxText)
	}
	q.Request.Object, q.parts = q.Object.of(body), q.Object.parts
	return &q.Request, found, nil
}

// hasLongName reports whether a string of more than maxName bytes is the name of a field, or may be one.
func hasLongName(body []byte) bool {
	for len(body) > maxName {
		_, body, _ = bytes.Cut(body, []byte{'"'})
		size := 0
		for ; size < len(body) && body[size] != '"'; size++ {
			if body[size] == '\\' {
				size++
			}
		}
		body = body[min(size+1, len(body)):]
		if next := bytes.TrimLeft(body, " \t\r\n"); size > maxName && len(next) > 0 && !bytes.ContainsAny(next[:1], ",}]") {
			return true
		}
	}
	return false
}

func (r *review) envelope() envelope {
	found := envelope{apiVersion: r.APIVersion}
	if r.Request != nil && len(r.Request.UID) <= maxText { // a longer one is none
		found.uid = r.Request.UID
	}
	return found
}

// allowedReview returns a response that allows the request.
func allowedReview(e envelope, response *Response) (*admissionv1.AdmissionReview, error) {
	answer := e.answer(response)
	answer.Response.Allowed = true
	if len(response.Patch) == 0 {
		return answer, nil
	}
	patch, err := encodePatch(response.Patch)
	if err != nil {
		return nil, err
	}
	patchType := admissionv1.PatchTypeJSONPatch
	answer.Response.Patch, answer.Response.PatchType = patch, &patchType
	return answer, nil
}

// refusedReview returns a response that refuses the request. It has the warnings and audit
// annotations of response but not its patch.
func refusedReview(e envelope, response *Response, err error) *admissionv1.AdmissionReview {
	answer := e.answer(response)
	answer.Response.Result = statusOf(err)
	return answer
}

// answer returns a response in the version of the request, or in v1 if that version is unknown.
func (e envelope) answer(response *Response) *admissionv1.AdmissionReview {
	version := e.apiVersion
	if !slices.Contains(reviewVersions(), version) {
		version = reviewVersions()[0]
	}
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: reviewKind},
		Response: &admissionv1.AdmissionResponse{
			UID:              e.uid,
			Warnings:         response.Warnings,
			AuditAnnotations: response.AuditAnnotations,
		},
	}
}

// findEnvelope reads no more of body than the envelope takes: the apiserver writes kind, apiVersion
// and the uid first. It works on truncated JSON.
func findEnvelope(body io.Reader) envelope {
	var found envelope
	decoder := jsontext.NewDecoder(io.LimitReader(body, 4<<10), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	eachField(decoder, func(key string) bool {
		switch key {
		case "apiVersion":
			found.apiVersion, _ = stringValue(decoder)
			return found.apiVersion != ""
		case "request":
			eachField(decoder, func(key string) bool {
				if key != "uid" {
					return decoder.SkipValue() == nil
				}
				uid, _ := stringValue(decoder)
				found.uid = types.UID(uid)
				return false
			})
			return false
		default:
			return decoder.SkipValue() == nil
		}
	})
	return found
}

// eachField calls visit with each key of the next object. Visit reads the value and returns false
// to stop.
func eachField(decoder *jsontext.Decoder, visit func(key string) bool) {
	if token, err := decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return
	}
	for {
		key, ok := stringValue(decoder)
		if !ok || !visit(key) {
			return
		}
	}
}

// stringValue reads the next token and reports whether it is a string.
func stringValue(decoder *jsontext.Decoder) (string, bool) {
	token, err := decoder.ReadToken()
	if err != nil || token.Kind() != '"' {
		return "", false
	}
	return token.String(), true
}

// Decode decodes an object of a request into Go types that declare only the fields of interest.
// Field names are case-sensitive, as in kube-apiserver, and unknown fields are skipped. It refuses
// what two decoders could read differently: duplicate fields, and text that is not UTF-8. The error
// contains no value of the object.
func Decode(object []byte, into any) error {
	return withoutValues(json.Unmarshal(object, into))
}

// withoutValues removes the caller's data from err, which ends up in responses and logs.
func withoutValues(err error) error {
	if wrongType, ok := errors.AsType[*json.SemanticError](err); ok {
		// Field names may be as long as the body.
		return fmt.Errorf("%.100q has a value that does not belong there", wrongType.JSONPointer)
	}
	if malformed, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("%w at byte %d", malformed.Err, malformed.ByteOffset)
	}
	return err
}
