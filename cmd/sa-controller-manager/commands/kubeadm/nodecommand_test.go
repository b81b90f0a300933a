// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
)

// deadKubeconfig leads to an address without a listener.
const deadKubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: demo
  cluster: {server: "https://127.0.0.1:1"}
contexts:
- name: demo
  context: {cluster: demo}
current-context: demo
`

// takeoverNode is the files of a control-plane node of kubeadm. Its API server is never asked.
type takeoverNode struct{ dir, binary string }

func newTakeoverNode(t *testing.T) takeoverNode {
	t.Helper()
	root := t.TempDir()
	n := takeoverNode{dir: root + "/etc/kubernetes/manifests", binary: root + "/opt/sa-controller-manager"}
	testutil.Must(t, os.CopyFS(n.dir, os.DirFS("testdata/manifests/v1.37")))
	writeFiles(t, root+"/etc/kubernetes/pki")
	for _, name := range []string{"sa-controller-manager", "new"} {
		file := root + "/opt/" + name
		testutil.Must(t, os.MkdirAll(filepath.Dir(file), 0o700))
		testutil.Must(t, os.WriteFile(file, staticpodtest.Program(false), 0o700))
	}
	return n
}

// takeover runs the command as if the program were the node's.
func (n takeoverNode) takeover(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	p := newPodFlags()
	p.self, p.binary = n.binary, n.binary
	p.versionOf = func(context.Context, string) (string, error) { return "sa-controller-manager v1.2.3\n", nil }
	return clitest.Run(t, cli.Parent(&cobra.Command{Use: "kubeadm"}, newTakeoverCommand(p)), slices.Concat([]string{
		"takeover", "--node-name=n", "--manifests-dir=" + n.dir, "--backup-dir=" + n.dir + "/backup", "--patches-dir=" + n.dir + "/patches",
		"--step-timeout=10ms", "--kubeconfig=" + testutil.WriteFile(t, "kubeconfig", []byte(deadKubeconfig)),
	}, args)...)
}

// files are the names of all there is.
func (n takeoverNode) files(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(n.dir)
	testutil.Must(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// A manifest with such a flag would take the place of one that runs.
func TestTakeoverRefusesExtraArgs(t *testing.T) {
	t.Parallel()
	const start = "--extra-arg: our process would not start: "
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Mistyped": {args: []string{"--extra-arg=--bind-addr=0.0.0.0"}, want: "Error: " + start + "unknown flag: --bind-addr\n"},
		"NotANumber": {
			args: []string{"--extra-arg=--secure-port=x"}, want: "Error: " + start + "invalid argument \"x\" for \"--secure-port\" flag: ",
		},
		"NoValue":  {args: []string{"--extra-arg=--secure-port"}, want: "Error: " + start + "flag needs an argument: --secure-port\n"},
		"NotAPort": {args: []string{"--extra-arg=--secure-port=-1"}, want: "Error: " + start + "--secure-port -1 must be between 0 and 65535"},
		"TwoKeys": {
			reason: "our manifest has the file", args: []string{"--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/k"},
			want: "Error: " + start + "--service-account-key-ring \"/etc/kubernetes/pki/k\" must not be given together with " +
				"--service-account-private-key-file",
		},
		"TwoMistakes": {
			args: []string{"--extra-arg=--secure-port=-1", "--extra-arg=--webhook-port=-1"},
			want: "Error: 2 problems with the flags:\n  " + start + "--webhook-port -1 must be between 0 and 65535, inclusive; " +
				"0 disables the webhook\n  " + start + "--secure-port -1",
		},
		"WithSigner": {
			args: []string{"--external-signer", "--extra-arg=--service-account-private-key-file="},
			want: "Error: " + start + "--external-signer-socket \"/run/sa-controller-manager/signer.sock\" needs a key to sign with",
		},
		"KeyRingAtTheRoot": {
			reason: "its directory would hide the Pod's own files", args: []string{
				"--extra-arg=--service-account-private-key-file=", "--extra-arg=--service-account-key-ring=/k",
			},
			want: "Error: --extra-arg \"--service-account-key-ring=/k\" must name a file that our Pod can mount: /k: our static pod cannot mount /",
		},
		"BesideSecrets": {
			args: []string{"--extra-arg=--root_ca_file=/etc/kubernetes/corp.crt"},
			want: "Error: --extra-arg \"--root_ca_file=/etc/kubernetes/corp.crt\" must name a file that our Pod can mount: " +
				"/etc/kubernetes/corp.crt: our static pod cannot mount /etc/kubernetes",
		},
		"RelativeFile": {
			args: []string{"--extra-arg=--tls-cert-file=tls.crt"},
			want: "Error: --extra-arg \"--tls-cert-file=tls.crt\" must name a file that our Pod can mount: tls.crt is not an absolute path",
		},
		"WritableDirectory": {
			args: []string{"--extra-arg=--cert-dir=/var/lib/certs"},
			want: "Error: --extra-arg \"--cert-dir=/var/lib/certs\" must not be given: our Pod has no directory that it may write to",
		},
		"Ends": {
			reason: "the kubelet would restart it repeatedly", args: []string{"--extra-arg=--version"},
			want: "Error: " + start + "--version makes it print something and end\n",
		},
		"Help": {args: []string{"--extra-arg=--help"}, want: "Error: " + start + "--help makes it print something and end\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newTakeoverNode(t)
			before := n.files(t)
			got := n.takeover(t, tc.args...)
			if got.Code != 1 || got.Stdout != "" || !strings.HasPrefix(got.Stderr, tc.want) ||
				!strings.HasSuffix(got.Stderr, "See 'sa-controller-manager kubeadm takeover --help' for usage.\n") {
				t.Errorf("%s: %+v, want code 1 and %q at first", tc.reason, got, tc.want)
			}
			if diff := gocmp.Diff(before, n.files(t)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

func TestTakeoverTakesExtraArgs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		mounts []string
	}{
		"Flag":        {args: []string{"--extra-arg=--bind-address=0.0.0.0"}},
		"Underscores": {args: []string{"--extra-arg=--bind_address=0.0.0.0"}},
		"KeyRing": {
			args: []string{"--extra-arg=--service-account-private-key-file=", "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring"},
		},
		"WithSigner": {args: []string{"--external-signer", "--extra-arg=--external-signer-refresh-hint=2s"}},
		"Binary":     {reason: "another version may have the flag", args: []string{"--binary=/opt/new", "--extra-arg=--new-flag=1"}},
		"Files": {
			args:   []string{"--extra-arg=--root-ca-file=/etc/corp/ca.crt", "--extra-arg=--service-account-key-file=/srv/old/sa.pub"},
			mounts: []string{"/etc/corp", "/srv/old"},
		},
		"FileOfPKI": {reason: "it is mounted anyway", args: []string{"--extra-arg=--root-ca-file=/etc/kubernetes/pki/corp/ca.crt"}},
		"Pair": {
			args:   []string{"--extra-arg=--tls-sni-cert-key=/srv/a/tls.crt,/srv/b/tls.key:example.org,www.example.org"},
			mounts: []string{"/srv/a", "/srv/b"},
		},
		"NoFile": {reason: "they take the file away", args: []string{"--extra-arg=--root-ca-file="}},
		"Image":  {reason: "likewise", args: []string{"--image=registry.example.com/sa-controller-manager:v9", "--extra-arg=--new-flag=1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newTakeoverNode(t)
			root := strings.TrimSuffix(n.dir, "/etc/kubernetes/manifests")
			writeRing(t, root+"/etc/kubernetes/pki/ring")
			writeFiles(t, root+"/etc/kubernetes/pki/corp")
			writeFiles(t, root+"/etc/corp")
			got := n.takeover(t, append(tc.args, "--dry-run")...)
			if got.Code != 0 || !strings.Contains(got.Stdout, "\n1. manager: ") {
				t.Fatalf("%s: %+v, want the plan", tc.reason, got)
			}
			var mounts []string
			for _, found := range regexp.MustCompile(`(?m)^\+    - mountPath: (.*)\n\+      name: files-`).FindAllStringSubmatch(got.Stdout, -1) {
				mounts = append(mounts, found[1])
			}
			slices.Sort(mounts)
			testutil.Check(t, tc.reason+": directories that our Pod mounts", tc.mounts, slices.Compact(mounts))
		})
	}
}

// TestAcceptFlag: a flag of kube-controller-manager that a takeover refuses has an explicit way past,
// and the plan shows it, also where it is not a dry run.
func TestAcceptFlag(t *testing.T) {
	t.Parallel()
	const more = "    - --service-account-magic=1\n    - --root-ca-file=/in/the/image.crt\n"
	const note = "Accepted (--accept-flag), and not taken over: --service-account-magic=1 of kube-controller-manager: " +
		"this version does not know the flag"
	cases := map[string]struct {
		reason     string
		flags      string // of kube-controller-manager, further ones
		args       []string
		code       int
		wantStdout []string
		wantStderr string
	}{
		"Refused": {flags: more, code: 1, wantStdout: []string{"--service-account-magic 1 - refused "},
			wantStderr: "--service-account-magic of kube-controller-manager: this version does not know the flag, and so not what it changes; " +
				"--accept-flag=service-account-magic leaves it out\n"},
		"OneOfTwo": {flags: more, args: []string{"--accept-flag=service-account-magic"}, code: 1, wantStdout: []string{
			"--service-account-magic 1 - accepted ",
		},
			wantStderr: "Error: --root-ca-file of kube-controller-manager: /in/the/image.crt is in none of its volumeMounts; " +
				"--accept-flag=root-ca-file leaves it out"},
		"Both": {flags: more, args: []string{"--accept-flag=service-account-magic", "--accept-flag=--root_ca_file"},
			wantStdout: []string{"--service-account-magic 1 - accepted ", "--root-ca-file /etc/kubernetes/pki/ca.crt /in/the/image.crt - accepted ",
				note}},
		"NotRefused": {args: []string{"--accept-flag=leader-elect"}, code: 1,
			wantStderr: "Error: --accept-flag=leader-elect: no flag of kube-controller-manager is refused under this name\n"},
		"NotThere": {args: []string{"--accept-flag=service-account-magic"}, code: 1,
			wantStderr: "Error: --accept-flag=service-account-magic: no flag of kube-controller-manager is refused under this name\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			n := newTakeoverNode(t)
			const last = "    - --use-service-account-credentials=true\n"
			file := filepath.Join(n.dir, "kube-controller-manager.yaml")
			testutil.Must(t, os.WriteFile(file, bytes.Replace(staticpodtest.Read(t, file), []byte(last), []byte(last+tc.flags), 1), 0o600))
			got := n.takeover(t, append(tc.args, "--dry-run")...)
			words := regexp.MustCompile(" +").ReplaceAllString(got.Stdout, " ")
			for _, want := range tc.wantStdout {
				if !strings.Contains(words, want) {
					t.Errorf("stdout has no %q:\n%s", want, words)
				}
			}
			if got.Code != tc.code || tc.wantStderr == "" && got.Stderr != "" || !strings.Contains(got.Stderr, tc.wantStderr) {
				t.Errorf("code %d, stderr %q, want %d and %q", got.Code, got.Stderr, tc.code, tc.wantStderr)
			}
			if tc.code != 0 {
				return
			}
			if got := n.takeover(t, tc.args...); !strings.Contains(got.Stdout, note) {
				t.Errorf("without --dry-run there is no %q:\n%s", note, got.Stdout)
			}
		})
	}
}

// TestDryRunProves: what keeps our process from starting or working is found before anything is written.
func TestDryRunProves(t *testing.T) {
	t.Parallel()
	const carried = "Error: our process would not start with what is carried over from kube-controller-manager: "
	for name, tc := range map[string]struct {
		reason string
		flags  string // of kube-controller-manager, further ones
		file   string // of the node, with data, nil for none
		data   []byte
		mode   os.FileMode
		args   []string
		want   string // the beginning, "" if it passes
	}{
		"Works": {},
		"NoKey": {file: "/etc/kubernetes/pki/sa.key",
			want: "Error: our --service-account-private-key-file: open ROOT/etc/kubernetes/pki/sa.key: "},
		"NotAKey":    {file: "/etc/kubernetes/pki/sa.key", data: []byte("x"), want: "Error: our --service-account-private-key-file: ROOT/"},
		"NoRootCA":   {file: "/etc/kubernetes/pki/ca.crt", want: "Error: our --root-ca-file: open ROOT/etc/kubernetes/pki/ca.crt: no such file"},
		"NotARootCA": {file: "/etc/kubernetes/pki/ca.crt", data: []byte("x"), want: "Error: our --root-ca-file: ROOT/etc/kubernetes/pki/ca.crt"},
		"Publishes nothing": {
			file: "/etc/kubernetes/pki/ca.crt", flags: "    - --controllers=*,-root-ca-certificate-publisher-controller\n",
		},
		"NotExecutable": {
			file: "/opt/sa-controller-manager", data: staticpodtest.Program(false), mode: 0o600,
			want: "Error: --binary ROOT/opt/sa-controller-manager: it is not executable",
		},
		"NoWorkers": {
			flags: "    - --concurrent-serviceaccount-token-syncs=0\n", want: carried + "--concurrent-serviceaccount-token-syncs 0 must be",
		},
		"NoPeriod": {
			flags: "    - --legacy-service-account-token-clean-up-period=0s\n",
			want:  carried + "--legacy-service-account-token-clean-up-period 0s must be",
		},
		"OtherPeriod": {
			flags: "    - --legacy-service-account-token-clean-up-period=0s\n",
			args:  []string{"--extra-arg=--legacy-service-account-token-clean-up-period=24h"},
		},
		"AnotherVersion": {
			reason: "it may have another rule", flags: "    - --concurrent-serviceaccount-token-syncs=0\n", args: []string{"--binary=/opt/new"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTakeoverNode(t)
			root := strings.TrimSuffix(n.dir, "/etc/kubernetes/manifests")
			if tc.file != "" {
				testutil.Must(t, os.Remove(root+tc.file))
			}
			if tc.data != nil {
				testutil.Must(t, os.WriteFile(root+tc.file, tc.data, cmp.Or(tc.mode, 0o755)))
			}
			file := filepath.Join(n.dir, "kube-controller-manager.yaml")
			const last = "    - --use-service-account-credentials=true\n"
			manifest := bytes.Replace(staticpodtest.Read(t, file), []byte(last), []byte(last+tc.flags), 1)
			if strings.Contains(tc.flags, "--controllers") {
				manifest = regexp.MustCompile(`(?m)^    - --controllers=\*,b.*\n`).ReplaceAll(manifest, nil)
			}
			testutil.Must(t, os.WriteFile(file, manifest, 0o600))
			got := n.takeover(t, append(tc.args, "--dry-run")...)
			tc.want = strings.ReplaceAll(tc.want, "ROOT", root)
			if (got.Code == 0) != (tc.want == "") || !strings.HasPrefix(got.Stderr, tc.want) {
				t.Errorf("%s: %+v, want %q", tc.reason, got, tc.want)
			}
			if got.Code == 0 && !strings.Contains(got.Stdout, "Cluster: demo https://127.0.0.1:1\n1. manager: ") {
				t.Errorf("%s: it does not name the cluster:\n%s", tc.reason, got.Stdout)
			}
			const silent = "\nkube-apiserver was not asked (Get \"https://127.0.0.1:1/version"
			if got.Code == 0 && !strings.Contains(got.Stdout, silent) {
				t.Errorf("%s: it does not say what was not asked:\n%s", tc.reason, got.Stdout)
			}
			if got := n.takeover(t, tc.args...); tc.want != "" && !strings.HasPrefix(got.Stderr, tc.want) {
				t.Errorf("%s: without --dry-run: %+v, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestDryRunAsks: the guards that only read run if kube-apiserver answers.
func TestDryRunAsks(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.config.Client = fake.NewClientset(mirror(component.APIServer, "another", true))
	wantError(t, "node", Takeover(t.Context(), p.config), `step 1, manager: pods "kube-apiserver-n" not found: is --node-name "n"`)
	p.config.Client = fake.NewClientset(mirror(component.APIServer, "n", true, "--advertise-address=10.0.0.9"))
	wantError(t, "cluster", Takeover(t.Context(), p.config),
		`step 1, manager: --node-name "n" is not this node, or the kubeconfig is of another cluster: `+
			"Pod kube-apiserver-n there has --advertise-address=10.0.0.9, and "+p.config.manifest(component.APIServer)+
			" has --advertise-address=172.18.0.2")
	p.config.Client = fake.NewClientset(mirror(component.APIServer, "n", true, "--advertise-address=172.18.0.2"))
	wantError(t, "key", Takeover(t.Context(), p.config), "step 1, manager: get an account to prove the key with: ")
	p.config.Steps = []string{StepAPIServer}
	wantError(t, "no process", Takeover(t.Context(), p.config), "our process has no manifest on this node: the step manager comes first")
	p.write(t, "manifests/sa-controller-manager.yaml", staticpodtest.Own([]string{theKey, "--webhook-registration=url"}))
	wantError(t, "another step", Takeover(t.Context(), p.config), "")
}

// TestSecondCommand: two commands at a time would change the same files.
func TestSecondCommand(t *testing.T) {
	t.Parallel()
	n := newTakeoverNode(t)
	before := n.files(t)
	unlock, err := nodefile.Lock(n.dir)
	testutil.Must(t, err)
	want := "Error: another kubeadm takeover or handback works on " + n.dir + "; let it end first\n"
	if got := n.takeover(t); got.Code != 1 || got.Stderr != want || got.Stdout != "" {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := n.takeover(t, "--dry-run"); got.Code != 0 {
		t.Errorf("a dry run changes nothing: %+v", got)
	}
	unlock()
	if got := n.takeover(t); strings.Contains(got.Stderr, "another") {
		t.Errorf("afterwards: %+v", got)
	}
	testutil.Check(t, "files", before, n.files(t))
}
