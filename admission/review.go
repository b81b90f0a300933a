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
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reviewKind is the kind of what comes in and of what goes out.
const reviewKind = "AdmissionReview"

// reviewVersions are those that are understood. Their JSON is the same
// (k8s.io/api admission/v1 and v1beta1), so that one set of types does for both.
func reviewVersions() []string {
	return []string{"admission.k8s.io/v1", "admission.k8s.io/v1beta1"}
}

// review is an AdmissionReview as far as it is read. Objects stay bytes: most are not
// looked into, and decoding into types would lose fields that they do not know.
type review struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Request    *reviewRequest `json:"request"`
}

type reviewRequest struct {
	UID         types.UID                   `json:"uid"`
	Kind        metav1.GroupVersionKind     `json:"kind"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	Name        string                      `json:"name"`
	Namespace   string                      `json:"namespace"`
	Operation   Operation                   `json:"operation"`
	UserInfo    authenticationv1.UserInfo   `json:"userInfo"`
	Object      jsontext.Value              `json:"object"`
	OldObject   jsontext.Value              `json:"oldObject"`
	DryRun      *bool                       `json:"dryRun"`
	Options     jsontext.Value              `json:"options"`
}

// envelope is what an answer takes from the question, whatever else is wrong with it.
type envelope struct {
	apiVersion string
	uid        types.UID
}

// decodeReview reads body as the apiserver would. The envelope is as complete as can be,
// also when the review cannot be used.
func decodeReview(body []byte) (*Request, envelope, error) {
	var r review
	err := decodeLeniently(body, &r)
	found := r.envelope()
	if err != nil {
		if found.uid == "" {
			found = findEnvelope(bytes.NewReader(body))
		}
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"the body is not an AdmissionReview in JSON: %v", err)
	}
	if r.Kind != reviewKind || !slices.Contains(reviewVersions(), r.APIVersion) {
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest,
			"found apiVersion %.100q, kind %.100q; understood is kind %s of apiVersion %q", r.APIVersion, r.Kind, reviewKind, reviewVersions())
	}
	if r.Request == nil {
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the AdmissionReview has no request")
	}
	if r.Request.UID == "" {
		return nil, found, invalidReview(http.StatusBadRequest, metav1.StatusReasonBadRequest, "the request of the AdmissionReview has no uid")
	}
	return r.Request.decoded(), found, nil
}

func (r *review) envelope() envelope {
	found := envelope{apiVersion: r.APIVersion}
	if r.Request != nil {
		found.uid = r.Request.UID
	}
	return found
}

func (r *reviewRequest) decoded() *Request {
	return &Request{
		UID:         r.UID,
		Kind:        r.Kind,
		Resource:    r.Resource,
		SubResource: r.SubResource,
		Name:        r.Name,
		Namespace:   r.Namespace,
		Operation:   r.Operation,
		User:        r.UserInfo,
		DryRun:      r.DryRun != nil && *r.DryRun,
		Object:      notNull(r.Object),
		OldObject:   notNull(r.OldObject),
		Options:     notNull(r.Options),
	}
}

func notNull(raw jsontext.Value) []byte {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}

// allowedReview answers yes, with what the plugins said.
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

// refusedReview answers no. Warnings and audit annotations go with it, a patch does not.
func refusedReview(e envelope, response *Response, err error) *admissionv1.AdmissionReview {
	answer := e.answer(response)
	answer.Response.Result = statusOf(err)
	return answer
}

// answer speaks the version of the question, and v1 where that is not known.
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

// findEnvelope reads no more of body than it takes to answer it: the apiserver writes
// kind, apiVersion and the uid first. It finds them in JSON that breaks off later, and
// holds no more in memory than the longest string before them.
func findEnvelope(body io.Reader) envelope {
	var found envelope
	decoder := jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
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

// eachField calls visit with the keys of the object that comes next. Visit reads the
// value and returns false to end it all.
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

// stringValue reports whether a string comes next. It is read, as whatever else comes is.
func stringValue(decoder *jsontext.Decoder) (string, bool) {
	token, err := decoder.ReadToken()
	if err != nil || token.Kind() != '"' {
		return "", false
	}
	return token.String(), true
}

// Decode reads an object of a request into Go types that name the members of interest.
// Members match with their case, as in kube-apiserver, and unknown ones are stepped over.
// It refuses what two readers could understand differently: repeated members, and text
// that is not UTF-8. The error has no value of the object in it.
func Decode(object []byte, into any) error {
	return withoutValues(json.Unmarshal(object, into))
}

// decodeLeniently is Decode as the apiserver would do it: of repeated members the last one
// counts. It is for the review, which the apiserver has written.
func decodeLeniently(body []byte, into any) error {
	return withoutValues(json.Unmarshal(body, into, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)))
}

// withoutValues keeps what was sent out of an error: it ends in answers and in logs.
func withoutValues(err error) error {
	if wrongType, ok := errors.AsType[*json.SemanticError](err); ok {
		// The names in it may be as long as a body.
		return fmt.Errorf("%.100q is %s, which does not belong there", wrongType.JSONPointer, described(wrongType))
	}
	if malformed, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fmt.Errorf("%w at byte %d", malformed.Err, malformed.ByteOffset)
	}
	return err
}

// described says what was found, where that is what is wrong with it.
func described(found *json.SemanticError) string {
	kind := found.JSONKind
	if found.Err != nil {
		kind = 0
	}
	switch kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n', 't', 'f':
		return kind.String() // null, true or false
	default:
		return "a value"
	}
}
