// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func warns(text string, then error) decide {
	return func(_ context.Context, _ *Request, response *Response) error {
		response.Warnings = append(response.Warnings, text)
		response.AuditAnnotations = map[string]string{text: "said"}
		return then
	}
}

func panics(value any) decide {
	return func(context.Context, *Request, *Response) error { panic(value) }
}

func patchOf(response *Response) []string {
	var lines []string
	for _, o := range response.Patch {
		lines = append(lines, o.Op+" "+o.Path+" "+string(o.Value))
	}
	return lines
}

func TestChainAdmit(t *testing.T) {
	t.Parallel()
	var objects []string // as the plugins see them
	sees := mutates(func(_ context.Context, request *Request, _ *Response) error {
		objects = append(objects, string(request.Object))
		return nil
	})
	never := mutates(panics("must not be called"))
	notYet := mutator{base{[]Rule{podRule()}, func(context.Context) error { return errNotReady }}, panics("must not be called")}
	services := mutator{base{rules: []Rule{{Resource: "services", Operations: []Operation{Any}}}}, panics("must not be called")}
	anything := mutator{base{rules: []Rule{{Resource: "pods", Operations: []Operation{Any}}}}, adds("/a", `1`)}
	cases := map[string]struct {
		reason   string
		chain    Chain
		request  *Request
		objects  []string
		patch    []string
		warnings []string
		refusal  string
	}{
		"validator": {reason: "it has no say in mutation", chain: chainOf(validates(panics("must not be called")))},
		"later mutators see the patches": {
			reason:  "and the patch of all is the patches in order",
			chain:   chainOf(mutates(adds("/spec/a", `1`)), services, sees, mutates(adds("/spec/c", `2`)), sees),
			objects: []string{`{"metadata":{"name":"web"},"spec":{"a":1}}`, `{"metadata":{"name":"web"},"spec":{"a":1,"c":2}}`},
			patch:   []string{"add /spec/a 1", "add /spec/c 2"},
		},
		"unknown fields and numbers survive": {
			reason:  "objects are bytes",
			chain:   chainOf(mutates(adds("/b", `[]`)), sees),
			request: &Request{Resource: pods, Operation: Create, Object: []byte(`{"a":{"z":18446744073709551617,"a":1.50}}`)},
			objects: []string{`{"a":{"z":18446744073709551617,"a":1.50},"b":[]}`},
			patch:   []string{"add /b []"},
		},
		"the first refusal ends it": {
			reason: "nobody after it is called, and no patch is left", chain: chainOf(mutates(adds("/spec/a", `1`)), mutates(refuse), never),
			refusal: `pods "web" is forbidden: boom`,
		},
		"warnings go on": {
			reason: "also those of who refuses", chain: chainOf(mutates(warns("first", nil)), mutates(warns("second", errBoom))),
			warnings: []string{"first", "second"}, refusal: "boom",
		},
		"not ready": {
			reason: "Forbidden, in upstream's words", chain: chainOf(notYet),
			refusal: `pods "web" is forbidden: not yet ready to handle request`,
		},
		"panic": {
			reason:  "a refusal that names the plugin and tells nothing of the object",
			chain:   chainOf(mutates(panics(`{"secret":"hunter2"}`))),
			refusal: "Internal error occurred: plugin a panicked; the log of sa-controller-manager has the details",
		},
		"broken patch": {
			reason: "it is found when the next plugin needs the object", chain: chainOf(mutates(adds("/no/such", `1`)), mutates(allow)),
			refusal: "Internal error occurred: apply the patch of the plugins before b: ",
		},
		"patch without object": {
			reason: "there is nothing to patch", chain: chainOf(anything), request: &Request{Resource: pods, Operation: Delete, Name: "web"},
			refusal: "Internal error occurred: plugin a patched a request that has no object",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request := tc.request
			if request == nil {
				request = createPod("web")
			}
			before := string(request.Object)
			objects = nil
			response := &Response{}
			err := tc.chain.Admit(t.Context(), request, response)
			if (err == nil) != (tc.refusal == "") || !strings.HasPrefix(text(err), tc.refusal) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.refusal)
			}
			testutil.Check(t, tc.reason+": objects seen", tc.objects, objects)
			testutil.Check(t, tc.reason+": patch", tc.patch, patchOf(response))
			testutil.Check(t, tc.reason+": warnings", tc.warnings, response.Warnings)
			testutil.Check(t, tc.reason+": audit annotations", len(tc.warnings), len(response.AuditAnnotations))
			testutil.Check(t, tc.reason+": request", before, string(request.Object))
		})
	}
}

func TestChainValidate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		chain   Chain
		refusal string
	}{
		"mutator": {reason: "it has no say in validation", chain: chainOf(mutates(refuse))},
		"first in order": {
			reason:  "the second refusal is not heard",
			chain:   chainOf(validates(allow), validates(warns("b", errBoom)), validates(panics(1))),
			refusal: "boom",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.chain.Validate(t.Context(), createPod("web"), &Response{})
			testutil.Check(t, tc.reason, tc.refusal, text(err))
		})
	}
}

func TestValidatorsCannotPatch(t *testing.T) {
	t.Parallel()
	response := &Response{}
	testutil.Must(t, chainOf(validates(adds("/a", `1`))).Validate(t.Context(), createPod("web"), response))
	if len(response.Patch) > 0 {
		t.Errorf("a validator's patch got through: %v", patchOf(response))
	}
}

// selective mutates Pods and validates services besides.
type selective struct {
	mutator
	validate decide
}

func (selective) MutatingRules() []Rule { return []Rule{podRule()} }

func (s selective) Validate(ctx context.Context, r *Request, o *Response) error {
	return s.validate(ctx, r, o)
}

// A plugin that changes less than it judges is asked to change no more than that, and no
// more is registered for it.
func TestChainMutatesSelectively(t *testing.T) {
	t.Parallel()
	services := Rule{Resource: "services", Operations: []Operation{Create}}
	var admitted, validated []string
	note := func(where *[]string) decide {
		return func(_ context.Context, r *Request, _ *Response) error {
			*where = append(*where, r.Resource.Resource)
			return nil
		}
	}
	both := selective{mutator{base{rules: []Rule{podRule(), services}}, note(&admitted)}, note(&validated)}
	chain := chainOf(both, mutates(allow), validates(allow))
	for _, resource := range []string{"pods", "services", "nodes"} {
		request := createPod("web")
		request.Resource.Resource = resource
		for _, decide := range []decideFunc{chain.Admit, chain.Validate} {
			testutil.CheckError(t, resource, "", decide(t.Context(), request, &Response{}))
		}
	}
	testutil.Check(t, "admitted", []string{"pods"}, admitted)
	testutil.Check(t, "validated", []string{"pods", "services"}, validated)
	testutil.Check(t, "names", []string{"a", "b", "c"}, names(chain))
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
