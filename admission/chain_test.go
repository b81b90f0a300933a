// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// sees is a mutator that writes down the object it gets.
func sees(objects *[]string) decide {
	return func(_ context.Context, request *Request, _ *Response) error {
		*objects = append(*objects, string(request.Object))
		return nil
	}
}

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
	const plain = `{"metadata":{"name":"web"},"spec":{}}`
	other := mutator{base{rules: []Rule{{Resource: "services", Operations: []Operation{Any}}}}, panics("must not be called")}
	cases := map[string]struct {
		reason   string
		chain    func(objects *[]string) Chain
		request  *Request
		objects  []string
		patch    []string
		warnings []string
		refusal  string
	}{
		"empty chain": {
			reason: "nothing objects",
			chain:  func(*[]string) Chain { return nil },
		},
		"no match": {
			reason: "a plugin that does not match is not called",
			chain:  func(*[]string) Chain { return Chain{{Name: "other", Plugin: other}} },
		},
		"validator": {
			reason: "it has no say in mutation",
			chain:  func(*[]string) Chain { return Chain{{Name: "v", Plugin: validates(panics("must not be called"))}} },
		},
		"one mutator": {
			reason:  "it sees the object as it came",
			chain:   func(objects *[]string) Chain { return Chain{{Name: "a", Plugin: mutates(sees(objects))}} },
			objects: []string{plain},
		},
		"later mutators see the patches": {
			reason: "and the patch of all is the patches in order",
			chain: func(objects *[]string) Chain {
				return Chain{
					{Name: "a", Plugin: mutates(adds("/spec/a", `1`))},
					{Name: "other", Plugin: other},
					{Name: "b", Plugin: mutates(sees(objects))},
					{Name: "c", Plugin: mutates(adds("/spec/c", `2`))},
					{Name: "d", Plugin: mutates(sees(objects))},
				}
			},
			objects: []string{`{"metadata":{"name":"web"},"spec":{"a":1}}`, `{"metadata":{"name":"web"},"spec":{"a":1,"c":2}}`},
			patch:   []string{"add /spec/a 1", "add /spec/c 2"},
		},
		"unknown fields and numbers survive": {
			reason: "objects are bytes",
			chain: func(objects *[]string) Chain {
				return Chain{{Name: "a", Plugin: mutates(adds("/b", `[]`))}, {Name: "b", Plugin: mutates(sees(objects))}}
			},
			request: &Request{Resource: pods, Operation: Create, Object: []byte(`{"a":{"z":18446744073709551617,"a":1.50}}`)},
			objects: []string{`{"a":{"z":18446744073709551617,"a":1.50},"b":[]}`},
			patch:   []string{"add /b []"},
		},
		"the first refusal ends it": {
			reason: "nobody after it is called, and no patch is left",
			chain: func(*[]string) Chain {
				return Chain{
					{Name: "a", Plugin: mutates(adds("/spec/a", `1`))},
					{Name: "b", Plugin: mutates(refuse)},
					{Name: "c", Plugin: mutates(panics("must not be called"))},
				}
			},
			refusal: `pods "web" is forbidden: boom`,
		},
		"warnings go on": {
			reason: "also those of who refuses",
			chain: func(*[]string) Chain {
				return Chain{{Name: "a", Plugin: mutates(warns("first", nil))}, {Name: "b", Plugin: mutates(warns("second", errBoom))}}
			},
			warnings: []string{"first", "second"},
			refusal:  "boom",
		},
		"not ready": {
			reason: "Forbidden, in upstream's words",
			chain: func(*[]string) Chain {
				notYet := base{rules: []Rule{podRule()}, ready: func(context.Context) error { return errNotReady }}
				return Chain{{Name: "a", Plugin: mutator{notYet, panics("must not be called")}}}
			},
			refusal: `pods "web" is forbidden: not yet ready to handle request`,
		},
		"not ready with a status": {
			reason: "a plugin may choose its own",
			chain: func(*[]string) Chain {
				notYet := base{rules: []Rule{podRule()}, ready: func(context.Context) error { return TooManyRequests("soon") }}
				return Chain{{Name: "a", Plugin: mutator{notYet, panics("must not be called")}}}
			},
			refusal: "soon",
		},
		"panic": {
			reason: "a refusal that names the plugin and tells nothing of the object",
			chain: func(*[]string) Chain {
				return Chain{{Name: "a", Plugin: mutates(panics(`{"secret":"hunter2"}`))}}
			},
			refusal: "Internal error occurred: plugin a panicked; the log of sa-controller-manager has the details",
		},
		"broken patch": {
			reason: "it is found when the next plugin needs the object",
			chain: func(*[]string) Chain {
				return Chain{{Name: "a", Plugin: mutates(adds("/no/such", `1`))}, {Name: "b", Plugin: mutates(allow)}}
			},
			refusal: "Internal error occurred: apply the patch of the plugins before b: ",
		},
		"patch without object": {
			reason: "there is nothing to patch",
			chain: func(*[]string) Chain {
				all := mutator{base{rules: []Rule{{Resource: "pods", Operations: []Operation{Any}}}}, adds("/a", `1`)}
				return Chain{{Name: "a", Plugin: all}}
			},
			request: &Request{Resource: pods, Operation: Delete, Name: "web"},
			refusal: "Internal error occurred: plugin a patched a request that has no object",
		},
		"chain in a chain": {
			reason: "a chain is a plugin",
			chain: func(objects *[]string) Chain {
				inner := Chain{{Name: "a", Plugin: mutates(adds("/spec/a", `1`))}}
				return Chain{{Name: "inner", Plugin: inner}, {Name: "b", Plugin: mutates(sees(objects))}}
			},
			objects: []string{`{"metadata":{"name":"web"},"spec":{"a":1}}`},
			patch:   []string{"add /spec/a 1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request := tc.request
			if request == nil {
				request = createPod("web")
			}
			before := string(request.Object)
			var objects []string
			response := &Response{}
			err := tc.chain(&objects).Admit(t.Context(), request, response)
			if tc.refusal == "" && err != nil || tc.refusal != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.refusal)) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.refusal)
			}
			testutil.Check(t, tc.reason+": objects seen", tc.objects, objects)
			testutil.Check(t, tc.reason+": patch", tc.patch, patchOf(response))
			testutil.Check(t, tc.reason+": warnings", tc.warnings, response.Warnings)
			testutil.Check(t, tc.reason+": audit annotations", len(tc.warnings), len(response.AuditAnnotations))
			if string(request.Object) != before {
				t.Errorf("%s: the request changed to %s", tc.reason, request.Object)
			}
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
		"empty":     {reason: "nothing objects"},
		"mutator":   {reason: "it has no say in validation", chain: Chain{{Name: "m", Plugin: mutates(refuse)}}},
		"all agree": {reason: "allowed", chain: Chain{{Name: "a", Plugin: validates(allow)}, {Name: "b", Plugin: validates(allow)}}},
		"first in order": {
			reason: "the second refusal is not heard",
			chain: Chain{
				{Name: "a", Plugin: validates(allow)}, {Name: "b", Plugin: validates(warns("b", errBoom))}, {Name: "c", Plugin: validates(panics(1))},
			},
			refusal: "boom",
		},
		"no match": {reason: "skipped", chain: Chain{{Name: "a", Plugin: validator{base{}, refuse}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := tc.chain.Validate(t.Context(), createPod("web"), &Response{})
			if got := text(err); got != tc.refusal {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.refusal)
			}
		})
	}
}

func TestValidatorsCannotPatch(t *testing.T) {
	t.Parallel()
	response := &Response{}
	testutil.Must(t, (Chain{{Name: "a", Plugin: validates(adds("/a", `1`))}}).Validate(t.Context(), createPod("web"), response))
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
	chain := Chain{
		{Name: "a", Plugin: selective{mutator{base{rules: []Rule{podRule(), services}}, note(&admitted)}, note(&validated)}},
		{Name: "b", Plugin: mutates(allow)}, {Name: "c", Plugin: validates(allow)},
	}
	for _, resource := range []string{"pods", "services", "nodes"} {
		request := createPod("web")
		request.Resource.Resource = resource
		for _, decide := range []decideFunc{chain.Admit, chain.Validate} {
			if err := decide(t.Context(), request, &Response{}); err != nil {
				t.Errorf("%s: %v", resource, err)
			}
		}
	}
	got := map[string]any{
		"admitted": admitted, "validated": validated, "mutating": chain.MutatingRules(), "validating": chain.ValidatingRules(),
		"all": chain.Rules(), "names": chain.Names(),
	}
	want := map[string]any{
		"admitted": []string{"pods"}, "validated": []string{"pods", "services"},
		"mutating": []Rule{podRule(), podRule()}, "validating": []Rule{podRule(), services, podRule()},
		"all": []Rule{podRule(), podRule(), podRule(), services, podRule()}, "names": []string{"a", "b", "c"},
	}
	testutil.Check(t, "result", want, got)
}

func TestChainReady(t *testing.T) {
	t.Parallel()
	notYet := mutator{base{ready: func(context.Context) error { return errBoom }}, allow}
	chain := Chain{{Name: "a", Plugin: mutates(allow)}, {Name: "b", Plugin: notYet}}
	if err := chain.Ready(t.Context()); !errors.Is(err, errBoom) || err.Error() != "plugin b: boom" {
		t.Errorf("got %v, want the plugin and its reason", err)
	}
	if err := chain[:1].Ready(t.Context()); err != nil {
		t.Errorf("a ready chain is not ready: %v", err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
