// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
)

const plain = `apiVersion: v1
kind: Pod
spec:
  containers:
  - command:
    - program
    - --one=1
    - --two=2
    image: example.org/program
`

func TestApply(t *testing.T) {
	t.Parallel()
	add := Operation{Op: "add", Path: "/spec/containers/0/command/-", Value: "--three=<&>é"}
	cases := map[string]struct {
		reason, before string
		patch          []Operation
		want, refused  string
	}{
		"Nothing": {reason: "comments stay", before: "# c\n" + plain, want: "# c\n" + plain},
		"Add":     {before: plain, patch: []Operation{add}, want: strings.Replace(plain, "--two=2\n", "--two=2\n    - --three=<&>é\n", 1)},
		"HandWritten": {
			reason: "it is printed as kubeadm does", patch: []Operation{{Op: "remove", Path: "/spec/containers/0/command/1"}},
			before: "spec: {containers: [{image: &i 'example.org/program', command: [program, --one=1, \"--two=2\"]}]} # c\r\n" +
				"kind: Pod\r\napiVersion: v1\r\n",
			want: strings.Replace(plain, "    - --one=1\n", "", 1),
		},
		"UnknownFields": {
			reason: "of a newer Kubernetes", before: plain + "    newField: 1\n", patch: []Operation{add}, refused: "",
			want: strings.Replace(plain, "--two=2\n", "--two=2\n    - --three=<&>é\n", 1) + "    newField: 1\n",
		},
		"NoList": {
			before: plain, patch: []Operation{{Op: "add", Path: "/spec/volumes/0", Value: map[string]any{"name": "x"}}},
			refused: "it lacks what is to be changed: ",
		},
		"NoFlag": {
			before: plain, refused: "which is no flag", patch: []Operation{{Op: "add", Path: "/spec/containers/0/command/-", Value: "two"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := testutil.Get(Parse([]byte(tc.before), "program"))(t)
			patched, err := m.Apply(tc.patch)
			if tc.refused != "" {
				testutil.CheckError(t, "error", tc.refused, err)
				return
			}
			testutil.Must(t, err)
			testutil.Check(t, tc.reason, tc.want, string(patched.Bytes()))
			testutil.Expect(t, string(m.Bytes()) == tc.before, "the manifest before was changed")
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	command := func(items string) string {
		return "kind: Pod\nspec:\n  containers:\n  - image: x\n    command:" + items
	}
	cases := map[string]struct{ manifest, want string }{
		"Empty":         {"", "it is empty"},
		"NotYAML":       {"a: [", "it is not YAML"},
		"NotAnObject":   {"- a", "it is not a Pod"},
		"OtherKind":     {"kind: Deployment", `its kind is "Deployment"`},
		"TwoDocuments":  {plain + "---\n" + plain, "more than one YAML document"},
		"KeyTwice":      {plain + "kind: Pod\n", "already set in map"},
		"NotUTF8":       {plain + "#\xff", "it is not YAML"},
		"NoContainer":   {"kind: Pod\nspec:\n  containers: []\n", "it has 0 containers"},
		"TwoContainers": {plain + "  - name: sidecar\n", "it has 2 containers"},
		"Args":          {plain + "    args: [--x=1]\n", "it has args"},
		"NoCommand":     {"kind: Pod\nspec:\n  containers:\n  - image: x\n", "its container has no command"},
		"OneString":     {command(" program\n"), "it is not a Pod"},
		"Shell":         {command("\n    - sh\n    - -c\n    - program --x=1\n"), `its command runs "sh"`},
		"OtherProgram":  {command("\n    - other\n"), `its command runs "other", want "program"`},
		"ValueApart":    {command("\n    - program\n    - --x\n    - \"1\"\n"), `the string "1", which is no flag`},
		"EndOfFlags":    {command("\n    - program\n    - --\n"), `the string "--", which is no flag`},
		"Number":        {command("\n    - program\n    - 1\n"), "it is not a Pod"},
		"Nested":        {command("\n    - program\n    - [--x=1]\n"), "it is not a Pod"},
		"CutInCommand": {
			"kind: Pod\nspec:\n  containers:\n  - command:\n    - program\n    - --x=", "has no image; the file may be cut off",
		},
		"CutInVolumes": {plain + "    volumeMounts:\n    - mountPath: /a\n      name: a\n", "it has no volume a"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.manifest), "program")
			testutil.CheckError(t, "error", tc.want, err)
		})
	}
}

// TestCheck is about Pods that kube-apiserver refuses, and so a kubelet.
func TestCheck(t *testing.T) {
	t.Parallel()
	const head, volumes = "kind: Pod\nspec:\n  containers:\n  - volumeMounts:\n", "  volumes: [{name: a}, {name: b}]\n"
	for name, tc := range map[string]struct{ reason, manifest, want string }{
		"Stock": {manifest: head + "    - {mountPath: /a, name: a}\n    - {mountPath: /b, name: b}\n" + volumes},
		"Inner": {
			reason: "one hides a part of the other, on purpose", manifest: head +
				"    - {mountPath: /a, name: a}\n    - {mountPath: /a/b, name: b}\n" + volumes,
		},
		"Twice": {
			manifest: head + "    - {mountPath: /a, name: a}\n    - {mountPath: /a, name: b}\n" + volumes,
			want:     "its volumeMounts a and b are both at /a",
		},
		"Spelled": {
			reason: "the same directory", manifest: head + "    - {mountPath: /a, name: a}\n    - {mountPath: /a/, name: b}\n" + volumes,
			want: "are both at /a",
		},
		"InitTwice": {
			manifest: "kind: Pod\nspec:\n  initContainers:\n  - volumeMounts: [{mountPath: /a, name: a}, {mountPath: /a, name: b}]\n" +
				volumes,
			want: "are both at /a",
		},
		"Names": {manifest: "kind: Pod\nspec:\n  volumes: [{name: a}, {name: a}]\n", want: `it has two volumes called "a"`},
	} {
		spec := staticpodtest.Spec(t, []byte(tc.manifest))
		err := check(&spec)
		testutil.CheckError(t, name+" "+tc.reason, tc.want, err)
	}
}

// TestHostPath: the innermost of nested mounts counts.
func TestHostPath(t *testing.T) {
	t.Parallel()
	m := testutil.Get(Parse(staticpodtest.Manifest([]string{"program"}), "program"))(t)
	for file, want := range map[string]string{
		"/certs/ca.crt":                     "/etc/kubernetes/ssl/ca.crt",
		"/certs/inner/ca.crt":               "/etc/kubernetes/pki/etcd/ca.crt",
		"/certs/inner/most/ca.crt":          "/etc/kubernetes/ca.crt",
		"/one.crt":                          "/etc/ssl/certs/corp.crt",
		"/etc/kubernetes/pki/../pki/ca.crt": "/etc/kubernetes/pki/ca.crt",
		"/etc/kubernetes/pki/../ca.crt":     "/etc/kubernetes/ca.crt is in none of its volumeMounts",
		"/ca.crt":                           "/ca.crt is in none of its volumeMounts",
		"/certs-old/ca.crt":                 "/certs-old/ca.crt is in none of its volumeMounts",
		"/memory/ca.crt":                    "/memory/ca.crt is in its volume memory, which is not a plain hostPath",
		"/named/ca.crt":                     "/named/ca.crt is in its volume pki, which is not a plain hostPath",
		"ca.crt":                            "ca.crt is not an absolute path",
	} {
		got, err := m.HostPath(file)
		if err != nil {
			got = err.Error()
		}
		testutil.Check(t, file, want, got)
	}
}
