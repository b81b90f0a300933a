// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

const rsaID = "08iLkgQ_1toJ0m7DOaK-qM-kpePj85P8ak2auCJDaGY"

// keysCommand runs one on a ring, without a cluster.
func keysCommand(t *testing.T, ring string, args ...string) clitest.Outcome {
	t.Helper()
	return keysCommandIn(t, noCluster, ring, args...)
}

// keysCommandIn runs one on a ring, with a cluster if args have --kubeconfig.
func keysCommandIn(t *testing.T, client cli.ClientFunc, ring string, args ...string) clitest.Outcome {
	t.Helper()
	got := clitest.Run(t, NewCommand(client), append(args, "--service-account-key-ring="+ring)...)
	testutil.Expect(t, !strings.Contains(got.Stdout+got.Stderr, "PRIVATE KEY"), "keys %v prints a key", args)
	return got
}

// step is a command, its exit code and a part of what it prints.
type step struct {
	args []string
	code int
	want string
}

// goThrough runs the steps on a ring until one is not as wanted.
func goThrough(t *testing.T, client cli.ClientFunc, ring string, steps []step) {
	t.Helper()
	for _, step := range steps {
		if got := keysCommandIn(t, client, ring, step.args...); got.Code != step.code ||
			!strings.Contains(got.Stdout+got.Stderr, step.want) {
			t.Fatalf("keys %v: code %d, want %d and %q:\n%s%s", step.args, got.Code, step.code, step.want, got.Stdout, got.Stderr)
		}
	}
}

func noCluster(*options.Connection) (kubernetes.Interface, error) {
	return nil, errors.New("there is no cluster")
}

// TestKeysCommands goes through what an operator does who has no kube-apiserver at hand.
func TestKeysCommands(t *testing.T) {
	t.Parallel()
	ring := filepath.Join(t.TempDir(), "keys", "ring.json")
	from := testutil.WriteFile(t, "sa.key", testkeys.RSA2048())
	goThrough(t, noCluster, ring, []step{
		{[]string{"list"}, 1, "no such file or directory (keys import brings that of another host, keys init makes the first one)"},
		{
			[]string{"init", "--from-private-key-file=" + from, "--service-account-key-file=" +
				testutil.WriteFile(t, "old.pub", testkeys.P384())},
			0, "RS256       next      file",
		},
		{[]string{"init", "--from-private-key-file=" + from}, 1, "is there already"},
		{[]string{"list"}, 0, "ES384       retired   -"},
		{[]string{"list"}, 0, "kube-apiserver was not asked about these keys: give --kubeconfig or --context.\n"},
		{[]string{"list"}, 0, "If leaked:  sa-controller-manager keys revoke --service-account-key-ring=" + ring + " --yes " + rsaID + " "},
		{[]string{"next"}, 0, "Nothing was changed: key "},
		{[]string{"next", "--algorithm=P-256"}, 0, "ES256       next      file"},
		{[]string{"next", "--algorithm=P-256"}, 0, "(ES256) is the next one: nothing to do.\n"},
		{[]string{"rotate"}, 1, "there is no cluster"},
		{[]string{"rollback"}, 1, "there is no cluster"},
		{[]string{"revoke", "--yes", "nobody"}, 1, "no ring has a key nobody"},
		{[]string{"revoke", "--yes", rsaID}, 1, "but: it is not known whether a kube-apiserver still accepts them"},
		{[]string{"list"}, 0, "ES256       active    file"},
	})
	var report struct{ Keys []struct{ ID string } }
	err := json.Unmarshal([]byte(keysCommand(t, ring, "list", "-o", "json").Stdout), &report)
	testutil.Require(t, err == nil && len(report.Keys) == 3, "-o json has %d keys (%v), want 3", len(report.Keys), err)
	// Others may read it: a finding.
	testutil.Must(t, os.Chmod(ring, 0o640))
	got := keysCommand(t, ring, "list")
	testutil.Expect(t, got.Code == cli.ExitFindings && strings.Contains(got.Stdout, "chmod 600"), "a loose mode: %+v", got)
}

// TestKeysDryRun: what would be is shown, and the file stays as it is.
func TestKeysDryRun(t *testing.T) {
	t.Parallel()
	path, fresh := filepath.Join(t.TempDir(), "ring.json"), filepath.Join(t.TempDir(), "pki", "ring.json")
	keysCommand(t, path, "init", "--algorithm=P-256")
	state := testutil.Get(ring.At(path).Read())(t)
	before := testutil.Get(os.ReadFile(path))(t)
	world := newWorld(t)
	client := func(o *options.Connection) (kubernetes.Interface, error) {
		testutil.Expect(t, o.DryRun, "the client writes")
		return world.Cluster.Client, nil
	}
	for name, tc := range map[string]struct {
		ring string
		args []string
		want string // in what is printed
	}{
		"Init":   {fresh, []string{"init", "--algorithm=P-384"}, "ES384       active"},
		"Import": {fresh, []string{"import", path}, "generation 1 after a dry run: nothing was changed\n"},
		"Next":   {path, []string{"next", "--algorithm=P-384"}, "ES384       next"},
		"Rotate": {path, []string{"rotate", "--kubeconfig=k", "--wait"}, "Dry run:    nothing is changed"},
		"Prune":  {path, []string{"prune", "--kubeconfig=k", "--longest-token-lifetime=48h"}, "nothing was changed\n"},
		"None": {
			path, []string{"prune", "--kubeconfig=k", "--longest-token-lifetime=48h"}, "Nothing to prune: the ring has no retired key.",
		},
		"Revoke": {path, []string{"revoke", "--yes", state.Active().ID}, "generation 2 after a dry run: nothing was changed\n"},
	} {
		got := keysCommandIn(t, client, tc.ring, append(tc.args, "--dry-run")...)
		testutil.Expect(t, strings.Contains(got.Stdout+got.Stderr, tc.want), "%s: %+v, want %q", name, got, tc.want)
	}
	after, err := os.ReadFile(path)
	testutil.Expect(t, err == nil && bytes.Equal(before, after), "the ring has changed, or %v", err)
	if _, err := os.Stat(filepath.Dir(fresh)); !os.IsNotExist(err) {
		t.Errorf("a directory was made, or %v", err)
	}
}

func TestKeysCommandsRefuse(t *testing.T) {
	t.Parallel()
	cert, _, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	testutil.Must(t, err)
	weak := testutil.WriteFile(t, "old.pub", slices.Concat(testkeys.RSA1024(), testkeys.P256()))
	clitest.Refuses(t, func() *cobra.Command { return NewCommand(cli.Connect) }, clitest.Refusals{
		"NoRing": {[]string{"list"}, `Error: --service-account-key-ring "" must be the path of a key ring`},
		"NoKey": {
			[]string{"init", "--service-account-key-ring=x"},
			"Error: give --from-private-key-file to keep the current key, or --algorithm or --key",
		},
		"WeakKey": {
			[]string{"next", "--service-account-key-ring=x", "--algorithm=RSA-1024"},
			`Error: --algorithm "RSA-1024" must be one of "P-256", `,
		},
		"Certificate": {
			[]string{"init", "--service-account-key-ring=x", "--from-private-key-file=" + testutil.WriteFile(t, "crt", cert)},
			"Error: --from-private-key-file: ",
		},
		"LostKey": {
			[]string{
				"init", "--service-account-key-ring=" + filepath.Join(t.TempDir(), "keys"), "--algorithm=P-256",
				"--service-account-key-file=" + weak,
			},
			"Error: --service-account-key-file: " + weak + ": found an RSA key of 1024 bits; accepted is ",
		},
		"NoLifetime": {
			[]string{"prune", "--service-account-key-ring=x", "--kubeconfig=k"},
			"Error: --longest-token-lifetime must be given, or a key may go whose tokens are valid",
		},
		"LifetimeOfNothing": {
			[]string{"prune", "--service-account-key-ring=x", "--kubeconfig=k", "--longest-token-lifetime=0s"},
			"Error: --longest-token-lifetime 0s must be greater than 0",
		},
		"NextKey": {
			[]string{"rotate", "--service-account-key-ring=x", "--kubeconfig=k", "--next-key=hsm"},
			`Error: --next-key "hsm" must be kep740:NAME`,
		},
		"NoKeyID":         {[]string{"revoke", "--service-account-key-ring=x"}, "Error: want the KEY-ID of each key to revoke"},
		"ExportWhere":     {[]string{"export", "--service-account-key-ring=x"}, `Error: --kubeadm "" must be given`},
		"NothingToImport": {[]string{"import", "--service-account-key-ring=x"}, "Error: want one FILE to import, got []"},
	})
}

// TestKeysListAsks: the cluster is asked if any flag names it, and found as every command finds it.
func TestKeysListAsks(t *testing.T) {
	t.Parallel()
	ring := filepath.Join(t.TempDir(), "ring.json")
	keysCommand(t, ring, "init", "--algorithm=P-256")
	for flag, asks := range map[string]bool{
		"": false, "--kubeconfig=k": true, "--context=c": true, "--master=https://a": true, "--apiserver=https://a": true,
	} {
		args, want := []string{"list"}, step{code: 0, want: "KEY-ID"}
		if flag != "" {
			args = append(args, flag)
		}
		if asks {
			want = step{code: 1, want: "Error: there is no cluster"}
		}
		goThrough(t, noCluster, ring, []step{{args, want.code, want.want}})
	}
}

// TestKeysForget: a host whose file is lost is given up where it was, or on a workstation that has no file.
func TestKeysForget(t *testing.T) {
	t.Parallel()
	kube := clitest.NewKubeClient(func(string) string { return "" })
	testutil.Must(t, hosts.Edit(t.Context(), kube, func(p *hosts.Published) error {
		p.Entries = []hosts.Entry{{Host: "cp-3", History: []string{"1:main"}}}
		return nil
	}))
	client := func(*options.Connection) (kubernetes.Interface, error) { return kube, nil }
	goThrough(t, client, filepath.Join(t.TempDir(), "ring.json"), []step{
		{[]string{"forget", "cp-3"}, 0, ""}, {[]string{"forget", "cp-3"}, 0, `Nothing was changed: no host "cp-3" is known`},
	})
}

// TestKeysRevoke: a key goes after a yes on a terminal or by --yes, and not otherwise. Then it is not known
// what kube-apiserver says, because it cannot be asked.
func TestKeysRevoke(t *testing.T) {
	t.Parallel()
	const question = "every token signed with " + rsaID + " will be refused, those in Secrets until they are filled again"
	const revoked = "revoked, but: it is not known"
	cases := map[string]struct {
		reason  string
		typed   string // on the terminal; "" is none
		args    []string
		want    string // in what is printed
		revoked bool
	}{
		"Script": {
			want: "Error: nothing was changed: " + question + "; standard input is no terminal: give --yes to revoke the key\n",
		},
		"ScriptYes":     {args: []string{"--yes"}, want: revoked, revoked: true},
		"TerminalYes":   {typed: "y\n", want: question + ". Revoke it? [y/N] ", revoked: true},
		"TerminalWord":  {typed: "Yes\n", want: revoked, revoked: true},
		"TerminalNo":    {typed: "n\n", want: "Error: nothing was changed\n"},
		"TerminalEnter": {reason: "no is the default", typed: "\n", want: "Error: nothing was changed\n"},
		"TerminalEnd":   {reason: "Ctrl-D is no yes", typed: "\x04", want: "Error: nothing was changed\n"},
	}
	from := testutil.WriteFile(t, "sa.key", testkeys.RSA2048())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := filepath.Join(t.TempDir(), "ring.json")
			keysCommand(t, ring, "init", "--from-private-key-file="+from)
			cmd := NewCommand(cli.Connect)
			if tc.typed != "" {
				cmd.SetIn(terminal(t, tc.typed))
			}
			got := clitest.Run(t, cmd, append([]string{"revoke", rsaID, "--service-account-key-ring=" + ring}, tc.args...)...)
			testutil.Expect(t, got.Code == 1 && strings.Contains(got.Stdout+got.Stderr, tc.want), "%s: code %d, want 1 and %q:\n%s%s",
				tc.reason,
				got.Code, tc.want, got.Stdout, got.Stderr)
			if left := keysCommand(t, ring, "list"); strings.Contains(left.Stdout, "\n"+rsaID) == tc.revoked {
				t.Errorf("%s: revoked: %t, want %t:\n%s", tc.reason, !tc.revoked, tc.revoked, left.Stdout)
			}
		})
	}
}

// terminal returns a terminal on which text was typed.
func terminal(t *testing.T, text string) *os.File {
	t.Helper()
	open := func(path string) *os.File {
		file := testutil.Get(os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0))(t)
		t.Cleanup(func() { _ = file.Close() })
		return file
	}
	keyboard := open("/dev/ptmx")
	number := testutil.Get(unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN))(t)
	testutil.Must(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	screen := open(fmt.Sprintf("/dev/pts/%d", number))
	testutil.Get(keyboard.WriteString(text))(t)
	return screen
}

// TestExportKubeadm: sa.pub has the next key, too, and sa.key the one that signs, unless that is elsewhere. kubeadm
// compares sa.key with the first key of sa.pub when a control-plane node joins. A rootless control plane has given
// sa.key to a group.
func TestExportKubeadm(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "ring.json")
	keysCommand(t, file, "init", "--algorithm=P-256")
	read := func(name string) []byte {
		return testutil.Get(os.ReadFile(filepath.Join(dir, name)))(t)
	}
	if got := keysCommand(t, file, "export", "--kubeadm="+dir); got.Code != 0 || got.Stdout != "" {
		t.Fatalf("%+v", got)
	}
	public, err := signing.ParsePublicKeys(read("sa.pub"))
	if private := testkeys.Parse(read("sa.key")).ID(); err != nil || len(public) != 2 || private != public[0].ID {
		t.Errorf("sa.pub has %d keys (%v), and sa.key %s", len(public), err, private)
	}
	pub := read("sa.pub")
	refuses := func(why string, spoil func(ring.State) ring.State) {
		t.Helper()
		spoiled := ring.At(filepath.Join(t.TempDir(), "ring.json"))
		data := testutil.Get(os.ReadFile(file))(t)
		testutil.Must(t, os.WriteFile(spoiled.Path(), data, 0o600))
		testutil.Must(t, spoiled.Update(1, func(state ring.State) (ring.State, error) { return spoil(state), nil }))
		if why == "restored" {
			testutil.Must(t, os.Rename(spoiled.Path(), spoiled.Path()+".previous"))
			testutil.Must(t, os.WriteFile(spoiled.Path(), data, 0o600))
		}
		got := keysCommand(t, spoiled.Path(), "export", "--kubeadm="+dir)
		after := read("sa.pub")
		testutil.Expect(t, got.Code == 1 && strings.Contains(got.Stderr, "nothing was written") && bytes.Equal(after, pub), "%s: %+v", why,
			got)
	}
	refuses("restored", func(state ring.State) ring.State {
		return testutil.Get(ring.Rotate(state, nil, time.Now()))(t)
	})
	refuses("revoked", func(state ring.State) ring.State {
		key := state.Active()
		state.Revoked = ring.Revocations{{ID: key.ID, Digest: key.Digest(), Reason: ring.Revoked}}
		return state
	})
	modes := map[string]os.FileMode{"sa.key": 0o640, "sa.pub": 0o600}
	for name, mode := range modes {
		testutil.Must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	testutil.Must(t, os.Chmod(filepath.Join(dir, "sa.key"), 0o644))
	if got := keysCommand(t, file, "export", "--kubeadm="+dir); got.Code != 1 || !strings.Contains(got.Stderr, "chmod o= ") {
		t.Errorf("into a file that others may read: %+v", got)
	}
	testutil.Must(t, os.Chmod(filepath.Join(dir, "sa.key"), modes["sa.key"]))
	// Other kinds than that of the first key, which is retired in the end, and written before the others.
	old := ring.At(file)
	state := testutil.Get(old.Read())(t)
	rotated := testutil.Get(ring.Next(state, ring.KeyOf(testkeys.Parse(testkeys.RSA2048())), time.Now()))(t)
	if rotated, err = ring.Rotate(rotated, new(ring.KeyOf(testkeys.Parse(testkeys.P384()))), time.Now()); err == nil {
		err = old.Update(state.Generation, func(ring.State) (ring.State, error) { return rotated, nil })
	}
	testutil.Must(t, err)
	if got := keysCommand(t, file, "export", "--kubeadm="+dir); got.Code != 0 {
		t.Fatalf("after a rotation: %+v", got)
	}
	if public, err = signing.ParsePublicKeys(read("sa.pub")); err != nil || len(public) != 3 ||
		public[0].ID != testkeys.Parse(read("sa.key")).ID() {
		t.Errorf("after a rotation the first of %d keys (%v) is not that of sa.key", len(public), err)
	}
	for name, mode := range modes {
		info, err := os.Stat(filepath.Join(dir, name))
		testutil.Expect(t, err == nil && info.Mode() == mode, "%s has mode %v, want %v", name, info.Mode(), mode)
	}
	key := testkeys.Parse(testkeys.P384()).Public()
	key.ID = "hsm/1"
	remote := ring.At(filepath.Join(t.TempDir(), "ring.json"))
	retired := []signing.PublicKey{testkeys.Parse(testkeys.P521()).Public(), public[0]}
	testutil.Must(t, remote.Init(signing.RemoteKey("hsm", key, nil), retired, nil, time.Now()))
	before := read("sa.key")
	got := keysCommand(t, remote.Path(), "export", "--kubeadm="+dir)
	if public, err := signing.ParsePublicKeys(read("sa.pub")); got.Code != 0 || err != nil || len(public) != 2 ||
		public[0].ID != testkeys.Parse(before).ID() ||
		!bytes.Equal(read("sa.key"), before) ||
		!strings.Contains(got.Stderr, "sa.key stays as it is: kep740:hsm has the private half of key hsm/1") ||
		!strings.Contains(got.Stderr, "key hsm/1 is left out") {
		t.Errorf("with an HSM: %d keys (%v), %+v", len(public), err, got)
	}

	// Without the HSM: a new key each time, which the ring has not.
	ids := []string{testkeys.Parse(before).ID()}
	for range 2 {
		got := keysCommand(t, remote.Path(), "export", "--kubeadm="+dir, "--new-key")
		id := testkeys.Parse(read("sa.key")).ID()
		public, err := signing.ParsePublicKeys(read("sa.pub"))
		if got.Code != 0 || err != nil || len(public) != 3 || public[0].ID != id || slices.Contains(ids, id) ||
			!bytes.Equal(read("sa.key.previous"), before) {
			t.Errorf("a new key: %s, %d keys (%v), %+v", id, len(public), err, got)
		}
		ids, before = append(ids, id), read("sa.key")
	}
}

// TestKeysImport brings a ring to a second node.
func TestKeysImport(t *testing.T) {
	t.Parallel()
	first, second := filepath.Join(t.TempDir(), "ring.json"), filepath.Join(t.TempDir(), "pki", "ring.json")
	keysCommand(t, first, "init", "--algorithm=P-256")
	data := testutil.Get(os.ReadFile(first))(t)
	old := testutil.WriteFile(t, "old.json", data)
	goThrough(t, noCluster, second, []step{
		{[]string{"import", first}, 0, "generation 1\n"},
		{[]string{"import", first}, 0, "Nothing was changed: the ring is the same already"},
		{[]string{"next", "--algorithm=P-384"}, 0, "generation 2\n"},
		{[]string{"import", old}, 1, old + ": generation 1 is older than 2"},
		{[]string{"import", old + "er"}, 1, "Error: " + old + "er does not exist\n"},
	})
	testutil.Must(t, os.Truncate(second, 100))
	goThrough(t, noCluster, second, []step{{[]string{"import", first}, 1, "move a damaged file away (mv) and run this again"}})
	testutil.Must(t, os.Rename(second, second+".damaged"))
	goThrough(t, noCluster, second, []step{{[]string{"import", first}, 0, "generation 1\n"}})
}

// TestKeyOfASigner: the commands take the key of another process, and cannot give it away.
func TestKeyOfASigner(t *testing.T) {
	t.Parallel()
	socket, ring := filepath.Join(t.TempDir(), "hsm.sock"), filepath.Join(t.TempDir(), "ring.json")
	signertest.ServeForeign(t, socket, "hsm/1:sa", testkeys.P256())
	sockets := testutil.WriteFile(t, "sockets.yaml", []byte("schemaVersion: 1\nsockets: {hsm: "+socket+"}\n"))
	hsm := []string{"--key=kep740:hsm", "--service-account-key-sockets=" + sockets, "--service-account-issuer=https://issuer.example"}
	goThrough(t, noCluster, ring, []step{
		{append([]string{"init"}, hsm...), 1, "is in another process (kep740:hsm), and so must be the one after it"},
		{append([]string{"init", "--next-key=none"}, hsm...), 0, "active   kep740:hsm"},
		{append([]string{"next"}, hsm...), 1, "is in the ring already, as active"},
		{[]string{"next"}, 1, "is in another process (kep740:hsm)"},
		{[]string{"next", "--algorithm=P-384"}, 0, "ES256       active   kep740:hsm"},
		{[]string{"export", "--kubeadm=" + t.TempDir()}, 0, "key hsm/1:sa is left out"},
	})
}
