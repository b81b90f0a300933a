// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/takeover/takeovertest"
)

// TestRewriteKeepsTheKeyRing: after a rotation the key file is not what signs.
func TestRewriteKeepsTheKeyRing(t *testing.T) {
	t.Parallel()
	const (
		file   = "--service-account-private-key-file=/etc/kubernetes/pki/sa.key"
		noFile = "--service-account-private-key-file="
		ring   = "--service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json"
		noRing = "--service-account-key-ring="
	)
	after := []string{file, noFile, ring} // what docs/rotation.md leads to
	cases := map[string]struct {
		reason       string
		now, rewrite []string // arguments
		leave        bool     // without --rewrite and what implies it
		steps        []string
		refused      bool
	}{
		"Dropped": {now: after, rewrite: []string{file, "--bind-address=0.0.0.0"}, refused: true},
		"KeyFile": {
			reason: "a command from before the rotation may name one", now: after,
			rewrite: []string{file, "--service-account-private-key-file=/etc/kubernetes/pki/ours.key"}, refused: true,
		},
		"NoKey": {reason: "one of two flags that keep it", now: after, rewrite: []string{file, noFile}, refused: true},
		"Kept":  {now: after, rewrite: after},
		"Moved": {
			reason: "the flags name another one", now: after,
			rewrite: []string{file, noFile, "--service-account-key-ring=/etc/kubernetes/pki/keys"},
		},
		"GivenUp":    {reason: "the empty flag says so", now: after, rewrite: []string{file, noRing}},
		"LeftAsItIs": {now: after, rewrite: []string{file}, leave: true},
		"OtherSteps": {reason: "our manifest is not written", now: after, rewrite: []string{file}, steps: []string{StepControllerManager}},
	}
	for name, tc := range cases {
		c := Config{ManifestsDir: "DIR", Rewrite: !tc.leave, Steps: tc.steps}
		o, d := &observed{current: tc.now}, &desired{own: tc.rewrite, written: c.Rewrite}
		want := ""
		if tc.refused {
			want = "DIR/sa-controller-manager.yaml has " + ring + ", and the rewrite would drop it; to keep it add --extra-arg=" + noFile +
				" --extra-arg=" + ring + ";"
		}
		wantError(t, name+" "+tc.reason, c.checkKeyRing(o, d), want)
	}
	// A plan asks that first.
	p := newControlPlane(t, "v1.37")
	p.config.Rewrite = true
	p.Write(t, ownFile, staticpodtest.Own(after))
	p.refuses(t, "plan", Run, "the rewrite would drop it")
}

// TestTakeoverWithAnExternalCA: what the operator has to do is said before anything is changed.
func TestTakeoverWithAnExternalCA(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	_, ca, _ := bytes.Cut(takeovertest.RootCA(), []byte("-----END CERTIFICATE-----\n")) // the first one is a leaf
	p.Write(t, "pki/ca.crt", ca)
	p.Write(t, "controller-manager.conf", []byte(takeovertest.DeadKubeconfig))
	err := p.config.ensureIdentity(&desired{})(t.Context())
	wantError(t, "the identity", err, "write a kubeconfig of your own to "+p.Dir+"/sa-controller-manager/kubeconfig")
	testutil.Expect(t, await.IsPermanent(err), "waiting does not help")
}

// TestBinaryStays has a program in each place of a node.
func TestBinaryStays(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		file, link string
		mode       fs.FileMode // of the file
		directory  fs.FileMode // of its directory
		owner      int         // 0 is the user of the test
		prints     string      // as its version, "" for that of ours
		want       string
	}{
		"UsrLocalBin": {file: "/usr/local/bin/b"},
		"Opt":         {file: "/opt/deep/er/b"},
		"GroupOfRoot": {file: "/opt/b", mode: 0o775},
		"Tmp": {
			file: "/tmp/b", want: "/tmp/b: it is below /tmp; it must survive a reboot and be writable by root only: install -m 755 ",
		},
		"Home":           {file: "/home/op/b", want: "it is below /home"},
		"LinkToTmp":      {link: "/usr/local/bin/b", file: "/tmp/b", want: "it is below /tmp"},
		"WorldFile":      {file: "/opt/b", mode: 0o757, want: "/opt/b may be written by others"},
		"WorldDirectory": {file: "/opt/x/b", directory: 0o777, want: "/opt/x may be written by others"},
		"AnothersFile":   {file: "/opt/b", owner: 1234, want: "/opt/b belongs to user 1234 and not to root"},
		"NotExecutable":  {file: "/opt/b", mode: 0o644, prints: "run", want: "/opt/b: permission denied"},
		"AnotherProgram": {file: "/opt/b", prints: "true (GNU coreutils)\n", want: "prints no version of sa-controller-manager"},
		"DoesNotRun":     {file: "/opt/b", prints: "run", want: "fork/exec ROOT/opt/b: exec format error"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			p := newControlPlane(t, "v1.37")
			place := func(path string) string { return p.Located("ROOT" + path) }
			p.Write(t, "../.."+tc.file, nil)
			p.config.Pod.Binary = tc.file
			switch tc.prints {
			case "":
			case "run":
				p.config.Pod.Version = VersionOf
			default:
				p.config.Pod.Version = func(context.Context, string) (string, error) { return tc.prints, nil }
			}
			testutil.Must(t, os.Chmod(place(tc.file), stdcmp.Or(tc.mode, 0o755)))
			if tc.directory != 0 {
				testutil.Must(t, os.Chmod(filepath.Dir(place(tc.file)), tc.directory))
			}
			if tc.owner != 0 {
				testutil.Must(t, os.Chown(place(tc.file), tc.owner, -1))
			}
			if tc.link != "" {
				p.config.Pod.Binary = tc.link
				testutil.Must(t, os.MkdirAll(filepath.Dir(place(tc.link)), 0o755))
				testutil.Must(t, os.Symlink(place(tc.file), place(tc.link)))
			}
			wantError(t, name, p.config.checkBinary(t.Context()), p.Located(tc.want))
		})
	}
}

// TestAlone: to the kubelet a copy is a manifest like any other.
func TestAlone(t *testing.T) {
	t.Parallel()
	kcm := string(takeovertest.Stock(t, "v1.37", component.ControllerManager))
	own := "kind: Pod\nmetadata: {name: mine}\nspec:\n  containers:\n  - command: [/opt/sa-controller-manager]\n"
	for name, tc := range map[string]struct{ file, data, want string }{
		"Backup": {
			"kube-controller-manager.yaml.bak", kcm, "kube-controller-manager.yaml.bak is a manifest of kube-controller-manager too",
		},
		"Ours":         {"mine.yaml", own, "mine.yaml is a manifest of sa-controller-manager too"},
		"UnderOurName": {"sa-controller-manager.yaml", kcm, "sa-controller-manager.yaml is a manifest of kube-controller-manager too"},
		"BrokenLink":   {"old.yaml", "", "old.yaml: no such file or directory; if it is a link that leads nowhere, remove it"},
		"Hidden":       {".kube-controller-manager.yaml.swp", kcm, ""},
		"Below":        {"old/kube-controller-manager.yaml", kcm, ""},
		"NoManifest":   {"README", "# a: [", ""},
		"FIFO":         {"pipe", "fifo", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			switch tc.data {
			case "fifo":
				testutil.Must(t, syscall.Mkfifo(p.Dir+"/manifests/"+tc.file, 0o600))
			case "":
				testutil.Must(t, os.Symlink("/none", p.Dir+"/manifests/"+tc.file))
			default:
				p.Write(t, "manifests/"+tc.file, []byte(tc.data))
			}
			if tc.want != "" {
				tc.want = p.Dir + "/manifests/" + tc.want
			}
			wantError(t, name, Run(t.Context(), p.config), tc.want)
			testutil.Expect(t, tc.want == "" || p.out.Len() <= 0, "it prints %q", &p.out)
		})
	}
}

// policyAPI keeps the policies for Pods, by path in JSON, and takes what is missing.
type policyAPI struct {
	has     map[string]string
	old     bool // it knows no MutatingAdmissionPolicy
	refuses bool
	written int
}

func (a *policyAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch object, exists := a.has[r.URL.Path]; {
	case a.refuses:
		w.WriteHeader(http.StatusForbidden)
	case a.old && strings.Contains(r.URL.Path, "mutatingadmissionpolic"):
		http.NotFound(w, r)
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		body, _ = yaml.YAMLToJSON(body)
		var named struct {
			Metadata struct{ Name string } `json:"metadata"`
		}
		_ = yaml.Unmarshal(body, &named)
		at := path.Join(r.URL.Path, named.Metadata.Name)
		if _, exists := a.has[at]; exists {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`)
			return
		}
		a.written++
		a.has[at] = string(body)
		w.WriteHeader(http.StatusCreated)
	case !exists:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	default:
		_, _ = io.WriteString(w, object)
	}
}

// TestRestricted: kube-apiserver's plugin goes only while the policies are those of the manifests.
func TestRestricted(t *testing.T) {
	t.Parallel()
	const api = "/apis/admissionregistration.k8s.io/v1/"
	both := []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion}
	all := func(t *testing.T, policies ...podpolicy.Policy) map[string]string {
		t.Helper()
		has := map[string]string{}
		for _, policy := range policies {
			objects := testutil.Get(policy.Objects())(t)
			for _, object := range objects {
				body := testutil.Get(yaml.YAMLToJSON(object.YAML))(t)
				has[object.Path()] = string(body)
			}
		}
		return has
	}
	for name, tc := range map[string]struct {
		policies []podpolicy.Policy
		old, set bool   // set: --pod-token=secret and the like
		without  string // the object that is missing
		at       string // the object in which from becomes to
		from, to string
		refuses  bool
		writes   int
		want     string // part of the error, "" for none
	}{
		"Right":   {policies: both},
		"Missing": {writes: 7},
		"Old":     {old: true, writes: 2},
		"NoBinding": {
			policies: both, without: "validatingadmissionpolicybindings/" + podpolicy.Name, writes: 1,
		},
		"Warns": {
			policies: both,
			at:       "validatingadmissionpolicybindings/" + podpolicy.Name, from: "Deny", to: "Warn",
			want: "spec.validationActions is [Warn], want [Deny]",
		},
		"Audits": {
			policies: both,
			at:       "validatingadmissionpolicybindings/" + podpolicy.Name, from: `"Deny"`, to: `"Deny","Audit"`,
		},
		"NoRule": {
			policies: both,
			at:       "validatingadmissionpolicies/" + podpolicy.Name, from: `"pods"`, to: `"nothing"`, want: "spec.matchConstraints is",
		},
		"NoNamespace": {
			policies: both,
			at:       "validatingadmissionpolicybindings/" + podpolicy.Name, from: `"spec":{`,
			to: `"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}},`, want: "spec.matchResources is",
		},
		"OtherCompletion": {
			policies: both,
			at:       "mutatingadmissionpolicies/" + podpolicy.CompletionName, from: "3607", to: "36070", want: "spec.variables is",
		},
		"CompletionOfAllAccounts": {
			policies: both,
			at:       "mutatingadmissionpolicybindings/" + podpolicy.CompletionName + "-kube-system",
			from:     `"kube-system"]`, to: `"kube-system","b"]`, want: "spec.matchResources is",
		},
		"Secret": {policies: []podpolicy.Policy{podpolicy.Refusal}, set: true},
		"SecretAndCompletion": {
			policies: both, set: true, want: "completed in another way than by our plugin",
		},
		"Forbidden": {refuses: true, want: "read ValidatingAdmissionPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := &policyAPI{has: all(t, tc.policies...), old: tc.old, refuses: tc.refuses}
			delete(served.has, api+tc.without)
			if tc.at != "" {
				before := served.has[api+tc.at]
				served.has[api+tc.at] = strings.Replace(before, tc.from, tc.to, 1)
				testutil.Require(t, before != served.has[api+tc.at], "%s has no %s", tc.at, tc.from)
			}
			server := httptest.NewServer(served)
			t.Cleanup(server.Close)
			client, err := kubernetes.NewForConfig(&rest.Config{
				Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
			})
			testutil.Must(t, err)
			err = (&Config{Client: client}).restricted(!tc.set)(t.Context())
			wantError(t, name, err, tc.want)
			if permanent := tc.want != "" && !tc.refuses; await.IsPermanent(err) != permanent {
				t.Errorf("%v: permanent %t, want %t", err, !permanent, permanent)
			} else if permanent {
				wantError(t, "the way out", err, " --kubeconfig=/etc/kubernetes/admin.conf")
			}
			testutil.Expect(t, served.written == tc.writes, "%d objects were written, want %d", served.written, tc.writes)
		})
	}
}
