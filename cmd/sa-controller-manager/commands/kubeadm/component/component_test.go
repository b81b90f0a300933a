// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
)

// TestThereAndBack edits what kubeadm has written over the years, what kind makes of it, and what is
// written by hand.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	keys := SigningKeys{Private: "/etc/kubernetes/pki/sa.key", Verify: []string{"/etc/kubernetes/pki/sa.pub"}}
	signer := ForAPIServer(Changes{Plugin: true, Signer: true}, keys)
	for kind, c := range map[string]Component{
		APIServer: ForAPIServer(Changes{Plugin: true}, SigningKeys{}), ControllerManager: ForControllerManager(),
		"signer": signer} {
		for _, path := range corpus(t, c) {
			before, byHand := parse(t, c, staticpodtest.Read(t, path)), strings.Contains(path, "by-hand")
			if kind == "signer" && (byHand || knowsSigner(before.Image()) != nil) {
				continue
			}
			t.Run(kind+" "+path, func(t *testing.T) {
				out := apply(t, before, c.out)
				if bytes.Equal(out.Bytes(), before.Bytes()) {
					t.Fatal("nothing was changed")
				}
				again := apply(t, out, c.out)
				if diff := cmp.Diff(string(out.Bytes()), string(again.Bytes())); diff != "" {
					t.Errorf("a second time changes something (-first +second):\n%s", diff)
				}
				back := apply(t, out, c.in(nil, ""))
				if diff := cmp.Diff(string(before.Bytes()), string(back.Bytes())); diff != "" {
					t.Errorf("not the same after the way back (-before +after):\n%s", diff)
				}
				if byHand {
					return // kubeadm has not written it, and never patches it
				}
				patch, err := c.patch(Files{}, before, out)
				testutil.Must(t, err)
				if diff := cmp.Diff(staticpodtest.Spec(t, out.Bytes()), staticpodtest.Patched(t, before.Bytes(), patch)); diff != "" {
					t.Errorf("kubeadm upgrade leads to another Pod (-takeover +patch):\n%s", diff)
				}
				// A kubeadm that has one more flag in front of them.
				moved := bytes.Replace(before.Bytes(), []byte("    - --allow-privileged"), []byte("    - --a-new-flag=1\n    - --allow-privileged"), 1)
				if _, err := staticpodtest.Patch(t, patch).Apply(staticpodtest.JSON(t, moved)); kind == "signer" && err == nil {
					t.Error("the patch takes out what it does not know")
				}
			})
		}
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	kcm, api := ForControllerManager(), ForAPIServer(Changes{Plugin: true}, SigningKeys{})
	off := Assign(ControllersFlag, controllersOff)
	cases := map[string]struct {
		reason    string
		component Component
		command   []string
		out       []string // after a takeover; nil if it is refused
		refused   string   // a part of the refusal
		back      []string // after the handback of command, with the key sa.key
	}{
		"Stock": {
			component: kcm,
			command:   []string{"--controllers=*,bootstrapsigner", "--service-account-private-key-file=k"},
			out: []string{
				"--controllers=*,bootstrapsigner", "--service-account-private-key-file=k", off, "--service-account-private-key-file=",
			},
			back: []string{"--controllers=*,bootstrapsigner", "--service-account-private-key-file=k"},
		},
		"NoControllersFlag": {
			reason:    "a flag that is given replaces the default",
			component: kcm,
			command:   []string{"--service-account-private-key-file=k"},
			out:       []string{"--service-account-private-key-file=k", "--controllers=*," + controllersOff, "--service-account-private-key-file="},
			back:      []string{"--service-account-private-key-file=k"},
		},
		"TheDefaultWrittenByATakeover": {
			component: kcm,
			command:   []string{"--service-account-private-key-file=k", "--controllers=*," + controllersOff, "--service-account-private-key-file="},
			out:       []string{"--service-account-private-key-file=k", "--controllers=*," + controllersOff, "--service-account-private-key-file="},
			back:      []string{"--service-account-private-key-file=k"},
		},
		"MadeWithOurs": {
			reason:    "a kind cluster has it in its kubeadm configuration, so there is no line of its own",
			component: kcm,
			command:   []string{"--controllers=*,bootstrapsigner," + controllersOff, "--service-account-private-key-file=", "--v=2"},
			out:       []string{"--controllers=*,bootstrapsigner," + controllersOff, "--service-account-private-key-file=", "--v=2"},
			back:      []string{"--controllers=*,bootstrapsigner", "--service-account-private-key-file=sa.key", "--v=2"},
		},
		"Aliases": {
			reason:    "that is not how a takeover calls them, so the operator has turned them off",
			component: kcm,
			command: []string{
				"--controllers=*,-serviceaccount,-root-ca-cert-publisher,-legacy-service-account-token-cleaner", "--service_account_private_key_file=k",
			},
			out: []string{
				"--controllers=*,-serviceaccount,-root-ca-cert-publisher,-legacy-service-account-token-cleaner", "--service_account_private_key_file=k",
				"--service-account-private-key-file=",
			},
			back: []string{
				"--controllers=*,-serviceaccount,-root-ca-cert-publisher,-legacy-service-account-token-cleaner", "--service_account_private_key_file=k",
			},
		},
		"OneOfThreeIsOff": {
			component: kcm,
			command:   []string{"--controllers=*,-serviceaccount-controller"},
			out:       []string{"--controllers=*,-serviceaccount-controller", off},
			back:      []string{"--controllers=*,-serviceaccount-controller"},
		},
		"NoStar": {
			reason:    "nothing is on by default then",
			component: kcm,
			command:   []string{"--controllers=deployment,replicaset"},
			out:       []string{"--controllers=deployment,replicaset"},
			back:      []string{"--controllers=deployment,replicaset"},
		},
		"NamedController": {
			reason:    "the first mention counts, so a line at the end would not do",
			component: kcm,
			command:   []string{"--controllers=*,serviceaccount"},
			refused:   "names serviceaccount-controller",
			back:      []string{"--controllers=*,serviceaccount"},
		},
		"FilledIn": {
			component: kcm,
			command:   []string{"--controllers=$(LIST)"},
			refused:   "the kubelet expands a variable",
		},
		"NoValue": {
			component: kcm,
			command:   []string{"--controllers"},
			refused:   `without "="`,
		},
		"Plugin": {
			component: api,
			command:   []string{"--enable-admission-plugins=NodeRestriction"},
			out:       []string{"--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount"},
			back:      []string{"--enable-admission-plugins=NodeRestriction"},
		},
		"PluginOffAlready": {
			component: api,
			command:   []string{"--disable-admission-plugins=PodSecurity,ServiceAccount"},
			out:       []string{"--disable-admission-plugins=PodSecurity,ServiceAccount"},
			back:      []string{"--disable-admission-plugins=PodSecurity"},
		},
		"PluginOffTwice": {
			reason:    "so it is after kubeadm upgrade with a patch and an extraArg, which is the operator's",
			component: api,
			command:   []string{"--disable-admission-plugins=ServiceAccount", "--disable-admission-plugins=ServiceAccount"},
			out:       []string{"--disable-admission-plugins=ServiceAccount", "--disable-admission-plugins=ServiceAccount"},
			back:      []string{"--disable-admission-plugins=ServiceAccount"},
		},
		"PluginEnabled": {
			reason:    "kube-apiserver does not start with a plugin in both lists",
			component: api,
			command:   []string{"--enable-admission-plugins=ServiceAccount"},
			refused:   "--enable-admission-plugins names ServiceAccount",
			back:      []string{"--enable-admission-plugins=ServiceAccount"},
		},
		"AdmissionControl": {
			component: api,
			command:   []string{"--admission-control=ServiceAccount"},
			refused:   "--admission-control is in use",
			back:      []string{"--admission-control=ServiceAccount"},
		},
		"NoWebhooks": {
			component: api,
			command:   []string{"--disable-admission-plugins=MutatingAdmissionWebhook"},
			refused:   "no webhook is called",
			back:      []string{"--disable-admission-plugins=MutatingAdmissionWebhook"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := parse(t, tc.component, staticpodtest.Manifest(append([]string{tc.component.Name}, tc.command...)))
			after, err := edit(m, tc.component.out...)
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%s\nerror %v, want one with %q", tc.reason, err, tc.refused)
				}
			} else if diff := cmp.Diff(tc.out, commandOf(t, after, err)); diff != "" {
				t.Errorf("%s\nthe way in (-want +got):\n%s", tc.reason, diff)
			}
			if tc.back == nil {
				return
			}
			after, err = edit(m, tc.component.in(nil, "sa.key")...)
			testutil.Check(t, tc.reason+"\nthe way back", tc.back, commandOf(t, after, err))
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

// TestTrustBundleController: the controller that kube-controller-manager has for us from v1.37 on. An older one
// would not start with its name.
func TestTrustBundleController(t *testing.T) {
	t.Parallel()
	const key, image = "--service-account-private-key-file=k", "registry.k8s.io/kube-controller-manager:"
	three, bundle := Assign(ControllersFlag, controllersOff), Assign(ControllersFlag, trustBundleOff)
	both := three + "," + trustBundleOff
	cases := map[string]struct {
		reason  string
		image   string
		command []string
		out     []string // what a takeover adds
	}{
		"Stock":     {image: image + "v1.37.2", command: []string{"--controllers=*"}, out: []string{both}},
		"Older":     {image: image + "v1.36.3", command: []string{"--controllers=*"}, out: []string{three}},
		"NoVersion": {image: "kcm@sha256:abc", command: []string{"--controllers=*"}, out: []string{three}},
		"NoFlag":    {image: image + "v1.37.2", out: []string{"--controllers=*," + controllersOff + "," + trustBundleOff}},
		"Upgraded": {
			reason: "a takeover was before the upgrade to v1.37", image: image + "v1.37.2",
			command: []string{"--controllers=*", three}, out: []string{bundle},
		},
		"Repeated": {image: image + "v1.37.2", command: []string{"--controllers=*", both}},
		"OptOut":   {image: image + "v1.37.2", command: []string{"--controllers=*," + trustBundleOff}, out: []string{three}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := staticpodtest.Manifest(slices.Concat([]string{ControllerManager}, tc.command, []string{key}))
			f := Files{Name: ControllerManager, Manifest: withImage(text, tc.image)}
			taken, err := ForControllerManager().Takeover(f)
			testutil.Must(t, err)
			out := append(slices.Concat(tc.command, []string{key}, tc.out), "--service-account-private-key-file=")
			testutil.Check(t, tc.reason+"\ntakeover", out, taken.After.Command()[1:])
			back, err := edit(taken.After, ForControllerManager().in(append(slices.Clone(tc.out), "--service-account-private-key-file="), "")...)
			testutil.Check(t, tc.reason+"\nhandback", slices.Concat(tc.command, []string{key}), commandOf(t, back, err))
		})
	}
	t.Run("MadeWithOurs", func(t *testing.T) {
		for list, want := range map[string][]string{
			"*,bootstrapsigner,": {"--controllers=*,bootstrapsigner", "--service-account-private-key-file=sa.key"},
			"*,":                 {"--service-account-private-key-file=sa.key"},
		} {
			m := parse(t, ForControllerManager(), staticpodtest.Manifest([]string{
				ControllerManager, "--controllers=" + list + controllersOff + "," + trustBundleOff, "--service-account-private-key-file=",
			}))
			back, err := edit(m, ForControllerManager().in(nil, "sa.key")...)
			testutil.Check(t, "handback without a record", want, commandOf(t, back, err))
		}
	})
}

func withImage(manifest []byte, image string) []byte {
	return bytes.Replace(manifest, []byte("    name: x\n"), []byte("    name: x\n    image: "+image+"\n"), 1)
}

func TestOldImage(t *testing.T) {
	t.Parallel()
	for image, ok := range map[string]bool{
		"registry.k8s.io/kube-controller-manager:v1.29.16":          false,
		"registry.k8s.io/kube-controller-manager:v1.30.0":           true,
		"localhost:5000/kube-controller-manager:v1.36.3@sha256:abc": true,
		"kcm:v1.29.16@sha256:abc":                                   false,
		"kcm@sha256:abc":                                            true,
		"example.org:5000/kcm":                                      true,
		"kcm:v2.0.0":                                                true,
	} {
		if err := supported(image); (err == nil) != ok {
			t.Errorf("%s: %v", image, err)
		}
	}
}

func corpus(t *testing.T, c Component) []string {
	t.Helper()
	paths, err := filepath.Glob("../testdata/manifests/*/" + c.Name + ".yaml")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d manifests, %v", len(paths), err)
	}
	return paths
}

func commandOf(t *testing.T, edited *staticpod.Manifest, err error) []string {
	t.Helper()
	testutil.Must(t, err)
	return edited.Command()[1:]
}

func apply(t *testing.T, m *staticpod.Manifest, changes []change) *staticpod.Manifest {
	t.Helper()
	edited, err := edit(m, changes...)
	testutil.Must(t, err)
	return edited
}

func parse(t *testing.T, c Component, data []byte) *staticpod.Manifest {
	t.Helper()
	m, err := staticpod.Parse(data, c.Name)
	testutil.Must(t, err)
	return m
}
