// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	stdcmp "cmp"
	"context"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/manifests/takeover/takeovertest"
)

// trip is a takeover with what is before and after it, and a handback.
type trip struct {
	reason string
	sample string   // v1.37 if it is empty
	flags  []string // of kube-apiserver, the operator's
	edits  []edit   // of the operator
	// before has earlier takeovers, and config is for the last one.
	before func(*testing.T, *controlPlane)
	config func(*Config)
	added  []string // to the command of kube-apiserver
	none   bool     // it reads no files, and keeps its plugin
	// since is what happens before the handback, and then kubeadm v1.34 writes the manifests of some
	// components, with our patches or without.
	since       func(*testing.T, *controlPlane)
	upgraded    []string
	patched     bool
	left        []edit // what the handback leaves beside what was there
	pluginIsOff bool   // by the operator, after the handback: our process stays
}

// adds reports whether the takeover adds a flag to kube-apiserver.
func (tc *trip) adds(flag string) bool {
	return slices.ContainsFunc(tc.added, func(one string) bool { return strings.HasPrefix(one, "--"+flag+"=") })
}

// mode is how our process registers.
func (tc *trip) mode() registration.Mode {
	if tc.none {
		return registration.None
	}
	return registration.Static
}

// edit is of the manifest of a component.
type edit struct{ name, old, new string }

// operators is a manifest of kubeadm as the operator's configuration has it.
func (tc *trip) operators(t *testing.T, sample, name string) []byte {
	t.Helper()
	text := takeovertest.Stock(t, sample, name)
	for _, flag := range tc.flags {
		if name == component.APIServer {
			text = takeovertest.Replaced(t, text, "    image:", "    - "+flag+"\n    image:")
		}
	}
	for _, one := range tc.edits {
		if one.name == name {
			text = takeovertest.Replaced(t, text, one.old, one.new)
		}
	}
	return text
}

// TestThereAndBack: a takeover makes of kubeadm's manifests what is wanted and no more, can be repeated, and
// takes back what a kube-apiserver does not start with. Its patch has kubeadm do the same, and a handback gives
// back what was there.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	const (
		source = "--admission-control-config-file=/etc/kubernetes/pki/admission.yaml" // the operator's
		config = "--admission-control-config-file=" + component.AdmissionConfigFile
		gateOn = "--feature-gates=" + gate + "=true"
		socket = "--" + endpointFlag + "=" + manifests.SignerSocket
		port   = "    - --secure-port=6443\n"
	)
	both := []string{component.ControllerManager, component.APIServer}
	optOut := []edit{{component.ControllerManager, "tokencleaner\n", "tokencleaner,-legacy-serviceaccount-token-cleaner-controller\n"}}
	ownPluginOff := []edit{{component.APIServer, port, port + "    - " + pluginOff + "\n"}}
	files, signed := []string{config, pluginOff}, []string{socket, config, pluginOff}
	signs := func(c *Config) { c.ExternalSigner, c.Rewrite = true, true }
	taken := func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, all) }
	more := edit{component.APIServer, "--allow-privileged=true", "--allow-privileged=false"}
	without := func(files ...string) func(*testing.T, *controlPlane) {
		return func(t *testing.T, p *controlPlane) { p.Remove(t, files...) }
	}
	changedAndWithout := func(files ...string) func(*testing.T, *controlPlane) {
		return func(t *testing.T, p *controlPlane) {
			p.Change(t, more.name, more.old, more.new)
			p.Remove(t, files...)
		}
	}
	for name, tc := range map[string]trip{
		"v1.37": {added: files},
		"v1.36": {reason: "its gate is off", sample: "v1.36", none: true},
		"v1.36WithSigner": {
			reason: "that does not need the webhook", sample: "v1.36", none: true, config: signs, added: []string{socket},
		},
		"GateOn":  {sample: "v1.36", flags: []string{gateOn}, added: files},
		"OwnFile": {flags: []string{source}, added: files},
		"OwnGate": {sample: "v1.36", flags: []string{"--feature-gates=A=true," + gate + "=true"}, added: files},
		"RegisteredNowhereFirst": {
			reason: "as before v1.37", added: files,
			before: func(t *testing.T, p *controlPlane) {
				p.config.KeepPlugin = true
				taken(t, p)
			},
			config: func(c *Config) { c.KeepPlugin, c.Rewrite = false, true },
		},
		"Interrupted": {added: files, before: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, 3) }},
		"FilesEditedSince": {
			reason: "so that the backup does not fit", added: files, since: changedAndWithout(),
			left: []edit{more},
		},
		"Signer": {config: signs, added: signed},
		"SignerLater": {
			reason: "the backup of the first takeover is what was before both", before: taken, config: signs, added: signed,
		},
		"SignerEditedSince": {config: signs, added: signed, since: changedAndWithout(), left: []edit{more}},
		"SignerEditedAndOurManifestIsGone": {
			reason: "the record has the keys", config: signs, added: signed, left: []edit{more},
			since: changedAndWithout(ownFile),
		},
		"SignerEditedAndTheBackupIsGone": {
			reason: "the record has the keys", config: signs, added: signed, left: []edit{more},
			since: changedAndWithout("sa-controller-manager-backup/kube-apiserver.yaml"),
		},
		"OwnOptOut":              {edits: optOut, added: files},
		"OwnPluginOff":           {edits: ownPluginOff, added: []string{config}, pluginIsOff: true},
		"UpgradedWithPatches":    {edits: optOut, added: files, upgraded: both, patched: true},
		"UpgradedWithoutPatches": {edits: optOut, added: files, upgraded: both},
		"OurManifestIsGone":      {added: files, since: without(ownFile)},
		"OurManifestIsDamaged":   {added: files, since: func(t *testing.T, p *controlPlane) { p.Write(t, ownFile, []byte("kind: [")) }},
		"TheBackupsAreGone": {
			edits: optOut, added: files, since: without("sa-controller-manager-backup/kube-controller-manager.yaml",
				"sa-controller-manager-backup/kube-apiserver.yaml"),
		},
		"OurLineIsEdited": {
			reason: "the operator has put a plugin of its own beside ours", added: files,
			since: func(t *testing.T, p *controlPlane) {
				p.Change(t, component.APIServer, pluginOff, pluginOff+",PodSecurity")
			},
			left: []edit{{component.APIServer, "    image: ", "    - --disable-admission-plugins=PodSecurity\n    image: "}},
		},
		"AFlagIsAppended": {
			reason: "behind ours, where one adds flags", added: files, since: func(t *testing.T, p *controlPlane) {
				p.Change(t, component.APIServer, "    image: ", "    - --v=4\n    image: ")
				before := p.Files(t)
				p.writeSteps(t, takeover, all)
				testutil.Check(t, "another takeover restarts nothing", before[apiServerFile], p.Files(t)[apiServerFile])
				status := testutil.Get(p.config.Status())(t)
				testutil.Check(t, "status", TakenOver, status.State)
			},
			left: []edit{{component.APIServer, "    image: ", "    - --v=4\n    image: "}},
		},
		"OurListIsEdited": {
			reason: "without * no other controller would run", added: files,
			edits: []edit{{component.ControllerManager, "    - --controllers=*,bootstrapsigner,tokencleaner\n", ""}},
			since: func(t *testing.T, p *controlPlane) {
				p.Change(t, component.ControllerManager, "clustertrustbundle-publisher-controller\n",
					"clustertrustbundle-publisher-controller,-ttl-controller\n")
			},
			left: []edit{{component.ControllerManager, "    image: ", "    - --controllers=*,-ttl-controller\n    image: "}},
		},
		"SignerLineIsTakenOut": {
			reason: "kube-apiserver would have no key", config: signs, added: signed, since: func(t *testing.T, p *controlPlane) {
				p.Change(t, component.APIServer, "    - "+socket+"\n", "")
			},
		},
		"OperatorAddsTheSameLine": {
			reason: "of several equal lines the last one is ours", added: files, left: ownPluginOff, pluginIsOff: true,
			since: func(t *testing.T, p *controlPlane) { p.Change(t, component.APIServer, port, ownPluginOff[0].new) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.goes(t)
		})
	}
}

func (tc *trip) goes(t *testing.T) {
	p := newControlPlane(t, stdcmp.Or(tc.sample, "v1.37"))
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		p.Write(t, "manifests/"+name+".yaml", tc.operators(t, stdcmp.Or(tc.sample, "v1.37"), name))
	}
	p.Write(t, "pki/admission.yaml", []byte(admissionHead+"- name: EventRateLimit\n  path: limits.yaml\n"))
	before, first, command := p.Files(t), staticpodtest.Read(t, p.config.manifest(component.APIServer)), p.command(t)
	if tc.before != nil {
		tc.before(t, p)
	}
	if tc.config != nil {
		tc.config(&p.config)
	}
	if tc.added != nil {
		p.failsOnce(t)
	}
	p.writeSteps(t, takeover, all)
	tc.isTaken(t, p, first, command)

	p.config.KeepPlugin, p.config.ExternalSigner, p.config.Rewrite = false, false, false
	after := p.Files(t)
	p.writeSteps(t, takeover, all)
	testutil.Check(t, "after one more takeover, without the flags", after, p.Files(t))
	if tc.since == nil && tc.upgraded == nil {
		tc.isWrittenAgain(t, p)
		for file, data := range after {
			p.Write(t, file, []byte(data))
		}
		p.writeSteps(t, takeover, all)
	}
	if tc.since != nil {
		tc.since(t, p)
	}
	for _, name := range tc.upgraded {
		p.upgrade(t, name, tc.operators(t, "v1.34", name), tc.patched)
		before["manifests/"+name+".yaml"] = string(tc.operators(t, "v1.34", name))
	}
	p.writeSteps(t, handback, all)
	wanted := ""
	if tc.pluginIsOff {
		wanted = "has its ServiceAccount plugin off, and Pods would get neither account nor token"
	}
	wantError(t, "our process may stop", p.config.unused(t.Context()), wanted)
	for _, one := range tc.left {
		file := "manifests/" + one.name + ".yaml"
		before[file] = string(takeovertest.Replaced(t, []byte(before[file]), one.old, one.new))
	}
	testutil.Check(t, tc.reason+": after the handback", before, p.withoutBackups(t))
}

// failsOnce: a kube-apiserver that does not come after a step gets back what it had.
func (p *controlPlane) failsOnce(t *testing.T) {
	t.Helper()
	p.writeSteps(t, takeover, 2)
	if p.config.Client == nil {
		p.config.Client = fake.NewClientset()
	}
	for range 2 {
		step := p.steps(t, takeover)[2]
		if len(step.writes) == 0 {
			return
		}
		before := p.withoutBackups(t)
		step.proofs, step.guards = nil, nil // they ask kube-apiserver
		wantError(t, step.summary, p.config.step(t.Context(), step), "; the previous manifest of kube-apiserver is back")
		testutil.Check(t, step.summary, before, p.withoutBackups(t))
		p.writeSteps(t, takeover, 3)
	}
}

// isTaken wants the changes to kube-apiserver that a takeover is for, by itself and by kubeadm with the patch.
func (tc *trip) isTaken(t *testing.T, p *controlPlane, first []byte, command []string) {
	t.Helper()
	taken := staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer)))
	signs, readsFiles := tc.adds(endpointFlag), tc.mode() == registration.Static
	var mounts []string
	if signs {
		mounts = append(mounts, manifests.SignerDirectory)
		// A kubeadm that has one more flag in front of those that the patch takes out.
		more := takeovertest.Replaced(t, first, "    - --allow-privileged", "    - --a-new-flag=1\n    - --allow-privileged")
		moved := staticpodtest.JSON(t, more)
		_, err := staticpodtest.Patch(t, staticpodtest.Read(t, p.config.patch(component.APIServer))).Apply(moved)
		testutil.Expect(t, err != nil, "the patch takes out what it does not know")
		command = slices.DeleteFunc(command, func(flag string) bool {
			return strings.HasPrefix(flag, "--service-account-key-file=") || strings.HasPrefix(flag, "--service-account-signing-key-file=")
		})
	}
	if readsFiles {
		for _, directory := range []string{"config", "mutating", "policies", "validating"} {
			mounts = append(mounts, path.Join(manifests.StaticDirectory, directory))
		}
	}
	testutil.Check(t, "command", slices.Concat(command, tc.added), taken.Containers[0].Command)
	var mounted []string
	for _, mount := range taken.Containers[0].VolumeMounts {
		if mount.ReadOnly && strings.HasPrefix(mount.Name, manager) {
			mounted = append(mounted, mount.MountPath)
		}
	}
	slices.Sort(mounted)
	slices.Sort(mounts)
	testutil.Check(t, "what kube-apiserver sees of ours", mounts, mounted)
	patched := staticpodtest.Spec(t, staticpodtest.PatchedFile(t, first, staticpodtest.Read(t, p.config.patch(component.APIServer))))
	testutil.Check(t, "the patch", inOrder(taken), inOrder(patched))

	own := staticpodtest.Read(t, p.config.manifest(manager))
	testutil.Check(t, "our program", p.config.Pod.Binary, staticpod.CommandIn(own)[0])
	testutil.Check(t, "our mode", string(tc.mode()), staticpod.CommandIn(own).Last(RegistrationFlag))
	for flag, want := range map[string]bool{StaticDirFlag: readsFiles, SocketFlag: signs} {
		got := staticpod.CommandIn(own).Last(flag)
		testutil.Expect(t, (got != "") == want, "our --%s is %q, want one: %t", flag, got, want)
	}
	status := testutil.Get(p.config.Status())(t)
	testutil.Check(t, "status", TakenOver, status.State)
	wanted := "runs in our process alone; first run kubeadm handback --steps=kube-controller-manager"
	if signs || readsFiles {
		wanted = "first run: kubeadm handback --steps=kube-apiserver"
	}
	wantError(t, "our process may stop", p.config.unused(t.Context()), wanted)
}

// isWrittenAgain has kubeadm write its own manifest, as for a node that joins and in an upgrade without patches.
func (tc *trip) isWrittenAgain(t *testing.T, p *controlPlane) {
	t.Helper()
	other := "v1.37"
	if stdcmp.Or(tc.sample, other) == other {
		other = "v1.36"
	}
	written := takeovertest.Stock(t, other, component.APIServer)
	if tc.mode() == registration.Static { // an older one reads no files
		written = writtenAgain(t, other)
	}
	p.Write(t, apiServerFile, written)
	for _, n := range []int{3, all} {
		p.writeSteps(t, takeover, n)
		want := tc.mode() == registration.Static && n == all
		off := slices.Contains(p.command(t), pluginOff)
		testutil.Expect(t, off == want, "kubeadm has written its manifest again, and after %d steps the plugin is off: %t, want %t", n, off,
			want)
	}
	taken := staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer)))
	patched := staticpodtest.Spec(t, staticpodtest.PatchedFile(t, written, staticpodtest.Read(t, p.config.patch(component.APIServer))))
	testutil.Check(t, "the patch for its new manifest", inOrder(taken), inOrder(patched))
	got := strings.Contains(strings.Join(p.command(t), " "), manifests.SignerSocket)
	testutil.Expect(t, got == tc.adds(endpointFlag), "our process signs: %t, want %t", got, !got)
	testutil.Check(t, "our mode then", string(tc.mode()),
		staticpod.CommandIn(staticpodtest.Read(t, p.config.manifest(manager))).Last(RegistrationFlag))
	p.writeSteps(t, handback, 1)
	testutil.Check(t, "what kubeadm wrote", string(written), string(staticpodtest.Read(t, p.config.manifest(component.APIServer))))
}

// writtenAgain is a manifest of kubeadm with an image that reads files.
func writtenAgain(t *testing.T, sample string) []byte {
	t.Helper()
	return regexp.MustCompile(`kube-apiserver:v1\.36\.\d+`).ReplaceAll(takeovertest.Stock(t, sample, component.APIServer),
		[]byte("kube-apiserver:v1.37.2"))
}

// upgrade writes a new manifest of a component as kubeadm does, with our patch or without.
func (p *controlPlane) upgrade(t *testing.T, name string, manifest []byte, patches bool) {
	t.Helper()
	if patches {
		manifest = staticpodtest.PatchedFile(t, manifest, staticpodtest.Read(t, p.config.patch(name)))
	}
	p.Write(t, "manifests/"+name+".yaml", manifest)
}

// inOrder sorts the volumes, whose order means nothing.
func inOrder(spec corev1.PodSpec) corev1.PodSpec {
	slices.SortFunc(spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(spec.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
	return spec
}

// TestBreakGlass: kube-apiserver comes back although nothing can be said about kube-controller-manager.
func TestBreakGlass(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*testing.T, *controlPlane){
		"OtherGone":    func(t *testing.T, p *controlPlane) { p.Remove(t, kcmFile) },
		"OtherDamaged": func(t *testing.T, p *controlPlane) { p.Write(t, kcmFile, []byte("kind: [")) },
	} {
		p := newControlPlane(t, "v1.37")
		before := p.Files(t)[apiServerFile]
		p.writeSteps(t, takeover, all)
		breaks(t, p)
		p.config.Steps, p.config.Pod = []string{StepAPIServer}, nil // as the command has it
		p.writeSteps(t, handback, all)
		testutil.Check(t, name, before, p.Files(t)[apiServerFile])
	}
}

// TestManagerThatDoesNotCome: a rewrite whose Pod does not become ready must not stay, because the webhook is
// bound, and no Pod would be admitted.
func TestManagerThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before       []byte // our manifest, nil if there is none
		want, advice string
	}{
		"Rewrite": {
			staticpodtest.Own([]string{theKey}),
			"; the previous DIR/manifests/sa-controller-manager.yaml is back, and until its process is ready this kube-apiserver " +
				"refuses Pods",
			"Look at the log of the Pod kube-system/sa-controller-manager-n",
		},
		"First":       {nil, "it did not come within 1ms", "Nothing of the control plane has been changed"},
		"Interrupted": {nil, "context canceled", "Nothing of the control plane has been changed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			if name == "Interrupted" {
				interrupt()
			}
			p.config.Rewrite, p.config.Client = true, fake.NewClientset()
			if tc.before != nil {
				p.Write(t, ownFile, tc.before)
			}
			own := p.steps(t, takeover)[0]
			own.proofs, own.guards = nil, nil // they ask kube-apiserver
			wantError(t, name, p.config.step(ctx, own), strings.ReplaceAll(tc.want, "DIR", p.Dir))
			testutil.Expect(t, strings.HasPrefix(own.advice, tc.advice), "the advice is %q, want %q at first", own.advice, tc.advice)
			files := p.Files(t)
			got := files[ownFile]
			testutil.Expect(t, (tc.before != nil || got != "") && (tc.before == nil || got == string(tc.before)), "the manifest is %q", got)
			testutil.Check(t, "the backup", string(tc.before), files["sa-controller-manager-backup/sa-controller-manager.yaml"])
		})
	}
}

// TestProofs are asked in a dry run once, and before the first write of a real one until they pass or cannot.
func TestProofs(t *testing.T) {
	t.Parallel()
	const anotherCluster = `--node-name "n" is not this node, or the kubeconfig is of another cluster: ` +
		"Pod kube-apiserver-n there has --advertise-address=10.0.0.9, and "
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default", UID: "1"}}
	published := func(ca []byte) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-root-ca.crt"},
			Data:       map[string]string{"ca.crt": string(ca)},
		}
	}
	anotherCA, _, err := cert.GenerateSelfSignedCertKey("another", nil, nil)
	testutil.Must(t, err)
	here := mirror(component.APIServer, "n", true, "--advertise-address=172.18.0.2")
	for name, tc := range map[string]struct {
		pod          *corev1.Pod
		objects      []runtime.Object
		accepts      bool   // kube-apiserver takes the key
		dry, waiting string // parts of the errors
		advice       bool   // to wait
	}{
		"Node": {
			pod: mirror(component.APIServer, "another", true), advice: true,
			dry:     `step 1, manager: pods "kube-apiserver-n" not found: is --node-name "n" the name of`,
			waiting: `step 1, manager: it did not come within 1ms: pods "kube-apiserver-n" not found: is --node-name "n"`,
		},
		"Cluster": {
			pod: mirror(component.APIServer, "n", true, "--advertise-address=10.0.0.9"), dry: "step 1, manager: " + anotherCluster,
			waiting: "step 1, manager: " + anotherCluster,
		},
		"NoAccount": {
			pod: here, dry: "step 1, manager: get an account to prove the key with: ", advice: true,
			waiting: "step 1, manager: it did not come within 1ms: get an account to prove the key with: ",
		},
		"Key": {
			pod: here, objects: []runtime.Object{account},
			dry:     "step 1, manager: kube-apiserver refuses tokens of key in /etc/kubernetes/pki/sa.key: ",
			waiting: "step 1, manager: kube-apiserver refuses tokens of key in /etc/kubernetes/pki/sa.key: ",
		},
		"RootCA": {
			pod: here, objects: []runtime.Object{account, published(anotherCA)}, accepts: true,
			dry: "step 1, manager: namespaces whose ConfigMap kube-root-ca.crt differs from --root-ca-file: kube-system, so " +
				"that Pods there",
			waiting: "step 1, manager: namespaces whose ConfigMap kube-root-ca.crt differs from --root-ca-file: kube-system, so " +
				"that Pods there",
		},
		"Passes": {
			pod: here, objects: []runtime.Object{account, published(takeovertest.RootCA())}, accepts: true,
			waiting: "step 1, manager: the identity of",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			client := clitest.NewKubeClient(func(string) string { return `{"issuer":"https://a"}` }, append(tc.objects, tc.pod)...)
			client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: tc.accepts, Audiences: review.Spec.Audiences}
				review.Status.User = authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:default", UID: "1"}
				return true, review, nil
			})
			p.config.Client = client
			if !tc.advice {
				p.config.StepTimeout = time.Minute // nothing is waited for
			}
			p.refuses(t, "dry run", Run, tc.dry)
			p.config.DryRun = false
			before := p.Files(t)
			err := Run(t.Context(), p.config)
			wantError(t, "no dry run", err, tc.waiting)
			advice := strings.Contains(err.Error(), "\nNothing of the control plane has been changed.")
			testutil.Expect(t, advice == tc.advice, "%v\nadvises to run it again: %t, want %t", err, advice, tc.advice)
			testutil.Check(t, "files", before, p.Files(t))
		})
	}
	p := newControlPlane(t, "v1.37")
	p.config.Client, p.config.Steps = fake.NewClientset(mirror(component.APIServer, "n", true, "--advertise-address=172.18.0.2")),
		[]string{StepAPIServer}
	p.refuses(t, "no process", Run, "our process has no manifest on this node: the step manager comes first")
	p.Write(t, ownFile, staticpodtest.Own([]string{theKey, "--webhook-registration=static"}))
	p.refuses(t, "another step", Run, "")
}

// TestRefuses: what a later step could not do is refused before the first one changes or prints anything.
func TestRefuses(t *testing.T) {
	t.Parallel()
	const tag = ":v1.37.2"
	for name, tc := range map[string]struct {
		reason   string
		signer   bool
		old, new string // of kube-apiserver's manifest
		want     string
	}{
		"KeyElsewhere": {
			reason: "our Pod does not see it", signer: true, old: "=/etc/kubernetes/pki/sa.pub", new: "=/etc/keys/sa.pub",
			want: "/etc/keys/sa.pub is in none of its volumeMounts",
		},
		"NoIssuer": {
			signer: true, old: "    - --service-account-issuer=https://kubernetes.default.svc.cluster.local\n", want: "issues no tokens",
		},
		"Old": {old: tag, new: ":v1.29.16", want: "v1.29.16 is too old: v1.30 is the oldest"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.config.ExternalSigner, p.config.Rewrite = tc.signer, tc.signer
			p.Change(t, component.APIServer, tc.old, tc.new)
			before := p.Files(t)
			wantError(t, tc.reason, Run(t.Context(), p.config), tc.want)
			diff := !maps.Equal(before, p.Files(t))
			testutil.Expect(t, !diff && p.out.Len() <= 0, "%s: files have changed: %t; printed: %s", tc.reason, diff, &p.out)
		})
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.refuses(t, "takeover", Run, "")
	for _, want := range []string{
		"1. manager: ", "2. kube-controller-manager: ", "3. kube-apiserver: ",
		"--- /dev/null\n+++ " + p.config.manifest(manager) + "\n",
		"--- " + p.config.manifest(component.APIServer) + "\n+++ " + p.config.manifest(component.APIServer) + "\n@@ -39,6 +39,7 @@\n",
		"\n+    - " + pluginOff + "\n",
		"is kept in " + filepath.Join(p.Dir, "sa-controller-manager-backup", "kube-apiserver.yaml") + ".\n",
	} {
		testutil.Expect(t, strings.Contains(p.out.String(), want), "it does not print %q:\n%s", want, &p.out)
	}
	p.refuses(t, "handback", Handback, "")
	testutil.Expect(t, !strings.Contains(p.out.String(), "Our manifest is gone"), "the node is not taken over:\n%s", &p.out)
}

// TestTakenOverAgain: kubeadm or the operator changes manifests between two takeovers, so that the backup of the
// first one does not fit. What takeovers have added goes nevertheless, and our process has its controllers.
func TestTakenOverAgain(t *testing.T) {
	t.Parallel()
	same := func(*Config) {}
	for name, tc := range map[string]struct {
		reason, sample string
		first          func(*Config)
		between        func(t *testing.T, p *controlPlane, patches bool)
		again          func(*Config)
	}{
		"UpgradedWithPatches": {
			reason: "v1.37 has one more controller that is replaced", sample: "v1.36", first: same,
			between: func(t *testing.T, p *controlPlane, patches bool) {
				for _, name := range []string{component.ControllerManager, component.APIServer} {
					p.upgrade(t, name, takeovertest.Stock(t, "v1.37", name), patches)
				}
			}, again: same,
		},
		"SignerThenFiles": {
			reason: "files come with v1.37", sample: "v1.36", first: func(c *Config) {
				c.ExternalSigner, c.Rewrite = true, true
			}, between: func(t *testing.T, p *controlPlane, _ bool) {
				p.Change(t, component.APIServer, "kube-apiserver:v1.36", "kube-apiserver:v1.37")
			}, again: func(c *Config) { c.ExternalSigner = false },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, never := newControlPlane(t, tc.sample), newControlPlane(t, tc.sample)
			tc.first(&p.config)
			p.writeSteps(t, takeover, all)
			tc.between(t, p, true)
			tc.between(t, never, false)
			tc.again(&p.config)
			p.writeSteps(t, takeover, all)
			p.config.KeepPlugin, p.config.ExternalSigner, p.config.Rewrite = false, false, true
			p.writeSteps(t, takeover, all)
			ours := p.Files(t)[ownFile]
			testutil.Expect(t, !strings.Contains(ours, "-serviceaccount-controller"), "%s: our process runs no controllers:\n%s", tc.reason,
				ours)
			p.config.Rewrite = false
			p.writeSteps(t, handback, all)
			testutil.Must(t, p.config.unused(t.Context()))
			for _, name := range []string{component.ControllerManager, component.APIServer} {
				file := "manifests/" + name + ".yaml"
				testutil.Check(t, tc.reason+": "+file, never.Files(t)[file], p.Files(t)[file])
			}
		})
	}
}
