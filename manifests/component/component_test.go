// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/staticpod"
)

// TestCorpus takes over what kubeadm has written over the years, what kind makes of it and what is written by hand,
// and gives it back with the backup and, by the record, without.
func TestCorpus(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("testdata/manifests/*/*.yaml")
	testutil.Require(t, err == nil && len(paths) >= 12, "%d manifests, %v", len(paths), err)
	for _, path := range paths {
		ways := map[string]Changes{"": {Plugin: true}}
		if strings.Contains(path, "/v1.36/kube-api") || strings.Contains(path, "/v1.37/kube-api") {
			ways["all"] = Changes{Plugin: true, Files: strings.Contains(path, "/v1.37/"), Signer: true}
		}
		for way, changes := range ways {
			t.Run(path+" "+way, func(t *testing.T) {
				f := Files{Name: strings.TrimSuffix(filepath.Base(path), ".yaml"), Manifest: staticpodtest.Read(t, path)}
				there := there(t, f, changes)
				testutil.Require(t, !bytes.Equal(f.Manifest, there.Manifest), "nothing was changed")
				if patched := staticpodtest.PatchedFile(t, f.Manifest, there.Patch); !strings.Contains(path, "by-hand") {
					// The kubeadm of v1.34 and older has printed one more field.
					printed := strings.Replace(string(there.Manifest), "  creationTimestamp: null\n", "", 1)
					testutil.Check(t, "kubeadm with the patch", printed, string(patched))
				}
			})
		}
	}
}

// there takes over. It checks that this can be repeated, that an interrupted one is taken back, and that a handback
// restores the manifest with the backup and without.
func there(t *testing.T, f Files, changes Changes) Files {
	t.Helper()
	taken := testutil.Get(f.Takeover(changes))(t)
	again := testutil.Get(taken.Takeover(changes))(t)
	testutil.Check(t, "a second takeover", taken, again)
	interrupted, unsaved := taken, taken
	interrupted.Manifest, unsaved.Backup = f.Manifest, nil
	testutil.Check(t, "the way back", string(f.Manifest), string(back(t, taken).Manifest))
	testutil.Check(t, "the way back of an interrupted one", string(f.Manifest), string(back(t, interrupted).Manifest))
	first := testutil.Get(staticpod.Parse(f.Manifest, f.Name))(t)
	without := testutil.Get(staticpod.Parse(back(t, unsaved).Manifest, f.Name))(t)
	if !without.Equal(first) {
		t.Errorf("the way back without a backup leads to\n%s", without.Bytes())
	}
	return taken
}

func back(t *testing.T, f Files) Files {
	t.Helper()
	return testutil.Get(f.Handback())(t)
}

// TestEdits is what a takeover adds to a command.
func TestEdits(t *testing.T) {
	t.Parallel()
	const (
		kcm, api   = ControllerManager, APIServer
		key, noKey = "--service-account-private-key-file=k", "--service-account-private-key-file="
		aliases    = "--controllers=*,-serviceaccount,-root-ca-cert-publisher,-legacy-service-account-token-cleaner"
		noPlugin   = "--disable-admission-plugins=ServiceAccount"
		image      = "registry.k8s.io/kube-controller-manager:"
	)
	three, bundle := Assign(ControllersFlag, threeOff), Assign(ControllersFlag, trustBundleOff)
	all := "--controllers=*," + threeOff
	cases := map[string]struct {
		reason    string
		component string
		image     string
		command   []string
		added     []string // by a takeover
		refused   string   // a part of the refusal
	}{
		"Stock": {component: kcm, command: []string{"--controllers=*,bootstrapsigner", key}, added: []string{three, noKey}},
		"NoControllersFlag": {
			reason: "a flag that is given replaces the default", component: kcm, command: []string{key}, added: []string{all, noKey},
		},
		"MadeWithOurs": {
			reason:    "a kind cluster has it in its kubeadm configuration, so there is no line of its own",
			component: kcm, command: []string{"--controllers=*,bootstrapsigner," + threeOff, noKey, "--v=2"},
		},
		"Aliases": {
			reason:    "that is not how a takeover calls them, so the operator has turned them off",
			component: kcm, command: []string{aliases, "--service_account_private_key_file=k"}, added: []string{noKey},
		},
		"OneOfThreeIsOff": {component: kcm, command: []string{"--controllers=*,-serviceaccount-controller"}, added: []string{
			"--controllers=-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller",
		}},
		"NoList": {
			reason: "kube-controller-manager runs none then, and another line would add to it", component: kcm,
			command: []string{"--controllers=", key}, added: []string{noKey},
		},
		"NoStar": {reason: "nothing is on by default then", component: kcm, command: []string{"--controllers=deployment,replicaset"}},
		"NamedController": {
			reason:    "the first mention counts, so a line at the end would not do",
			component: kcm, command: []string{"--controllers=*,serviceaccount"}, refused: "names serviceaccount-controller",
		},

		// An older kube-controller-manager would not start with the name of the fourth controller.
		"v1.37": {
			component: kcm, image: image + "v1.37.2", command: []string{"--controllers=*", key},
			added: []string{three + "," + trustBundleOff, noKey},
		},
		"v1.36": {component: kcm, image: image + "v1.36.3", command: []string{"--controllers=*", key}, added: []string{three, noKey}},
		"Upgraded": {
			reason: "the other three are off", component: kcm, image: image + "v1.37.2",
			command: []string{"--controllers=*", three, key}, added: []string{bundle, noKey},
		},
		"OptOut": {
			component: kcm, image: image + "v1.37.2", command: []string{"--controllers=*," + trustBundleOff, key},
			added: []string{three, noKey},
		},

		"Plugin":           {component: api, command: []string{"--enable-admission-plugins=NodeRestriction"}, added: []string{noPlugin}},
		"PluginOffAlready": {component: api, command: []string{"--disable-admission-plugins=PodSecurity,ServiceAccount"}},
		"PluginOffSpelled": {component: api, command: []string{"--disable_admission_plugins=ServiceAccount"}},
		"AdmissionControl": {
			component: api, command: []string{"--admission-control=ServiceAccount"}, refused: "--admission-control is in use",
		},
		"NoWebhooks": {
			component: api, command: []string{"--disable-admission-plugins=MutatingAdmissionWebhook"}, refused: "no webhook is called",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			text := staticpodtest.Manifest(append([]string{tc.component}, tc.command...))
			if tc.image != "" {
				text = bytes.Replace(text, []byte("image: x:v1.36.3\n"), []byte("image: "+tc.image+"\n"), 1)
			}
			f := Files{Name: tc.component, Manifest: text}
			if tc.refused != "" {
				if _, err := f.Takeover(Changes{Plugin: true}); err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%s\nerror %v, want one with %q", tc.reason, err, tc.refused)
				}
				return
			}
			taken, err := there(t, f, Changes{Plugin: true}).Parse()
			testutil.Must(t, err)
			testutil.Check(t, tc.reason, slices.Concat(tc.command, tc.added), []string(taken.Command()[1:]))
		})
	}
}

// TestEditedSince: what an operator changes after a takeover stays, in its order, and what was added goes.
func TestEditedSince(t *testing.T) {
	t.Parallel()
	const (
		key, public = "--service-account-signing-key-file=/pki/sa.key", "--service-account-key-file=/pki/sa.pub"
		noPlugin    = "--disable-admission-plugins=ServiceAccount"
		a, b        = "--service-account-issuer=https://a", "--service-account-issuer=https://b"
	)
	first := []string{"--v=2", a, b, public, key}
	for name, tc := range map[string]struct {
		reason        string
		signer        bool
		before, after string // in the command, one string a line
		want          []string
	}{
		"Swapped": {
			reason: "the first issuer signs", before: a + "\n    - " + b, after: b + "\n    - " + a,
			want: []string{"--v=2", b, a, public, key},
		},
		"SwappedSigner": {signer: true, before: a + "\n    - " + b, after: b + "\n    - " + a, want: []string{"--v=2", b, a, public, key}},
		"KeyAdded": {
			reason: "the first step of a change of the signing key", signer: true, before: b,
			after: b + "\n    - --service-account-key-file=/pki/new.pub",
			want:  []string{"--v=2", a, b, public, key, "--service-account-key-file=/pki/new.pub"},
		},
		"ListGrown": {
			before: noPlugin, after: noPlugin + ",PodSecurity",
			want: append(slices.Clone(first), "--disable-admission-plugins=PodSecurity"),
		},
		"ListGrownAndSpelled": {
			before: noPlugin, after: "--disable_admission_plugins=PodSecurity,ServiceAccount",
			want: append(slices.Clone(first), "--disable_admission_plugins=PodSecurity"),
		},
		"SameLine": {
			reason: "of several equal lines the last one is ours", before: "--v=2", after: noPlugin,
			want: append([]string{noPlugin}, first[1:]...),
		},
		"Shorter": {signer: true, before: "--v=2\n    - " + a + "\n    - " + b, after: b, want: []string{b, public, key}},
	} {
		t.Run(name, func(t *testing.T) {
			f := Files{Name: APIServer, Manifest: staticpodtest.Manifest(append([]string{APIServer}, first...))}
			changes := Changes{Plugin: true, Signer: tc.signer}
			taken := testutil.Get(f.Takeover(changes))(t)
			testutil.Require(t, bytes.Contains(taken.Manifest, []byte(tc.before)), "the edit does nothing:\n%s", taken.Manifest)
			taken.Manifest = bytes.Replace(taken.Manifest, []byte(tc.before), []byte(tc.after), 1)
			again := testutil.Get(taken.Takeover(changes))(t)
			for way, files := range map[string]Files{"": taken, "after a second takeover": again} {
				m := testutil.Get(back(t, files).Parse())(t)
				testutil.Check(t, tc.reason+way, tc.want, []string(m.Command()[1:]))
			}
		})
	}
}

// TestOurVolumeTwice: a mount of ours that an operator has repeated elsewhere is refused, and says what is to go.
func TestOurVolumeTwice(t *testing.T) {
	t.Parallel()
	f := Files{Name: APIServer, Manifest: staticpodtest.Read(t, "testdata/manifests/v1.37/kube-apiserver.yaml")}
	f, err := f.Takeover(Changes{Files: true})
	testutil.Must(t, err)
	const mounts = "    volumeMounts:\n"
	f.Manifest = bytes.Replace(f.Manifest, []byte(mounts), []byte(mounts+
		"    - mountPath: /mine\n      name: sa-controller-manager-config\n"), 1)
	const want = "without our changes: it has no volume sa-controller-manager-config, which its container mounts at /mine; take the " +
		"mount out"
	if _, err := f.Handback(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestUnrecorded: without a record nothing is guessed.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		component, line string
		recorded        bool
		want            string
	}{
		"Plugin":         {APIServer, "--disable-admission-plugins=PodSecurity,ServiceAccount", false, ""},
		"Controllers":    {ControllerManager, Assign(ControllersFlag, threeOff), false, ""},
		"NoKey":          {ControllerManager, Assign(KeyFlag, ""), false, ""},
		"Signer":         {APIServer, signerLine(), false, "there is --service-account-signing-endpoint="},
		"SignerRecorded": {APIServer, signerLine(), true, "there is --service-account-signing-endpoint="},
		"Files":          {APIServer, Assign(AdmissionConfigFlag, AdmissionConfigFile), true, "there is --admission-control-config-file="},
	} {
		f := Files{Name: tc.component, Manifest: staticpodtest.Manifest([]string{tc.component, tc.line})}
		if tc.recorded {
			f.Backup, f.Taken = f.Manifest, &Taken{}
		}
		if _, err := f.Handback(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
	}
	created := Files{Name: APIServer, Manifest: staticpodtest.Read(t, "testdata/manifests/v1.37/kube-apiserver.yaml")}
	lost := testutil.Get(created.Takeover(Changes{Signer: true}))(t)
	lost.Taken, lost.Patch = nil, nil
	_, err := lost.Takeover(Changes{Signer: true})
	testutil.CheckError(t, "the backup would be lost, too", "by hand, from its backup", err)
	created.Manifest, created.Backup = lost.Manifest, lost.Manifest
	if _, err := created.Takeover(Changes{Signer: true}); err != nil {
		t.Errorf("of a cluster that was created with our signer: %v", err)
	}
	former := Files{Name: APIServer, Manifest: staticpodtest.Manifest([]string{APIServer}), Patch: []byte("[]")}
	if _, err := former.Takeover(Changes{}); err == nil || !strings.Contains(err.Error(), "there is the patch for kubeadm, but no record") {
		t.Errorf("of a former version: %v", err)
	}
}

// TestGate is whether kube-apiserver reads webhooks from files.
func TestGate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, of      string
		emulated, gates []string
		on              bool
	}{
		"v1.35":          {reason: "it has none", of: "kube-apiserver:v1.35.4", gates: []string{staticGate + "=true"}},
		"v1.36":          {reason: "alpha, off", of: "kube-apiserver:v1.36.3"},
		"v1.37":          {reason: "beta, on", of: "kube-apiserver:v1.37.2", on: true},
		"v1.37 as v1.35": {of: "v1.37.2", emulated: []string{"1.35"}},
		"v1.38 as v1.37": {of: "v1.38.0", emulated: []string{"v1.37"}, on: true},
		"NamedComponent": {reason: "the list may name components", of: "v1.37.2", emulated: []string{"other=1.37", "kube=1.36"}},
		"AnotherOne":     {reason: "the list may name components", of: "v1.37.2", emulated: []string{"other=1.35"}, on: true},
		"TurnedOn":       {of: "v1.36.3", gates: []string{"A=true", "kube:" + staticGate + "=true"}, on: true},
		"TurnedOff":      {of: "v1.37.2", gates: []string{"A=true", "kube:" + staticGate + "=false"}},
		"NoBeta":         {reason: "it is beta", of: "v1.37.2", gates: []string{"AllBeta=false"}},
		"NoBetaButIt":    {reason: "its own counts more", of: "v1.37.2", gates: []string{staticGate + "=true", "AllBeta=false"}, on: true},
		"AllAlpha":       {reason: "it was alpha", of: "v1.36.3", gates: []string{"AllAlpha=true", "AllBeta=false"}, on: true},
		"AllBetaOfOld":   {reason: "it was no beta", of: "v1.36.3", gates: []string{"AllBeta=true"}},
	} {
		command := []string{APIServer, Assign(emulatedFlag, strings.Join(tc.emulated, ",")), Assign(gatesFlag, strings.Join(tc.gates, ","))}
		on := ReadsManifests(tc.of, command)
		testutil.Expect(t, on == tc.on, "%s, %s: on: %t", name, tc.reason, on)
		f := Files{Name: APIServer, Manifest: bytes.Replace(staticpodtest.Manifest(command), []byte("x:v1.36.3"), []byte("x:"+tc.of), 1)}
		f.Manifest = bytes.Replace(f.Manifest, []byte("x:kube-apiserver:"), []byte("x:"), 1)
		const refused = "reads no webhook configurations from files: v1.37 does, " +
			"v1.36 with --feature-gates=" + staticGate + "=true in its manifest"
		_, err := f.Takeover(Changes{Files: true})
		testutil.Expect(t, (err == nil) == tc.on && (err == nil || strings.Contains(err.Error(), refused)), "%s, %s: %v", name, tc.reason,
			err)
	}
}

func TestOldImage(t *testing.T) {
	t.Parallel()
	const tooOld, nameless = "is too old: v1.30 is the oldest that is supported", "names no version"
	for image, want := range map[string]string{
		"registry.k8s.io/kube-controller-manager:v1.29.16":          tooOld,
		"localhost:5000/kube-controller-manager:v1.36.3@sha256:abc": "",
		"kcm@sha256:abc":          nameless,
		"localhost:5000/kcm:main": nameless,
		"kcm:v2.0.0":              nameless,
	} {
		err := notOlder(image, oldestMinor, "that is supported")
		testutil.CheckError(t, image, want, err)
	}
}
