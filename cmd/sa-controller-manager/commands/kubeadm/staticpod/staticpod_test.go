// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
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
	cases := map[string]struct {
		reason string
		before string
		edit   Edit
		want   string
	}{
		"Nothing": {before: plain, want: plain},
		"Append": {
			before: plain, edit: Edit{Append: []string{"--three=3"}}, want: strings.Replace(plain, "--two=2\n", "--two=2\n    - --three=3\n", 1),
		},
		"Remove":  {before: plain, edit: Edit{Remove: []int{1}}, want: strings.Replace(plain, "    - --one=1\n", "", 1)},
		"Replace": {before: plain, edit: Edit{Replace: map[int]string{1: "--one=longer"}}, want: strings.Replace(plain, "=1", "=longer", 1)},
		"AllAtOnce": {
			before: plain,
			edit:   Edit{Replace: map[int]string{2: "--two="}, Remove: []int{1}, Append: []string{"--three=3"}},
			want:   strings.Replace(strings.Replace(plain, "    - --one=1\n", "", 1), "--two=2\n", "--two=\n    - --three=3\n", 1),
		},
		"Quotes": {
			reason: "a string stays in the quotes it was in",
			before: "kind: Pod\nspec: # c\n  containers:\n  -   command:\n      -   'program'\n      -   \"--one=1\" # " +
				"why\n      -   '--two=''2'''   \n",
			edit: Edit{Replace: map[int]string{1: `--one="a\b"`, 2: "--two='3'"}},
			want: "kind: Pod\nspec: # c\n  containers:\n  -   command:\n      -   'program'\n      -   \"--one=\\\"a\\\\b\\\"\" # " +
				"why\n      -   '--two=''3'''   \n",
		},
		"CommentsAndWideCharacters": {
			before: "# Größe: 𝄞\nkind: Pod\nspec:\n  containers:\n  - name: é\n    command:\n    # first\n    - program # 𝄞\n\n    - " +
				"--one=é\n    # last\n    image: x\n",
			edit: Edit{Replace: map[int]string{1: "--one=e"}, Append: []string{"--two=2"}},
			want: "# Größe: 𝄞\nkind: Pod\nspec:\n  containers:\n  - name: é\n    command:\n    # first\n    - program # 𝄞\n\n    - " +
				"--one=e\n    - --two=2\n    # last\n    image: x\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := Parse([]byte(tc.before), "program")
			testutil.Must(t, err)
			edited, err := m.Apply(tc.edit)
			testutil.Must(t, err)
			testutil.Check(t, tc.reason, tc.want, string(edited.Bytes()))
			if string(m.Bytes()) != tc.before {
				t.Error("the manifest before was changed")
			}
		})
	}
}

// A value that needs more than the quotes which are there must not be written.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	m, err := Parse([]byte(plain), "program")
	testutil.Must(t, err)
	for _, value := range []string{"--one=a # b", "--one=a: b", "--one=a\nimage: evil", "two", "--one= "} {
		for _, edit := range []Edit{{Append: []string{value}}, {Replace: map[int]string{1: value}}} {
			if edited, err := m.Apply(edit); err == nil {
				t.Errorf("%q was written:\n%s", value, edited.Bytes())
			}
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	command := func(items string) string {
		return "kind: Pod\nspec:\n  containers:\n  - image: x\n    command:" + items
	}
	cases := map[string]struct{ manifest, want string }{
		"Empty":          {"", "it is empty"},
		"NotYAML":        {"a: [", "it is not YAML"},
		"NotAnObject":    {"- a", "it is not a YAML object"},
		"OtherKind":      {"kind: Deployment", `its kind is "Deployment"`},
		"TwoDocuments":   {plain + "---\n" + plain, "more than one YAML document"},
		"KeyTwice":       {plain + "kind: Pod\n", "already defined"},
		"NotUTF8":        {plain + "#\xff", "it is not UTF-8"},
		"ByteOrderMark":  {"\ufeff" + plain, "byte order mark"},
		"OldMac":         {strings.ReplaceAll(plain, "\n", "\r"), "line ends other than"},
		"NextLine":       {"# \u0085" + plain, "line ends other than"},
		"Anchor":         {strings.Replace(plain, "image: ", "image: &a ", 1), "line 9 has a YAML anchor"},
		"NoContainer":    {"kind: Pod\nspec:\n  containers: []\n", "no list spec.containers"},
		"TwoContainers":  {plain + "  - name: sidecar\n", "it has 2 containers"},
		"Args":           {plain + "    args: [--x=1]\n", "line 10 has args"},
		"NoCommand":      {"kind: Pod\nspec:\n  containers:\n  - image: x\n", "no list called command"},
		"OneString":      {command(" program\n"), "no list called command"},
		"Flow":           {command(" [program, --x=1]\n"), "line 5 has the command in one line"},
		"Shell":          {command("\n    - sh\n    - -c\n    - program --x=1\n"), `its command runs "sh"`},
		"OtherProgram":   {command("\n    - other\n"), `its command runs "other", want "program"`},
		"ValueApart":     {command("\n    - program\n    - --x\n    - \"1\"\n"), `the string "1", which is no flag`},
		"EndOfFlags":     {command("\n    - program\n    - --\n"), `the string "--", which is no flag`},
		"Number":         {command("\n    - program\n    - 1\n"), "line 7: the command must be a list of plain strings"},
		"Tag":            {command("\n    - program\n    - !!str --x=1\n"), "line 7: the command must be a list of plain strings"},
		"Nested":         {command("\n    - program\n    - [--x=1]\n"), "line 7: the command must be a list of plain strings"},
		"Folded":         {command("\n    - program\n    - >-\n      --x=1\n"), "line 7: a string of the command must be on one line"},
		"GoesOnPlain":    {command("\n    - program\n    - --x=1\n      2\n"), "line 7: a string of the command must be on one line"},
		"GoesOnQuoted":   {command("\n    - program\n    - \"--x=1\n      2\"\n"), "line 7: a string of the command must be on one line"},
		"BelowTheDash":   {command("\n    - program\n    -\n      --x=1\n"), "line 8: a string of the command must be on a line of its own"},
		"CommandInALine": {"kind: Pod\nspec: {containers: [{command: [program]}]}\n", "the command in one line"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tc.manifest), "program")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// FuzzApply holds every manifest that is understood to this: an edit and its reverse
// leave the same bytes, and all lines that were there stay as they are in between.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{
		plain, strings.ReplaceAll(plain, "\n", "\r\n"), strings.TrimSpace(strings.Split(plain, "    image")[0]),
		"kind: Pod\nspec:\n  containers:\n  - command: # c\n    - 'program'\n\n    - \"--a=\\u00e9\" # d\n  # e\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse(data, "program")
		if err != nil {
			return
		}
		n := len(m.Command())
		edited, err := m.Apply(Edit{Append: []string{"--three=3", "--four="}})
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		if want := append(m.Command(), "--three=3", "--four="); !slices.Equal(want, edited.Command()) {
			t.Fatalf("%q, want %q", edited.Command(), want)
		}
		back, err := edited.Apply(Edit{Remove: []int{n, n + 1}})
		if err != nil {
			t.Fatalf("remove: %v", err)
		}
		if !bytes.Equal(data, back.Bytes()) {
			t.Fatalf("%q became %q", data, back.Bytes())
		}
		if n == 1 {
			return // nothing goes before the program
		}
		inserted, err := m.Apply(Edit{Insert: map[int][]string{1: {"--three=3", "--four="}}})
		if err != nil {
			t.Fatalf("insert: %v", err)
		}
		if back, err = inserted.Apply(Edit{Remove: []int{1, 2}}); err != nil || !bytes.Equal(data, back.Bytes()) {
			t.Fatalf("%q, inserted into and taken out of, became %q: %v", data, back.Bytes(), err)
		}
	})
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
			manifest: "kind: Pod\nspec:\n  initContainers:\n  - volumeMounts: [{mountPath: /a, name: a}, {mountPath: /a, name: b}]\n" + volumes,
			want:     "are both at /a",
		},
		"Names":   {manifest: "kind: Pod\nspec:\n  volumes: [{name: a}, {name: a}]\n", want: `it has two volumes called "a"`},
		"NotAPod": {manifest: "spec: 1", want: "read its volumes: "},
	} {
		err := Check([]byte(tc.manifest))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.want)
		}
	}
}

// TestRemount: a volume of our name with another path is the operator's.
func TestRemount(t *testing.T) {
	t.Parallel()
	text := func(mountPath, hostPath string) string {
		return "kind: Pod\nspec:\n  containers:\n  - command:\n    - program\n    volumeMounts:\n    - mountPath: " + mountPath +
			"\n      name: ours\n      readOnly: true\n    - mountPath: /x\n      name: x\n  volumes:\n  - hostPath:\n      path: " + hostPath +
			"\n      type: DirectoryOrCreate\n    name: ours\n  - hostPath:\n      path: /x\n    name: x\n"
	}
	ours := Mount{Name: "ours", Path: "/run/ours"}
	for name, tc := range map[string]struct {
		manifest       string
		mounted, taken bool // by a takeover and by a handback
		want           string
	}{
		"Ours":          {manifest: text("/run/ours", "/run/ours"), taken: true},
		"Operators":     {manifest: text("/srv/ours", "/srv"), mounted: true},
		"HostElsewhere": {manifest: text("/run/ours", "/srv"), want: `the volume "ours" and its mount are not both of /run/ours`},
		"ElsewhereToo":  {manifest: text("/srv", "/run/ours"), want: `the volume "ours" and its mount are not both of /run/ours`},
	} {
		m, err := Parse([]byte(tc.manifest), "program")
		testutil.Must(t, err)
		for _, wanted := range []bool{true, false} {
			e, err := m.Remount(Edit{}, wanted, ours)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", name, err, tc.want)
			} else if len(e.Mount) > 0 != (wanted && tc.mounted) || len(e.Unmount) > 0 != (!wanted && tc.taken) {
				t.Errorf("%s, wanted %t: %+v", name, wanted, e)
			}
		}
	}
}

// The last guard: whatever an edit does wrong, nothing but the command may differ.
func TestSameBesideCommand(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		other string
		want  bool
	}{
		"Same":         {plain, true},
		"OtherCommand": {strings.Replace(plain, "    - --one=1\n", "", 1), true},
		"OtherImage":   {strings.Replace(plain, "example.org", "example.com", 1), false},
		"OtherType":    {strings.Replace(plain, "image: example.org/program", "image: 1", 1), false},
		"AnotherField": {plain + "    name: x\n", false},
	} {
		before, err := oneDocument([]byte(plain))
		testutil.Must(t, err)
		after, err := oneDocument([]byte(tc.other))
		testutil.Must(t, err)
		if got := same(before, after, withoutCommand); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestHostPath: the innermost of nested mounts counts.
func TestHostPath(t *testing.T) {
	t.Parallel()
	m, err := Parse(staticpodtest.Manifest([]string{"program"}), "program")
	testutil.Must(t, err)
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
