// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// The plugin refuses a request by returning an error. The functions below return the usual ones. Any
// other apierrors.APIStatus keeps its code, reason and details; a plain error becomes 500
// InternalError. The apiserver shows all of it to the user and puts `admission webhook "..." denied
// the request: ` in front of the message.

// Forbidden returns a 403 error with the text of kube-apiserver's own plugins: `pods "web" is
// forbidden: reason` (admission.NewForbidden in k8s.io/apiserver). A reason that already is
// Forbidden is returned unchanged.
func Forbidden(request *Request, reason error) error {
	if apierrors.IsForbidden(reason) {
		return reason
	}
	return apierrors.NewForbidden(request.groupResource(), request.displayName(), reason)
}

// TooManyRequests returns a 429 error. Clients retry after a second: without a number the apiserver
// sends no Retry-After header, and clients do not retry.
func TooManyRequests(message string) error { return apierrors.NewTooManyRequests(message, 1) }

// Internal returns a 500 error: the request may be fine, but the webhook failed. client-go does not
// retry it, because the error has no Retry-After; controllers do, as after any refusal.
func Internal(err error) error { return apierrors.NewInternalError(err) }

// invalidReview returns an error with code, for a call that is not a usable AdmissionReview.
func invalidReview(code int32, reason metav1.StatusReason, format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    code,
		Reason:  reason,
		Message: fmt.Sprintf(format, args...),
	}}
}

// statusOf is the only place that turns an error into what the client sees. The result is never
// shared and is always a failure with a code of at least 400, because the apiserver would rewrite
// anything else.
func statusOf(err error) *metav1.Status {
	status := asStatus(err).DeepCopy()
	status.Status = metav1.StatusFailure
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusInternalServerError
	}
	return status
}

func asStatus(err error) *metav1.Status {
	if api := apierrors.APIStatus(nil); errors.As(err, &api) {
		status := api.Status()
		return &status
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &apierrors.NewTimeoutError(err.Error(), 1).ErrStatus
	}
	return &apierrors.NewInternalError(err).ErrStatus
}

// notReadyError marks a refusal because the plugin is not ready. Users see no difference; metrics
// count it as an error and not as a refusal of the object.
type notReadyError struct{ error }

func (e notReadyError) Unwrap() error { return e.error }

func (r *Request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
}

// displayName returns the name for messages. With generateName there is no name yet. The
// placeholders are upstream's; the one with the slash can never be a real name.
func (r *Request) displayName() string {
	if r.Name != "" {
		return r.Name
	}
	if r.Object == nil {
		return "Unknown"
	}
	var object struct {
		Metadata *struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(r.Object, &object); err != nil || object.Metadata == nil {
		return "Unknown/errorGettingName"
	}
	return Short(cmp.Or(object.Metadata.Name, object.Metadata.GenerateName, "Unknown"))
}

// Short returns the beginning of an unchecked name, for an error.
func Short(name string) string { return name[:min(len(name), maxText)] }

// recoverAs must be deferred. It turns a panic into a refusal, and logs the stack.
//
// The value of a panic may quote the object, which may hold secrets. Only errors of the Go runtime
// are known not to; of any other value only the type is logged.
func recoverAs(ctx context.Context, err *error) {
	value := recover()
	if value == nil {
		return
	}
	cause := fmt.Sprintf("a value of type %T", value)
	if known, ok := value.(runtime.Error); ok {
		cause = known.Error()
	}
	klog.FromContext(ctx).Error(nil, "Recovered from a panic and refused the request", "cause", cause, "stack", string(debug.Stack()))
	*err = Internal(errors.New("the admission webhook panicked; the log of sa-controller-manager has the details"))
}
