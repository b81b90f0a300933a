// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	stdcmp "cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

// sourceFlag names the operator's file, in a directory that kubeadm's manifest mounts.
const sourceFlag = "--admission-control-config-file=/etc/kubernetes/pki/admission.yaml"

// newStaticControlPlane is one whose root is not this machine's. flags are kube-apiserver's.
func newStaticControlPlane(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	return newFilesControlPlane(t, "v1.36", flags...) // the last version with the gate off
}

func newFilesControlPlane(t *testing.T, sample string, flags ...string) *controlPlane {
	t.Helper()
	p := newControlPlane(t, sample)
	p.atRoot()
	p.change(t, "    image:", "    - "+strings.Join(append(flags, "--v=2"), "\n    - ")+"\n    image:")
	p.config.Registration, p.config.Render = registration.Static, func(o manifests.StaticPodOptions) ([]byte, error) {
		o.HostBinary = "/usr/local/bin/sa-controller-manager"
		return manifests.StaticPod(o)
	}
	return p
}

// change edits kube-apiserver's manifest.
func (p *controlPlane) change(t *testing.T, old, replacement string) {
	t.Helper()
	file := p.config.manifest(component.APIServer)
	before := string(staticpodtest.Read(t, file))
	if strings.Count(before, old) != 1 {
		t.Fatalf("%q is not there once", old)
	}
	testutil.Must(t, os.WriteFile(file, []byte(strings.Replace(before, old, replacement, 1)), 0o600))
}

// all is more than a takeover has steps.
const all = 9

// TestStaticHandbackRestores wants the files as they were, whichever way led there, and a patch that
// does to kubeadm's manifest what the takeover has done.
func TestStaticHandbackRestores(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flags []string
		in    func(t *testing.T, p *controlPlane)
	}{
		"AtOnce":        {nil, func(*testing.T, *controlPlane) {}},
		"OwnFile":       {[]string{sourceFlag}, func(*testing.T, *controlPlane) {}},
		"OwnGate":       {[]string{"--feature-gates=A=true,ManifestBasedAdmissionControlConfig=true"}, func(*testing.T, *controlPlane) {}},
		"WithTheSigner": {nil, func(_ *testing.T, p *controlPlane) { p.config.ExternalSigner = true }},
		"SignerLater": {nil, func(t *testing.T, p *controlPlane) { // its lines come behind those of the first takeover
			p.writeSteps(t, takeover, all)
			p.config.ExternalSigner, p.config.Rewrite = true, true
		}},
		"RegisteredNowhereFirst": {nil, func(t *testing.T, p *controlPlane) { // as one of several before v1.37
			p.config.Registration = registration.None
			p.writeSteps(t, takeover, all)
			p.config.Registration, p.config.Rewrite = registration.Static, true
		}},
		"Interrupted": {nil, func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, 3) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newStaticControlPlane(t, tc.flags...)
			p.write(t, "etc/kubernetes/pki/admission.yaml", []byte(admissionHead+"- name: EventRateLimit\n  path: limits.yaml\n"))
			before, first := p.all(t), staticpodtest.Read(t, p.config.manifest(component.APIServer))
			tc.in(t, p)
			p.writeSteps(t, takeover, all)
			taken := staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer)))
			patched := staticpodtest.Patched(t, first, staticpodtest.Read(t, p.config.patch(component.APIServer)))
			testutil.Check(t, "the patch", inOrder(taken), inOrder(patched))
			p.config.Registration, p.config.ExternalSigner, p.config.Rewrite = "", false, false
			after := p.all(t)
			p.writeSteps(t, takeover, all)
			testutil.Check(t, "a takeover without the flags", after, p.all(t))
			if err := p.config.unused(t.Context()); err == nil {
				t.Error("our process may stop while kube-apiserver needs it")
			}
			p.writeSteps(t, handback, 4)
			testutil.Must(t, p.config.unused(t.Context()))
			after = p.all(t)
			maps.DeleteFunc(after, func(file, _ string) bool { return strings.HasPrefix(file, "backup/") })
			testutil.Check(t, "after the handback", before, after)
		})
	}
}

// inOrder sorts the volumes, whose order means nothing.
func inOrder(spec corev1.PodSpec) corev1.PodSpec {
	slices.SortFunc(spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(spec.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
	return spec
}

// TestStaticTakeover is what the two manifests become, also when kubeadm has written the one again.
func TestStaticTakeover(t *testing.T) {
	t.Parallel()
	p := newStaticControlPlane(t, "--feature-gates=A=true")
	p.writeSteps(t, takeover, all)
	p.change(t, "    - --v=2\n", "    - --v=3\n") // so that the backup does not fit
	taken := staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer)))
	const directory = "/etc/kubernetes/sa-controller-manager/static/"
	for _, want := range []string{
		"--feature-gates=A=true", "--feature-gates=ManifestBasedAdmissionControlConfig=true", "--disable-admission-plugins=ServiceAccount",
		"--admission-control-config-file=" + directory + "config/admission.yaml",
	} {
		if !slices.Contains(taken.Containers[0].Command, want) {
			t.Errorf("%s is not in %q", want, taken.Containers[0].Command)
		}
	}
	var mounted []string
	for _, mount := range taken.Containers[0].VolumeMounts {
		if name, ok := strings.CutPrefix(mount.MountPath, directory); ok && mount.ReadOnly {
			mounted = append(mounted, name)
		}
	}
	testutil.Check(t, "what kube-apiserver sees", []string{"config", "validating", "mutating"}, mounted)
	own := staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(manager))).Containers[0]
	for _, want := range []string{"--webhook-registration=static", "--static-registration-dir=" + strings.TrimSuffix(directory, "/")} {
		if !slices.Contains(own.Args, want) || slices.Contains(own.Args, "--webhook-registration=url") {
			t.Errorf("%s is not in %q", want, own.Args)
		}
	}
	p.writeSteps(t, handback, 1)
	if left := string(staticpodtest.Read(t, p.config.manifest(component.APIServer))); strings.Contains(left, manager) ||
		strings.Contains(left, "ManifestBasedAdmissionControlConfig") || !strings.Contains(left, "--feature-gates=A=true") {
		t.Errorf("after a handback without a backup:\n%s", left)
	}
}

// TestStaticGate adds the gate where it is off by default, and nowhere else.
func TestStaticGate(t *testing.T) {
	t.Parallel()
	const gate = "--feature-gates=ManifestBasedAdmissionControlConfig=true"
	for name, tc := range map[string]struct {
		reason, image, emulated string
		added                   bool
	}{
		"v1.36":             {reason: "alpha, off", image: "v1.36.3", added: true},
		"v1.37":             {reason: "beta, on", image: "v1.37.2"},
		"v1.37 as v1.36":    {reason: "an emulated version has its own defaults", image: "v1.37.2", emulated: "1.36", added: true},
		"named component":   {reason: "the list may name components", image: "v1.37.2", emulated: "other=1.35,kube=1.36", added: true},
		"another component": {reason: "it is not kube-apiserver's own", image: "v1.37.2", emulated: "other=1.36"},
		"v1.38 as v1.37":    {reason: "on there too", image: "v1.38.0", emulated: "v1.37"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newStaticControlPlane(t)
			p.change(t, "kube-apiserver:v1.36.3", "kube-apiserver:"+tc.image)
			if tc.emulated != "" {
				p.change(t, "    - --v=2\n", "    - --emulated-version="+tc.emulated+"\n")
			}
			p.writeSteps(t, takeover, all)
			command := staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer))).Containers[0].Command
			if slices.Contains(command, gate) != tc.added {
				t.Errorf("%s: the gate is in %q: %t, want %t", tc.reason, command, !tc.added, tc.added)
			}
		})
	}
}

func TestStaticRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		old, new string
		want     string
	}{
		"OldImage": {"kube-apiserver:v1.36", "kube-apiserver:v1.35", "v1.36 is the oldest that reads webhook configurations from files"},
		"Emulated": {
			"    - --v=2\n", "    - --emulated-version=1.35\n",
			"v1.35.0 is too old: v1.36 is the oldest that reads webhook configurations from files",
		},
		"GateIsOff": {
			"    - --v=2\n", "    - --feature-gates=A=true,kube:ManifestBasedAdmissionControlConfig=false\n",
			"--feature-gates has kube:ManifestBasedAdmissionControlConfig=false",
		},
		"NotSeen": {
			"    - --v=2\n", "    - --admission-control-config-file=/etc/admission.yaml\n",
			"--admission-control-config-file of kube-apiserver: /etc/admission.yaml is in none of its volumeMounts",
		},
		"NotThere": {"    - --v=2\n", "    - " + sourceFlag + "\n", "/etc/kubernetes/pki/admission.yaml: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newStaticControlPlane(t)
			p.change(t, tc.old, tc.new)
			before := p.all(t)
			wantError(t, name, Takeover(t.Context(), p.config), tc.want)
			testutil.Check(t, "files", before, p.all(t))
		})
	}
}

const admissionHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"

// TestAdmissionConfig is what becomes of the operator's file.
func TestAdmissionConfig(t *testing.T) {
	t.Parallel()
	const (
		directory = "/etc/kubernetes/sa-controller-manager/static/"
		webhook   = "    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n"
		mutating  = "- name: MutatingAdmissionWebhook\n  path: \"\"\n  configuration:\n" + webhook
		ours      = mutating + "    kubeConfigFile: \"\"\n    staticManifestsDir: " + directory + "mutating\n"
		theirs    = mutating + "    kubeConfigFile: /etc/kubernetes/pki/webhooks.conf\n    staticManifestsDir: " + directory + "mutating\n"
		second    = "- name: ValidatingAdmissionWebhook\n  path: \"\"\n  configuration:\n" + webhook +
			"    kubeConfigFile: \"\"\n    staticManifestsDir: " + directory + "validating\n"
		limits = "- name: EventRateLimit\n  path: /etc/kubernetes/pki/limits.yaml\n  configuration: null\n"
	)
	for name, tc := range map[string]struct {
		reason       string
		source, want string
		refused      string
	}{
		"Empty": {reason: "an object without plugins", source: strings.TrimSuffix(admissionHead, "plugins:\n"), want: ours + second},
		"RelativePath": {
			reason: "relative to the file that it is in", source: "- name: EventRateLimit\n  path: limits.yaml\n", want: limits + ours + second,
		},
		"Inline": {
			reason: "another plugin's configuration stays", source: "- name: X\n  configuration: {a: 1, b: [true]}\n",
			want: "- name: X\n  path: \"\"\n  configuration:\n    a: 1\n    b: [true]\n" + ours + second,
		},
		"OwnEntry": {
			reason: "it is kept", source: mutating + "    kubeConfigFile: /etc/kubernetes/pki/webhooks.conf\n", want: theirs + second,
		},
		"OwnFile": {
			reason: "a file has no other place for ours", source: "- name: MutatingAdmissionWebhook\n  path: own.yaml\n", want: theirs + second,
		},
		"EmptyEntry": {source: "- name: MutatingAdmissionWebhook\n", want: ours + second},
		"HasOne": {
			reason: "there is one directory", source: mutating + "    staticManifestsDir: /etc/theirs\n",
			refused: "plugin MutatingAdmissionWebhook: it has staticManifestsDir: /etc/theirs already",
		},
		"UnknownName": {reason: "kube-apiserver would not start", source: "- nam: X\n", refused: `unknown field "plugins[0].nam"`},
		"InnerName":   {reason: "likewise", source: mutating + "    kubeConfig: x\n", refused: "unknown field"},
		"NotOne":      {source: "kind: ConfigMap\n", refused: "/etc/kubernetes/pki/admission.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newStaticControlPlane(t, sourceFlag)
			source := tc.source
			if strings.HasPrefix(source, "- ") {
				source = admissionHead + source
			}
			p.write(t, "etc/kubernetes/pki/admission.yaml", []byte(source))
			p.write(t, "etc/kubernetes/pki/own.yaml",
				[]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nkubeConfigFile: "+
					"/etc/kubernetes/pki/webhooks.conf\n"))
			m, err := staticpod.Parse(staticpodtest.Read(t, p.config.manifest(component.APIServer)), component.APIServer)
			testutil.Must(t, err)
			got, err := p.config.admissionConfig(m)
			wantError(t, tc.reason, err, tc.refused)
			if tc.refused != "" {
				return
			}
			testutil.Check(t, tc.reason, string(staticpodtest.JSON(t, []byte(admissionHead+tc.want))), string(staticpodtest.JSON(t, got)))
		})
	}
}

// TestStaticSourceChanges: kube-apiserver reads its file only when it starts, so a takeover does not
// change that under it.
func TestStaticSourceChanges(t *testing.T) {
	t.Parallel()
	p := newStaticControlPlane(t, sourceFlag)
	p.write(t, "etc/kubernetes/pki/admission.yaml", []byte(admissionHead))
	p.writeSteps(t, takeover, all)
	p.write(t, "etc/kubernetes/pki/admission.yaml", []byte(admissionHead+"- name: EventRateLimit\n"))
	wantError(t, "", Takeover(t.Context(), p.config), "first run: kubeadm handback --steps=kube-apiserver")
}

// TestChooseMode is how kube-apiserver learns of our webhook.
func TestChooseMode(t *testing.T) {
	t.Parallel()
	const several = `kube-apiserver keeps its ServiceAccount plugin: it reads no webhook from files (v1.37 does; v1.36 with ` +
		`--static-registration), and a webhook by URL is for one host. By their identity Leases kube-apiservers run on `
	own := func(mode registration.Mode) []byte {
		return staticpodtest.Own([]string{"--webhook-registration=" + string(mode)})
	}
	one, three := []runtime.Object{lease("a")}, []runtime.Object{lease("a"), lease("b"), lease("c")}
	for name, tc := range map[string]struct {
		reason  string
		image   string // v1.37.2 if it is empty
		flags   []string
		running string // the version of which kube-apiserver says that it is
		leases  []runtime.Object
		own     []byte
		rewrite bool
		asked   registration.Mode
		want    registration.Mode
		note    string // the beginning
		refused string
	}{
		"v1.37":             {reason: "no other node matters", leases: three, want: registration.Static},
		"v1.36":             {image: "v1.36.3", leases: one, want: registration.URL},
		"v1.36, of several": {image: "v1.36.3", leases: three, want: registration.None, note: several + `["a" "b" "c"].`},
		"v1.36, without Leases": {
			reason: "nothing says that it is alone", image: "v1.36.3", want: registration.None, note: several + "[].",
		},
		"v1.36, asked": {image: "v1.36.3", leases: three, asked: registration.Static, want: registration.Static},
		"v1.36, gate is on": {
			reason: "the operator's", image: "v1.36.3", flags: []string{"--feature-gates=" + gate + "=true"}, want: registration.Static,
		},
		"v1.37, gate is off": {
			image: "v1.37.2", flags: []string{"--feature-gates=" + gate + "=false"}, leases: one, want: registration.URL,
		},
		"v1.37 as v1.36": {flags: []string{"--emulated-version=1.36"}, leases: three, want: registration.None, note: several},
		"v1.38 as v1.37": {image: "v1.38.0", flags: []string{"--emulated-version=kube=1.37"}, want: registration.Static},
		"digest, v1.37":  {image: "main@sha256:abc", running: "v1.37.2", want: registration.Static},
		"digest, v1.36":  {image: "main@sha256:abc", running: "v1.36.3", leases: one, want: registration.URL},
		"v1.37, by URL": {
			reason: "only a call that names it", asked: registration.URL, leases: three, want: registration.URL,
			note: "The webhook stays in the API, by URL.",
		},
		"again":          {own: own(registration.Static), want: registration.Static},
		"again, v1.36":   {reason: "it was asked for", image: "v1.36.3", own: own(registration.Static), rewrite: true, want: registration.Static},
		"again, by URL":  {own: own(registration.URL), want: registration.URL, note: "The webhook stays in the API"},
		"rewritten, URL": {own: own(registration.URL), rewrite: true, want: registration.URL, note: "The webhook stays in the API"},
		"again, none": {
			own: own(registration.None), want: registration.None,
			note: "kube-apiserver keeps its ServiceAccount plugin: our manifest registers no webhook. --rewrite decides again, " +
				"with --reset if an --extra-arg has decided it.",
		},
		"rewritten, none": {own: own(registration.None), rewrite: true, want: registration.Static},
		"URL to files": {
			reason: "the certificates differ", own: own(registration.URL), rewrite: true, asked: registration.Static,
			refused: "our manifest has --webhook-registration=url, and kube-apiserver would refuse Pods while it becomes static; " +
				"first run: kubeadm handback",
		},
		"files to URL": {own: own(registration.Static), rewrite: true, asked: registration.URL, refused: "while it becomes url"},
		"files to none": {
			own: own(registration.Static), rewrite: true, asked: registration.None, refused: "while it becomes none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			client := fake.NewClientset(tc.leases...)
			client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apimachineryversion.Info{GitVersion: tc.running}
			p.config.Client, p.config.Clock, p.config.Registration, p.config.Rewrite = client, clock.RealClock{}, tc.asked, tc.rewrite
			p.change(t, "kube-apiserver:v1.37.2", "kube-apiserver:"+stdcmp.Or(tc.image, "v1.37.2"))
			for _, flag := range tc.flags {
				p.change(t, "    image:", "    - "+flag+"\n    image:")
			}
			if tc.own != nil {
				p.write(t, "manifests/sa-controller-manager.yaml", tc.own)
			}
			o, err := p.config.observe()
			testutil.Must(t, err)
			err = p.config.chooseMode(t.Context(), o)
			wantError(t, tc.reason, err, tc.refused)
			if err == nil && (o.mode != tc.want || !strings.HasPrefix(o.note, tc.note) || tc.note == "" && o.note != "") {
				t.Errorf("%s: got %q, %q, want %q, %q", tc.reason, o.mode, o.note, tc.want, tc.note)
			}
		})
	}
}

const gate = "ManifestBasedAdmissionControlConfig"

// TestStockManifests takes over what kubeadm writes for both versions that read files, in every way, and
// goes on as operators do.
func TestStockManifests(t *testing.T) {
	t.Parallel()
	const plugin, config = "--disable-admission-plugins=ServiceAccount",
		"--admission-control-config-file=/etc/kubernetes/sa-controller-manager/static/config/admission.yaml"
	for name, tc := range map[string]struct {
		sample, other string // other is what an upgrade without patches writes
		asked, want   registration.Mode
		leases        []runtime.Object
		added         [][]string // to kube-apiserver's command, by step
	}{
		"v1.37": {
			sample: "v1.37", other: "v1.36", want: registration.Static, added: [][]string{{config}, {config, plugin}},
		},
		"v1.36, from files": {
			sample: "v1.36", other: "v1.37", asked: registration.Static, want: registration.Static,
			added: [][]string{{"--feature-gates=" + gate + "=true", config}, {"--feature-gates=" + gate + "=true", config, plugin}},
		},
		"v1.36, alone": {
			sample: "v1.36", other: "v1.37", want: registration.URL, leases: []runtime.Object{lease("n")}, added: [][]string{{plugin}},
		},
		"v1.36, of several": {
			sample: "v1.36", other: "v1.37", want: registration.None, leases: []runtime.Object{lease("n"), lease("m")}, added: [][]string{nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFilesControlPlane(t, tc.sample)
			p.config.Registration, p.config.Client, p.config.Clock = tc.asked, fake.NewClientset(tc.leases...), clock.RealClock{}
			command := func() []string {
				return staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer))).Containers[0].Command
			}
			before, stock := p.all(t), command()
			p.writeSteps(t, takeover, 2)
			testutil.Check(t, "before its step", stock, command())
			for i, added := range tc.added {
				p.writeSteps(t, takeover, 3)
				testutil.Check(t, "a step of kube-apiserver", slices.Concat(stock, tc.added[i]), command())
				if off := slices.Contains(added, plugin); off != (i == len(tc.added)-1 && tc.want != registration.None) {
					t.Errorf("step %d: the plugin is off: %t", i, off)
				}
			}
			own := staticpodtest.Read(t, p.config.manifest(manager))
			testutil.Check(t, "our mode", string(tc.want), component.OwnFlag(own, registrationFlag))

			after := p.all(t)
			p.writeSteps(t, takeover, all)
			p.config.Registration = ""
			p.writeSteps(t, takeover, all)
			testutil.Check(t, "after repeated takeovers", after, p.all(t))

			// As a node that joins, and after an upgrade without patches: kubeadm writes its own manifest.
			written := staticpodtest.Read(t, "testdata/manifests/"+tc.other+"/kube-apiserver.yaml")
			testutil.Must(t, os.WriteFile(p.config.manifest(component.APIServer), written, 0o600))
			if slices.Contains(command(), plugin) {
				t.Error("the plugin is off")
			}
			p.writeSteps(t, takeover, 3)
			if off := slices.Contains(command(), plugin); off != (tc.want == registration.URL) {
				t.Errorf("the first step of a takeover after that: the plugin is off: %t", off)
			}
			p.writeSteps(t, takeover, all)
			if off := slices.Contains(command(), plugin); off != (tc.want != registration.None) {
				t.Errorf("a takeover after that: the plugin is off: %t", off)
			}
			testutil.Check(t, "its mode", string(tc.want), component.OwnFlag(staticpodtest.Read(t, p.config.manifest(manager)), registrationFlag))
			p.writeSteps(t, handback, 1)
			testutil.Check(t, "what kubeadm wrote", string(written), string(staticpodtest.Read(t, p.config.manifest(component.APIServer))))

			testutil.Must(t, os.WriteFile(p.config.manifest(component.APIServer),
				[]byte(before["etc/kubernetes/manifests/kube-apiserver.yaml"]), 0o600))
			p.writeSteps(t, handback, 4)
			after = p.all(t)
			maps.DeleteFunc(after, func(file, _ string) bool { return strings.HasPrefix(file, "backup/") })
			testutil.Check(t, "after the handback", before, after)
		})
	}
}

// TestClusterMadeFromFiles: kind has brought the flags, the mounts and the file, and no record says so.
func TestClusterMadeFromFiles(t *testing.T) {
	t.Parallel()
	p := newFilesControlPlane(t, "v1.37")
	stock := p.all(t)
	p.writeSteps(t, takeover, all)
	for _, name := range []string{component.APIServer, component.ControllerManager} {
		testutil.Must(t, os.Remove(p.config.patch(name)))
		testutil.Must(t, os.Remove(p.config.backup(name)))
	}
	file := strings.TrimPrefix(component.AdmissionConfigFile, "/")
	p.write(t, file, []byte(admissionHead+"- name: MutatingAdmissionWebhook\n"))
	made := p.all(t)
	p.config.Registration, p.config.Rewrite = "", true
	p.writeSteps(t, takeover, all)
	testutil.Check(t, "after a takeover", made, p.all(t))
	p.writeSteps(t, handback, all)
	stock[file] = made[file]
	testutil.Check(t, "after a handback", stock, p.all(t))
}

// TestSwitchedOff: our process is ready without files then.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	p := newStaticControlPlane(t)
	wantError(t, "on", p.config.switchedOff(t.Context()), "")
	p.write(t, "etc/kubernetes/sa-controller-manager/static/off", nil)
	wantError(t, "off", p.config.switchedOff(t.Context()),
		"sa-controller-manager webhook register --static-registration-dir=/etc/kubernetes/sa-controller-manager/static lets it in again")
	p.config.StepTimeout, p.config.Clock = time.Millisecond, clock.RealClock{}
	for _, step := range p.steps(t, takeover)[2:] {
		wantError(t, step.summary, p.config.await(t.Context(), step.proofs...), "switches the webhook off")
	}
	p.config.Client = fake.NewClientset()
	testutil.Must(t, p.config.deleteRegistration(t.Context()))
	wantError(t, "after a handback", p.config.switchedOff(t.Context()), "")
}
