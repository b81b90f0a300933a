// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
)

// TestCorpus takes over what kubeadm has written over the years, what kind makes of it and what is written by hand,
// and gives it back with the backup and, by the patch, without.
func TestCorpus(t *testing.T) {
	t.Parallel()
	keys := SigningKeys{Private: "/etc/kubernetes/pki/sa.key", Verify: []string{"/etc/kubernetes/pki/sa.pub"}}
	paths, err := filepath.Glob("../testdata/manifests/*/*.yaml")
	if err != nil || len(paths) < 12 {
		t.Fatalf("%d manifests, %v", len(paths), err)
	}
	for _, path := range paths {
		ways := map[string]Component{"": ForControllerManager()}
		if filepath.Base(path) == APIServer+".yaml" {
			ways = map[string]Component{"": ForAPIServer(Changes{Plugin: true}, keys)}
			if strings.Contains(path, "/v1.36/") || strings.Contains(path, "/v1.37/") {
				ways["all"] = ForAPIServer(Changes{Plugin: true, Files: true, Signer: true}, keys)
			}
		}
		for way, c := range ways {
			t.Run(path+" "+way, func(t *testing.T) {
				before := staticpodtest.Read(t, path)
				taken, err := c.Takeover(Files{Name: c.Name, Manifest: before})
				testutil.Must(t, err)
				if bytes.Equal(before, taken.After.Bytes()) {
					t.Fatal("nothing was changed")
				}
				f := Files{Name: c.Name, Manifest: taken.After.Bytes(), Backup: before, Patch: taken.Patch, WithOurs: true}
				again, err := c.Takeover(f)
				testutil.Must(t, err)
				testutil.Check(t, "a second takeover", string(f.Manifest), string(again.After.Bytes()))
				for _, backup := range [][]byte{before, nil} {
					f.Backup = backup
					back, _, err := c.Handback(f, taken.After, "")
					testutil.Must(t, err)
					testutil.Check(t, "the way back", string(before), string(back.Bytes()))
				}
			})
		}
	}
}

// TestEdits is what a takeover appends to a command, and what a handback leaves of it.
func TestEdits(t *testing.T) {
	t.Parallel()
	kcm, api := ForControllerManager(), ForAPIServer(Changes{Plugin: true}, SigningKeys{})
	const (
		key, noKey = "--service-account-private-key-file=k", "--service-account-private-key-file="
		aliases    = "--controllers=*,-serviceaccount,-root-ca-cert-publisher,-legacy-service-account-token-cleaner"
		noPlugin   = "--disable-admission-plugins=ServiceAccount"
		image      = "registry.k8s.io/kube-controller-manager:"
	)
	three, bundle := Assign(ControllersFlag, controllersOff), Assign(ControllersFlag, trustBundleOff)
	all := "--controllers=*," + controllersOff
	cases := map[string]struct {
		reason    string
		component Component
		image     string
		command   []string
		added     []string // by a takeover
		refused   string   // a part of the refusal
		back      []string // after a handback of command without a record, with the key sa.key; the command if nil
	}{
		"Stock": {component: kcm, command: []string{"--controllers=*,bootstrapsigner", key}, added: []string{three, noKey}},
		"NoControllersFlag": {
			reason: "a flag that is given replaces the default", component: kcm, command: []string{key}, added: []string{all, noKey},
		},
		"TheDefaultWrittenByATakeover": {component: kcm, command: []string{key, all, noKey}, back: []string{key}},
		"MadeWithOurs": {
			reason:    "a kind cluster has it in its kubeadm configuration, so there is no line of its own",
			component: kcm, command: []string{"--controllers=*,bootstrapsigner," + controllersOff, noKey, "--v=2"},
			back: []string{"--controllers=*,bootstrapsigner", noKey + "sa.key", "--v=2"},
		},
		"MadeWithOursAndNothingElse": {component: kcm, command: []string{all + "," + trustBundleOff, noKey}, back: []string{noKey + "sa.key"}},
		"Aliases": {
			reason:    "that is not how a takeover calls them, so the operator has turned them off",
			component: kcm, command: []string{aliases, "--service_account_private_key_file=k"}, added: []string{noKey},
		},
		"OneOfThreeIsOff": {component: kcm, command: []string{"--controllers=*,-serviceaccount-controller"}, added: []string{three}},
		"NoStar":          {reason: "nothing is on by default then", component: kcm, command: []string{"--controllers=deployment,replicaset"}},
		"NamedController": {
			reason:    "the first mention counts, so a line at the end would not do",
			component: kcm, command: []string{"--controllers=*,serviceaccount"}, refused: "names serviceaccount-controller",
		},
		"FilledIn": {component: kcm, command: []string{"--controllers=$(LIST)"}, refused: "the kubelet expands a variable"},

		// An older kube-controller-manager would not start with the name of the fourth controller.
		"v1.37": {
			component: kcm, image: image + "v1.37.2", command: []string{"--controllers=*", key},
			added: []string{three + "," + trustBundleOff, noKey},
		},
		"v1.36": {component: kcm, image: image + "v1.36.3", command: []string{"--controllers=*", key}, added: []string{three, noKey}},
		"Upgraded": {
			reason: "a takeover was before the upgrade to v1.37", component: kcm, image: image + "v1.37.2",
			command: []string{"--controllers=*", three, key}, added: []string{bundle, noKey}, back: []string{"--controllers=*", key},
		},
		"OptOut": {
			component: kcm, image: image + "v1.37.2", command: []string{"--controllers=*," + trustBundleOff, key}, added: []string{three, noKey},
			back: []string{key},
		},

		"Plugin": {component: api, command: []string{"--enable-admission-plugins=NodeRestriction"}, added: []string{noPlugin}},
		"PluginOffAlready": {
			component: api, command: []string{"--disable-admission-plugins=PodSecurity,ServiceAccount"},
			back: []string{"--disable-admission-plugins=PodSecurity"},
		},
		"PluginOffTwice": {
			reason:    "so it is after kubeadm upgrade with a patch and an extraArg, which is the operator's",
			component: api, command: []string{noPlugin, noPlugin}, back: []string{noPlugin},
		},
		"PluginEnabled": {
			reason:    "kube-apiserver does not start with a plugin in both lists",
			component: api, command: []string{"--enable-admission-plugins=ServiceAccount"},
			refused: "--enable-admission-plugins names ServiceAccount",
		},
		"AdmissionControl": {component: api, command: []string{"--admission-control=ServiceAccount"}, refused: "--admission-control is in use"},
		"NoWebhooks": {
			component: api, command: []string{"--disable-admission-plugins=MutatingAdmissionWebhook"}, refused: "no webhook is called",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := staticpodtest.Manifest(append([]string{tc.component.Name}, tc.command...))
			if tc.image != "" {
				text = withImage(text, tc.image)
			}
			m := parse(t, tc.component, text)
			taken, err := edit(m, tc.component.out...)
			if (err == nil) != (tc.refused == "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
				t.Fatalf("%s\nerror %v, want one with %q", tc.reason, err, tc.refused)
			} else if err == nil {
				testutil.Check(t, tc.reason+"\ntakeover", slices.Concat(tc.command, tc.added), taken.Command()[1:])
				back, err := edit(taken, tc.component.in(append([]string{}, tc.added...), "")...)
				testutil.Check(t, tc.reason+"\nhandback", tc.command, commandOf(t, back, err))
			}
			back, err := edit(m, tc.component.in(nil, "sa.key")...)
			if err != nil && tc.refused != "" && strings.Contains(err.Error(), tc.refused) {
				return // of the flag itself
			}
			if tc.back == nil {
				tc.back = tc.command
			}
			testutil.Check(t, tc.reason+"\nhandback without a record", tc.back, commandOf(t, back, err))
		})
	}
}

func TestNoKeyToGiveBack(t *testing.T) {
	t.Parallel()
	m := parse(t, ForControllerManager(), staticpodtest.Manifest([]string{ControllerManager, "--service-account-private-key-file="}))
	if _, err := edit(m, ForControllerManager().in(nil, "")...); err == nil || !strings.Contains(err.Error(), "--signing-key-file") {
		t.Errorf("error %v, want one that names --signing-key-file", err)
	}
}

// TestGate is whether kube-apiserver reads webhooks from files as it is.
func TestGate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, of      string
		emulated, gates []string
		on              bool
		refused         string
	}{
		"v1.35":          {of: "kube-apiserver:v1.35.4", refused: "v1.36 is the oldest that reads webhook configurations from files"},
		"v1.36":          {reason: "alpha, off", of: "kube-apiserver:v1.36.3"},
		"v1.37":          {reason: "beta, on", of: "kube-apiserver:v1.37.2", on: true},
		"v1.37 as v1.35": {of: "v1.37.2", emulated: []string{"1.35"}, refused: "v1.35.0 is too old: v1.36 is the oldest"},
		"NamedComponent": {reason: "the list may name components", of: "v1.37.2", emulated: []string{"other=1.35", "kube=1.36"}},
		"TurnedOn":       {of: "v1.36.3", gates: []string{"A=true", "kube:" + staticGate + "=true"}, on: true},
		"TurnedOff": {
			of: "v1.37.2", gates: []string{"A=true", "kube:" + staticGate + "=false"}, refused: "--feature-gates has kube:" + staticGate + "=false",
		},
	} {
		on, err := gateOn(tc.of, tc.emulated, tc.gates)
		if on != tc.on || (err == nil) != (tc.refused == "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s, %s: on: %t, %v; want %t, %q", name, tc.reason, on, err, tc.on, tc.refused)
		}
	}
}

func withImage(manifest []byte, image string) []byte {
	return bytes.Replace(manifest, []byte("    name: x\n"), []byte("    name: x\n    image: "+image+"\n"), 1)
}

func TestOldImage(t *testing.T) {
	t.Parallel()
	for image, ok := range map[string]bool{
		"registry.k8s.io/kube-controller-manager:v1.29.16":          false,
		"localhost:5000/kube-controller-manager:v1.36.3@sha256:abc": true,
		"kcm@sha256:abc": true,
		"kcm:v2.0.0":     true,
	} {
		if err := supported(image); (err == nil) != ok {
			t.Errorf("%s: %v", image, err)
		}
	}
}

func commandOf(t *testing.T, edited *staticpod.Manifest, err error) []string {
	t.Helper()
	testutil.Must(t, err)
	return edited.Command()[1:]
}

func parse(t *testing.T, c Component, data []byte) *staticpod.Manifest {
	t.Helper()
	m, err := staticpod.Parse(data, c.Name)
	testutil.Must(t, err)
	return m
}
