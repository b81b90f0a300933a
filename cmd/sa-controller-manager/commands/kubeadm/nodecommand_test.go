// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/takeover"
	"sa-controller-manager/manifests/takeover/takeovertest"
)

// node has our program, and another version of it.
type node struct{ *takeovertest.Node }

func newNode(t *testing.T) node {
	t.Helper()
	n := node{takeovertest.New(t, "v1.37")}
	for _, name := range []string{"sa-controller-manager", "new"} {
		n.Write(t, "../../opt/"+name, nil)
		testutil.Must(t, os.Chmod(n.Located("ROOT/opt/"+name), 0o700))
	}
	return n
}

// takeover runs the command as if the program were the node's. Its API server is never asked.
func (n node) takeover(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	flags := newPodFlags()
	flags.self = n.Located("ROOT/opt/sa-controller-manager")
	flags.Binary = flags.self
	flags.Version = func(context.Context, string) (string, error) { return "sa-controller-manager v1.2.3\n", nil }
	return clitest.Run(t, cli.Parent(&cobra.Command{Use: "kubeadm"}, newTakeoverCommand(flags)),
		slices.Concat([]string{"takeover", "--step-timeout=10ms"}, n.flags(t), args)...)
}

func (n node) flags(t *testing.T) []string {
	t.Helper()
	return []string{
		"--node-name=n", "--manifests-dir=" + n.Dir + "/manifests",
		"--kubeconfig=" + testutil.WriteFile(t, "kubeconfig", []byte(takeovertest.DeadKubeconfig)),
	}
}

// TestTakeoverCommand: what keeps our process from starting or working is refused before anything is written,
// whether it is given, carried over or lies on the node; the plan has everything else.
func TestTakeoverCommand(t *testing.T) {
	t.Parallel()
	const (
		extra = "Error: our process would not start with --extra-arg, given or kept (--reset drops what is kept), and what is carried " +
			"over from kube-controller-manager: "
		carried = extra
		magic   = "--service-account-magic=1"
		inImage = "--root-ca-file=/in/the/image.crt"
		binary  = "/opt/sa-controller-manager"
		ring    = "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring"
		sa, ca  = "/etc/kubernetes/pki/sa.key", "/etc/kubernetes/pki/ca.crt"
	)
	for name, tc := range map[string]struct {
		reason string
		kcm    []string // further flags of kube-controller-manager
		file   string   // of the node, that is missing
		args   []string
		stdout []string // what it prints
		mounts []string // further directories that our Pod mounts
		grants bool     // our Pod grants itself to create Secrets
		want   string   // the beginning of stderr, "" if it is planned
	}{
		"Works": {stdout: []string{
			"Cluster: demo https://127.0.0.1:1\n1. manager: ",
			"\nNot checked, because kube-apiserver did not answer (Get \"https://127.0.0.1:1/version",
		}},

		"Mistyped": {args: []string{"--extra-arg=--bind-addr=0.0.0.0"}, want: extra + "unknown flag: --bind-addr\n"},
		"TwoKeys": {
			reason: "our manifest has the file", args: []string{"--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/k"},
			want: extra + "--service-account-key-ring \"/etc/kubernetes/pki/k\" must not be given together with " +
				"--service-account-private-key-file",
		},
		"NoPort": {args: []string{"--extra-arg=--secure-port=0"}, want: extra + "--secure-port=0 leaves the kubelet no port to probe\n"},

		"KeyRing": {reason: "it re-issues tokens", grants: true, args: []string{
			"--extra-arg=--service-account-private-key-file=", "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring",
		}},
		"Auto": {args: []string{"--token-secrets=auto"}, grants: true},
		"Nowhere": {
			args: []string{"--extra-arg=--controllers=*,-root-ca-cert-publisher"},
			want: "Error: root-ca-certificate-publisher-controller runs in kube-controller-manager and would run nowhere after the " +
				"takeover: ",
		},
		"CarriedOver": {
			kcm: []string{"--service-account-private-key-file=/etc/kubernetes/pki/ours.key", "--controllers=-serviceaccount"},
			stdout: []string{
				"\n+ - --service-account-private-key-file=/etc/kubernetes/pki/ours.key\n",
				"\n+ - --controllers=*,-serviceaccount-controller\n",
			},
		},
		"WithSigner": {args: []string{"--external-signer", "--extra-arg=--external-signer-refresh-hint=2s"}},
		"OnlySigner": {args: []string{"--only=signer", ring}, stdout: []string{
			"\n+ - signer\n", "\n+ - --only-signer\n",
			"\n2. kube-apiserver: kube-apiserver keeps its ServiceAccount plugin, and has our process sign its tokens.\n" +
				"Our process signs its tokens, and does nothing else.",
		}},
		"OnlyWhat": {args: []string{"--only=webhook"}, want: "Error: --only \"webhook\" must be one of \"\", \"signer\"\n"},
		"OnlyWithoutRing": {
			args: []string{"--only=signer"}, want: "Error: our --service-account-key-ring: there is no key ring: read ROOT" +
				manifests.KeyRing,
		},
		"OnlyWithFlagOfTheManager": {
			args: []string{"--only=signer", ring, "--extra-arg=--webhook-port=0"},
			want: "Error: --extra-arg \"--webhook-port=0\" is not for signer",
		},
		"OnlyWithTokenSecrets": {
			args: []string{"--only=signer", ring, "--token-secrets=auto"},
			want: "Error: --token-secrets \"auto\" must be left out with --only: ",
		},
		"OnlyWithOtherSteps": {
			reason: "kube-controller-manager keeps all that it does",
			args:   []string{"--only=signer", ring, "--steps=kube-controller-manager"},
			want:   "Error: --steps \"kube-controller-manager\" must be of manager, kube-apiserver\n",
		},
		"Binary": {reason: "another version may have the flag", args: []string{"--binary=/opt/new", "--extra-arg=--new-flag=1"}},
		"Files": {
			args:   []string{"--extra-arg=--root-ca-file=/etc/corp/ca.crt", "--extra-arg=--service-account-key-file=/srv/old/sa.pub"},
			mounts: []string{"/etc/corp", "/srv/old"},
		},

		"Unknown": {
			reason: "of a newer Kubernetes", kcm: []string{magic}, stdout: []string{
				"Not taken over: --service-account-magic=1 of kube-controller-manager: this version knows neither the flag nor what " +
					"it changes.",
			},
		},
		"NoSocket": {
			args: []string{"--external-signer", "--extra-arg=--external-signer-socket="},
			want: "Error: --extra-arg \"--external-signer-socket=\" is what this command decides",
		},
		"ByURL": {
			args: []string{"--extra-arg=--webhook-registration=url"},
			want: "Error: --extra-arg \"--webhook-registration=url\" must be left out, or none, which leaves kube-apiserver its plugin",
		},
		"NotMounted": {
			reason: "our Pod would not have it", kcm: []string{inImage},
			want: "Error: --root-ca-file of kube-controller-manager: /in/the/image.crt is in none of its volumeMounts",
		},
		"TokenSecrets": {
			reason: "it has a flag here", args: []string{"--extra-arg=--token-secrets=auto"},
			want: "Error: --extra-arg \"--token-secrets=auto\" is a flag of this command itself",
		},

		"NoKey":    {file: sa, want: "Error: our --service-account-private-key-file: open ROOT" + sa + ": "},
		"NoRootCA": {file: ca, want: "Error: our --root-ca-file: open ROOT" + ca + ": no such file"},
		"NoBinary": {file: binary, want: "Error: --binary: lstat ROOT" + binary + ": no such file"},
		"NoWorkers": {
			kcm: []string{"--concurrent-serviceaccount-token-syncs=0"}, want: carried + "--concurrent-serviceaccount-token-syncs 0 must be",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			takeovertest.WriteRing(t, n.Dir+"/pki/ring")
			takeovertest.WriteFiles(t, n.Dir+"/pki/corp")
			takeovertest.WriteFiles(t, n.Located("ROOT/etc/corp"))
			if tc.file != "" {
				testutil.Must(t, os.Remove(n.Located("ROOT"+tc.file)))
			}
			for _, flag := range tc.kcm {
				n.Change(t, component.ControllerManager, "    image:", "    - "+flag+"\n    image:")
			}
			before := n.Files(t)
			got := n.takeover(t, append(tc.args, "--dry-run")...)
			want := n.Located(tc.want)
			testutil.Expect(t, (got.Code == 0) == (want == "") && strings.HasPrefix(got.Stderr, want) && (want != "" || got.Stderr == ""),
				"%s: %+v, want %q", tc.reason, got, want)
			const usage = "See 'sa-controller-manager kubeadm takeover --help' for usage.\n"
			testutil.Expect(t, !strings.Contains(want, "--extra-arg") || strings.HasSuffix(got.Stderr, usage), "it names no usage: %q",
				got.Stderr)
			words := regexp.MustCompile(" +").ReplaceAllString(got.Stdout, " ")
			for _, part := range append(tc.stdout, map[bool]string{true: "\n1. manager: "}[want == ""]) {
				testutil.Expect(t, strings.Contains(words, part), "stdout has no %q:\n%s", part, words)
			}
			testutil.Expect(t, want == "" || tc.stdout != nil || got.Stdout == "", "it prints %q", got.Stdout)
			grants := strings.Contains(got.Stdout, "- --create-secrets\n")
			testutil.Expect(t, grants == tc.grants, "%s: our Pod grants itself to create Secrets: %t", tc.reason, grants)
			var mounts []string
			for _, found := range regexp.MustCompile(`(?m)^\+    - mountPath: (.*)\n\+      name: files-`).FindAllStringSubmatch(got.Stdout,
				-1) {
				mounts = append(mounts, found[1])
			}
			slices.Sort(mounts)
			testutil.Check(t, tc.reason+": directories that our Pod mounts", tc.mounts, slices.Compact(mounts))
			if want != "" {
				got := n.takeover(t, tc.args...)
				testutil.Expect(t, strings.HasPrefix(got.Stderr, want), "%s: without --dry-run: %+v, want %q", tc.reason, got, want)
			}
			testutil.Check(t, "files", before, n.Files(t))
		})
	}
}

// TestSecondCommand: two commands at a time would change the same files.
func TestSecondCommand(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := n.Files(t)
	unlock := testutil.Get(nodefile.Lock(n.Dir + "/manifests"))(t)
	want := "Error: another kubeadm takeover or handback works on " + n.Dir + "/manifests" + "; let it end first\n"
	got := n.takeover(t)
	testutil.Expect(t, got.Code == 1 && got.Stderr == want && got.Stdout == "", "%+v, want %q", got, want)
	if got := n.takeover(t, "--dry-run"); got.Code != 0 {
		t.Errorf("a dry run changes nothing: %+v", got)
	}
	unlock()
	if got := n.takeover(t); strings.Contains(got.Stderr, "another") {
		t.Errorf("afterwards: %+v", got)
	}
	testutil.Check(t, "files", before, n.Files(t))
}

func TestKubeadmCommandLine(t *testing.T) {
	t.Parallel()
	clitest.Refuses(t, NewCommand, clitest.Refusals{
		"NoCA": {
			Args: []string{"kubeconfig", "--cert-dir=testdata/none"},
			Want: "Error: read the cluster's CA: open testdata/none/ca.crt: no such file or directory\n",
		},
		"NotANode": {
			Args: []string{"takeover", "--dry-run", "--node-name=n", "--manifests-dir=/none/manifests"},
			Want: "Error: there is no /none/manifests/kube-controller-manager.yaml; is this a control-plane node of kubeadm?\n",
		},
		"BackupsAmongManifests": {
			Args: []string{"handback", "--node-name=n", "--manifests-dir=."},
			Want: "Error: --manifests-dir \".\" must be the absolute path of a directory in another one",
		},
		"StepOfTheWayBack": {
			Args: []string{"takeover", "--node-name=n", "--steps=webhook"},
			Want: "Error: --steps \"webhook\" must be of manager, kube-controller-manager, kube-apiserver\n",
		},
		"ExtraArgIsNoFlag": {
			Args: []string{"takeover", "--node-name=n", "--extra-arg=v=4"},
			Want: "Error: --extra-arg \"v=4\" must be a flag, --name=value\n",
		},
		"NoAdministrator": {
			Args: []string{"handback", "--node-name=n", "--kubeconfig=testdata/none"},
			Want: "Error: --kubeconfig \"testdata/none\": ",
		},
	})
}

// TestSignerKeepsNoFlagOfTheManager: what an interrupted takeover of everything was given is named with its way out.
func TestSignerKeepsNoFlagOfTheManager(t *testing.T) {
	t.Parallel()
	const ring = "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring"
	n := newNode(t)
	takeovertest.WriteRing(t, n.Dir+"/pki/ring")
	n.takenOver(t, "--extra-arg=--service-account-private-key-file=", ring)
	got := n.takeover(t, "--only=signer", "--dry-run")
	for _, want := range []string{`"--service-account-private-key-file=" is not for signer`, "--reset drops what is kept"} {
		testutil.Expect(t, got.Code == 1 && strings.Contains(got.Stderr, want), "%+v, want %q", got, want)
	}
	if got := n.takeover(t, "--only=signer", "--reset", ring, "--dry-run"); got.Code != 0 {
		t.Errorf("with --reset: %+v", got)
	}
}

// TestStatusCommand: the files are enough.
func TestStatusCommand(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	args := append([]string{"status"}, n.flags(t)...)
	if got := clitest.Run(t, NewCommand(), args...); got.Code != 0 ||
		!strings.HasPrefix(got.Stdout, "Node:  n\nState: not taken over\n") {
		t.Errorf("%+v", got)
	}
	got := clitest.Run(t, NewCommand(), append(args, "-o", "json")...)
	var document map[string]any
	testutil.Must(t, json.Unmarshal([]byte(got.Stdout), &document))
	testutil.Expect(t, document["kind"] == "TakeoverStatus" && document["state"] == takeover.NotTakenOver, "%v", document)

	n.takenOver(t)
	if got := clitest.Run(t, NewCommand(), args...); got.Code != 2 || !strings.Contains(got.Stdout, "State: partly\n") {
		t.Errorf("%+v", got)
	}
}

// takenOver writes our manifest as a dry run prints it, and what it records.
func (n node) takenOver(t *testing.T, args ...string) {
	t.Helper()
	got := n.takeover(t, append(args, "--dry-run")...)
	_, diff, ok := strings.Cut(got.Stdout, "\n+++ "+n.Dir+"/"+takeovertest.OwnFile+"\n")
	diff, _, _ = strings.Cut(diff, "\n2. ")
	testutil.Require(t, got.Code == 0 && ok, "%+v, want our manifest", got)
	n.Write(t, takeovertest.OwnFile, []byte(regexp.MustCompile(`(?m)^(@@.*\n|\+)`).ReplaceAllString(diff+"\n", "")))
	if record := (component.Record{Flags: n.recorded(t, args...)}).Encode(); record != nil {
		n.Write(t, takeovertest.RecordFile, record)
	}
}

// recorded are the flags that a takeover records.
func (n node) recorded(t *testing.T, args ...string) []string {
	t.Helper()
	f, pod, fs := newNodeFlags(), newPodFlags(), pflag.NewFlagSet("", pflag.ContinueOnError)
	f.pod, f.Pod = &pod, &pod.Pod
	f.addTakeover(fs)
	f.ManifestsDir = n.Dir + "/manifests"
	testutil.Must(t, fs.Parse(args))
	testutil.Must(t, f.keep(fs))
	return f.Given
}

// TestTakeoverAgain: a rewrite keeps what the takeover before was given, and says what goes.
func TestTakeoverAgain(t *testing.T) {
	t.Parallel()
	const template, client = "--extra-arg=--account-template=/srv/a.yaml", "--extra-arg=--webhook-client-ca-file=/srv/ca.crt"
	const ring, noFile = "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring",
		"--extra-arg=--service-account-private-key-file="
	image := func(tag string) string { return "--image=registry.example.com/sa-controller-manager:" + tag }
	for name, tc := range map[string]struct {
		reason        string
		first, second []string
		kept, loses   string // as printed
		record        []string
	}{
		"AnotherFlag": {
			first: []string{"--token-secrets=auto", template, client}, second: []string{image("v2")},
			kept:   "--token-secrets=auto " + template + " " + client,
			record: []string{image("v2"), "--token-secrets=auto", template, client},
		},
		"SameFlag": {
			reason: "what is given counts", first: []string{"--token-secrets=auto", template, client},
			second: []string{"--token-secrets=manual", "--extra-arg=--account_template=/srv/b.yaml"},
			kept:   client, loses: "--token-secrets=auto --account-template=/srv/a.yaml",
			record: []string{"--token-secrets=manual", "--extra-arg=--account_template=/srv/b.yaml", client},
		},
		"NoFlag": {first: []string{template}, kept: template, second: []string{"--rewrite"}, record: []string{template}},
		"Reset": {
			first: []string{"--token-secrets=auto", template, client}, second: []string{"--reset", client},
			loses: "--token-secrets=auto --account-template=/srv/a.yaml", record: []string{client},
		},
		"BinaryForImage": {first: []string{image("v1")}, second: []string{"--binary=/opt/new"}, record: []string{"--binary=/opt/new"}},
		"Signer": {
			reason: "our manifest says so", first: []string{"--external-signer"}, second: []string{template}, record: []string{template},
		},
		"OnlySigner": {
			reason: "until another takeover is to do more", first: []string{"--only=signer", ring}, second: []string{"--rewrite"},
			kept: ring + " --only=signer", record: []string{ring, "--only=signer"},
		},
		"EverythingAfterTheSigner": {
			first: []string{"--only=signer", ring}, second: []string{"--only=", noFile}, kept: ring, loses: "signer",
			record: []string{noFile, ring},
		},
		"ResetSigner": {
			reason: "kube-apiserver has not been changed yet", first: []string{"--external-signer"}, second: []string{"--reset"},
			loses: "--external-signer-socket=/run/sa-controller-manager/signer.sock " +
				"--service-account-issuer=https://kubernetes.default.svc.cluster.local " +
				"--service-account-key-file=/etc/kubernetes/pki/sa.pub",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			takeovertest.WriteRing(t, n.Dir+"/pki/ring")
			n.takenOver(t, tc.first...)
			testutil.Check(t, tc.reason+": record", tc.record, n.recorded(t, tc.second...))
			got := n.takeover(t, append(tc.second, "--dry-run")...)
			testutil.Require(t, got.Code == 0, "%+v", got)
			line := func(before, after string) string {
				found := regexp.MustCompile(`(?m)^` + before + `(.*)` + after + `$`).FindStringSubmatch(got.Stdout)
				return strings.Join(found[min(1, len(found)):], "")
			}
			testutil.Check(t, tc.reason+": kept", tc.kept, line("Kept from the last takeover: ", `\. --reset drops them\.`))
			testutil.Check(t, tc.reason+": lost", tc.loses, line("Our process loses: ", `\.`))
		})
	}
}

// TestRecordIsRefused: a record that this version does not understand is not dropped silently.
func TestRecordIsRefused(t *testing.T) {
	t.Parallel()
	const noRecord = ": want the record of a takeover, as JSON: invalid character"
	for name, tc := range map[string]struct{ record, want, reset string }{
		"NoRecord": {"x", noRecord, noRecord},
		"Two":      {"{}}", noRecord, noRecord},
		"Unknown":  {`{"flags": ["--new-flag=1"]}`, `: no such flag -new-flag; --reset goes on without`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.Write(t, takeovertest.RecordFile, []byte(tc.record))
			before := n.Files(t)
			want := "Error: " + n.Dir + "/" + takeovertest.RecordFile + tc.want
			got := n.takeover(t, "--dry-run")
			testutil.Expect(t, got.Code == 1 && strings.HasPrefix(got.Stderr, want), "%+v, want %s", got, want)
			if got := n.takeover(t, "--dry-run", "--reset"); got.Code != 0 != (tc.reset != "") || !strings.Contains(got.Stderr, tc.reset) {
				t.Errorf("with --reset: %+v", got)
			}
			testutil.Check(t, "files", before, n.Files(t))
		})
	}
}

// TestHangup: a dropped SSH session ends a wait, so that the step rolls back.
func TestHangup(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("the tests run under nohup, which says to go on")
	}
	n, f := newNode(t), newNodeFlags()
	cmd := &cobra.Command{SilenceUsage: true, SilenceErrors: true, RunE: func(cmd *cobra.Command, _ []string) error {
		return f.run(cmd, func(ctx context.Context, _ takeover.Config) error {
			testutil.Must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
			<-ctx.Done()
			return ctx.Err()
		})
	}}
	f.addPlaces(cmd)
	cmd.SetArgs(n.flags(t))
	err := cmd.ExecuteContext(t.Context())
	testutil.Expect(t, errors.Is(err, context.Canceled), "%v", err)
}

// TestHandbackDryRun asks kube-apiserver which keys were revoked elsewhere, and goes on without.
func TestHandbackDryRun(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.takenOver(t)
	before := n.Files(t)
	got := clitest.Run(t, NewCommand(), append([]string{"handback", "--dry-run", "--skip-key-check"}, n.flags(t)...)...)
	testutil.Expect(t, got.Code == 0 && strings.Contains(got.Stdout, "\nNot checked, because kube-apiserver did not answer (Get "), "%+v",
		got)
	testutil.Check(t, "files", before, n.Files(t))
}
