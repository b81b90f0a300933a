// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
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

// newTakeoverNode has our program, and another version of it.
func newTakeoverNode(t *testing.T) *controlPlane {
	t.Helper()
	p := newControlPlane(t, "v1.37")
	for _, name := range []string{"sa-controller-manager", "new"} {
		p.write(t, "../../opt/"+name, nil)
		testutil.Must(t, os.Chmod(p.located("ROOT/opt/"+name), 0o700))
	}
	return p
}

// takeover runs the command as if the program were the node's. Its API server is never asked.
func (p *controlPlane) takeover(t *testing.T, args ...string) clitest.Outcome {
	t.Helper()
	flags := newPodFlags()
	flags.self = p.located("ROOT/opt/sa-controller-manager")
	flags.binary = flags.self
	flags.versionOf = p.config.Pod.versionOf
	return clitest.Run(t, cli.Parent(&cobra.Command{Use: "kubeadm"}, newTakeoverCommand(flags)),
		slices.Concat([]string{"takeover", "--step-timeout=10ms"}, p.nodeFlags(t), args)...)
}

func (p *controlPlane) nodeFlags(t *testing.T) []string {
	t.Helper()
	return []string{
		"--node-name=n", "--manifests-dir=" + p.config.ManifestsDir,
		"--kubeconfig=" + testutil.WriteFile(t, "kubeconfig", []byte(deadKubeconfig)),
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
			p := newTakeoverNode(t)
			writeRing(t, p.dir+"/pki/ring")
			writeFiles(t, p.dir+"/pki/corp")
			writeFiles(t, p.located("ROOT/etc/corp"))
			if tc.file != "" {
				testutil.Must(t, os.Remove(p.located("ROOT"+tc.file)))
			}
			for _, flag := range tc.kcm {
				p.change(t, component.ControllerManager, "    image:", "    - "+flag+"\n    image:")
			}
			before := p.files(t)
			got := p.takeover(t, append(tc.args, "--dry-run")...)
			want := p.located(tc.want)
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
				got := p.takeover(t, tc.args...)
				testutil.Expect(t, strings.HasPrefix(got.Stderr, want), "%s: without --dry-run: %+v, want %q", tc.reason, got, want)
			}
			testutil.Check(t, "files", before, p.files(t))
		})
	}
}

// TestSecondCommand: two commands at a time would change the same files.
func TestSecondCommand(t *testing.T) {
	t.Parallel()
	p := newTakeoverNode(t)
	before := p.files(t)
	unlock := testutil.Get(nodefile.Lock(p.config.ManifestsDir))(t)
	want := "Error: another kubeadm takeover or handback works on " + p.config.ManifestsDir + "; let it end first\n"
	got := p.takeover(t)
	testutil.Expect(t, got.Code == 1 && got.Stderr == want && got.Stdout == "", "%+v, want %q", got, want)
	if got := p.takeover(t, "--dry-run"); got.Code != 0 {
		t.Errorf("a dry run changes nothing: %+v", got)
	}
	unlock()
	if got := p.takeover(t); strings.Contains(got.Stderr, "another") {
		t.Errorf("afterwards: %+v", got)
	}
	testutil.Check(t, "files", before, p.files(t))
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

// onlySigner is what --only=signer asks for.
func (p *controlPlane) onlySigner() {
	p.config.OnlySigner, p.config.ExternalSigner, p.config.KeepPlugin, p.config.Rewrite = true, true, true, true
	p.config.Steps = []string{StepManager, StepAPIServer}
}

// TestOnlySigner: kube-apiserver leaves its tokens to our process, kube-controller-manager is not touched, and a handback gives
// all files back, though our process runs none of what may have been off before.
func TestOnlySigner(t *testing.T) {
	t.Parallel()
	for name, sample := range map[string]string{"ReadsFiles": "v1.37", "ReadsNone": "v1.36"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, sample)
			p.change(t, StepControllerManager, "tokencleaner\n", "tokencleaner,-legacy-serviceaccount-token-cleaner-controller\n")
			before, command := p.files(t), p.command(t)
			p.onlySigner()
			p.writeSteps(t, takeover, all)
			after := p.files(t)
			testutil.Check(t, "kube-controller-manager", before[kcmFile], after[kcmFile])
			files := slices.DeleteFunc(command, func(flag string) bool {
				return strings.HasPrefix(flag, "--service-account-key-file=") ||
					strings.HasPrefix(flag, "--service-account-signing-key-file=")
			})
			testutil.Check(t, "kube-apiserver", append(files, "--"+endpointFlag+"="+manifests.SignerSocket), p.command(t))
			own := staticpod.CommandIn([]byte(after[ownFile]))
			testutil.Check(t, "our command", []string{"/usr/local/bin/sa-controller-manager", "signer"}, []string(own[:2]))
			ofManager := regexp.MustCompile(`--(controllers|token-secrets|root-ca-file|webhook-|service-account-private)\S*`)
			extra := ofManager.FindAllString(strings.Join(own, " "), -1)
			testutil.Expect(t, extra == nil, "our process has %q", extra)

			p.config.Rewrite = false
			p.writeSteps(t, takeover, all)
			testutil.Check(t, "after one more takeover", after, p.files(t))
			wantError(t, "our process may stop", p.config.unused(t.Context()), "first run: kubeadm handback --steps=kube-apiserver")
			p.config.Steps = nil
			p.writeSteps(t, handback, all)
			wantError(t, "our process may stop", p.config.unused(t.Context()), "")
			testutil.Check(t, "after the handback", before, p.withoutBackups(t))
		})
	}
}

// TestSignerAndEverything: from the one to the other it is another takeover, and back only by a handback.
func TestSignerAndEverything(t *testing.T) {
	t.Parallel()
	for name, sample := range map[string]string{"ReadsFiles": "v1.37", "ReadsNone": "v1.36"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, sample)
			before := p.files(t)
			p.onlySigner()
			p.writeSteps(t, takeover, all)
			p.config.OnlySigner, p.config.ExternalSigner, p.config.KeepPlugin, p.config.Steps = false, false, false, nil
			p.refuses(t, "it would sign with a key file", Takeover, "and the rewrite would drop it; to keep it add")
			p.config.Pod.extraArgs = append(p.config.Pod.extraArgs, "--"+component.KeyFlag+"=",
				"--"+component.KeyRingFlag+"="+manifests.KeyRing)
			p.writeSteps(t, takeover, all)
			status := testutil.Get(p.config.status())(t)
			testutil.Check(t, "status", takenOver, status.State)
			if slices.Contains(status.Command, manifests.SignerCommand) ||
				!slices.Contains(status.Command, "--external-signer-socket="+manifests.SignerSocket) {
				t.Errorf("our command is %q, want that of the manager, which signs, too", status.Command)
			}
			p.onlySigner()
			p.refuses(t, "back", Takeover, "; first run: kubeadm handback")
			p.config.Steps, p.config.Rewrite = nil, false
			p.writeSteps(t, handback, all)
			testutil.Check(t, "after the handback", before, p.withoutBackups(t))
		})
	}
}

// TestSignerKeepsNoFlagOfTheManager: what an interrupted takeover of everything was given is named with its way out.
func TestSignerKeepsNoFlagOfTheManager(t *testing.T) {
	t.Parallel()
	const ring = "--extra-arg=--service-account-key-ring=/etc/kubernetes/pki/ring"
	p := newTakeoverNode(t)
	writeRing(t, p.dir+"/pki/ring")
	p.takenOver(t, "--extra-arg=--service-account-private-key-file=", ring)
	got := p.takeover(t, "--only=signer", "--dry-run")
	for _, want := range []string{`"--service-account-private-key-file=" is not for signer`, "--reset drops what is kept"} {
		testutil.Expect(t, got.Code == 1 && strings.Contains(got.Stderr, want), "%+v, want %q", got, want)
	}
	if got := p.takeover(t, "--only=signer", "--reset", ring, "--dry-run"); got.Code != 0 {
		t.Errorf("with --reset: %+v", got)
	}
}

// TestTakeoverWithoutItsRecord: the backup, which is the only copy of the key flags then, is not written over.
func TestTakeoverWithoutItsRecord(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.onlySigner()
	p.writeSteps(t, takeover, all)
	p.remove(t, "sa-controller-manager-backup/record.json", apiServerPatch)
	p.refuses(t, "again", Takeover, "there is --"+endpointFlag+"="+manifests.SignerSocket+", but no record of what a takeover has changed")
}
