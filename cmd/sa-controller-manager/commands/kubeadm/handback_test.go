// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
)

// ownOptOut is what an operator has put into kubeadm's configuration, and kubeadm puts into every
// manifest that it writes.
func ownOptOut(manifest string) string {
	return strings.Replace(manifest, "--controllers=*,bootstrapsigner,tokencleaner",
		"--controllers=*,bootstrapsigner,tokencleaner,-legacy-serviceaccount-token-cleaner-controller", 1)
}

func ownPluginOff(manifest string) string {
	return strings.Replace(manifest, "    - --secure-port=6443\n",
		"    - --secure-port=6443\n    - --disable-admission-plugins=ServiceAccount\n", 1)
}

// madeWithOurs is what manifests/kind makes.
func madeWithOurs(manifest string) string {
	manifest = strings.Replace(manifest, "--controllers=*,bootstrapsigner,tokencleaner",
		"--controllers=*,bootstrapsigner,tokencleaner,"+controllersOff, 1)
	return strings.Replace(manifest, "--service-account-private-key-file=/etc/kubernetes/pki/sa.key", "--service-account-private-key-file=", 1)
}

func unchanged(manifest string) string { return manifest }

// sample is one of kubeadm's manifests, with what an operator has done to its configuration.
func sample(t *testing.T, version, name string, operator func(string) string) []byte {
	t.Helper()
	return []byte(operator(string(staticpodtest.Read(t, "testdata/manifests/"+version+"/"+name+".yaml"))))
}

// upgrades does what kubeadm upgrade does to a manifest: the one of another version, with our patch
// or without.
func (p *controlPlane) upgrades(t *testing.T, name string, operator func(string) string, patches bool) {
	t.Helper()
	rendered := sample(t, "v1.34", name, operator)
	if patches {
		var operations []struct{ Op, Path, Value string }
		testutil.Must(t, yaml.Unmarshal(staticpodtest.Read(t, p.config.patch(name)), &operations))
		m, err := staticpod.Parse(rendered, name)
		testutil.Must(t, err)
		var e staticpod.Edit
		for _, one := range operations {
			e.Append = append(e.Append, one.Value)
		}
		if m, err = m.Apply(e); err != nil {
			t.Fatal(err)
		}
		rendered = m.Bytes()
	}
	p.write(t, "manifests/"+name+".yaml", rendered)
}

func (p *controlPlane) remove(t *testing.T, name string) {
	t.Helper()
	testutil.Must(t, os.Remove(p.dir+"/"+name))
}

// TestHandbackGivesBackWhatWasThere: all that an operator has set is there after a handback, and
// nothing of ours.
func TestHandbackGivesBackWhatWasThere(t *testing.T) {
	t.Parallel()
	const oldVersion, newVersion = "v1.37", "v1.34" // an upgrade is to another one
	cases := map[string]struct {
		reason    string
		operator  map[string]func(string) string // by component
		made      bool                           // made with ours, and never taken over
		meanwhile func(*testing.T, *controlPlane)
		version   string
		want      map[string]func(string) string // by component, if it is not as the operator has it
	}{
		"OwnOptOut":    {operator: map[string]func(string) string{component.ControllerManager: ownOptOut}, version: oldVersion},
		"OwnPluginOff": {operator: map[string]func(string) string{component.APIServer: ownPluginOff}, version: oldVersion},
		"OwnPluginOffEditedSince": {
			reason:   "takeover has recorded that it added nothing",
			operator: map[string]func(string) string{component.APIServer: ownPluginOff}, version: oldVersion,
			meanwhile: func(t *testing.T, p *controlPlane) { p.upgrades(t, component.APIServer, ownPluginOff, true) },
			want:      map[string]func(string) string{component.APIServer: nil},
		},
		"UpgradeWithPatches": {
			operator: map[string]func(string) string{component.ControllerManager: ownOptOut}, version: newVersion,
			meanwhile: func(t *testing.T, p *controlPlane) {
				p.upgrades(t, component.ControllerManager, ownOptOut, true)
				p.upgrades(t, component.APIServer, unchanged, true)
			},
		},
		"UpgradeWithoutPatches": {
			operator: map[string]func(string) string{component.ControllerManager: ownOptOut}, version: newVersion,
			meanwhile: func(t *testing.T, p *controlPlane) {
				p.upgrades(t, component.ControllerManager, ownOptOut, false)
				p.upgrades(t, component.APIServer, unchanged, false)
			},
		},
		"OurManifestIsGone": {
			version:   oldVersion,
			meanwhile: func(t *testing.T, p *controlPlane) { p.remove(t, "manifests/sa-controller-manager.yaml") },
		},
		"OurManifestIsGoneAndUpgraded": {
			version: newVersion,
			meanwhile: func(t *testing.T, p *controlPlane) {
				p.remove(t, "manifests/sa-controller-manager.yaml")
				p.upgrades(t, component.ControllerManager, unchanged, true)
				p.upgrades(t, component.APIServer, unchanged, true)
			},
		},
		"OurManifestIsDamaged": {
			version: oldVersion,
			meanwhile: func(t *testing.T, p *controlPlane) {
				p.write(t, "manifests/sa-controller-manager.yaml", []byte("kind: ["))
			},
		},
		"TheBackupIsGone": {
			operator: map[string]func(string) string{component.ControllerManager: ownOptOut}, version: oldVersion,
			meanwhile: func(t *testing.T, p *controlPlane) {
				p.remove(t, "backup/kube-controller-manager.yaml")
				p.remove(t, "backup/kube-apiserver.yaml")
			},
		},
		"OurLineIsEdited": {
			reason: "the operator has put a plugin of its own beside ours", version: oldVersion,
			meanwhile: func(t *testing.T, p *controlPlane) {
				p.write(t, apiServerFile,
					[]byte(strings.Replace(string(staticpodtest.Read(t, p.config.manifest(component.APIServer))),
						"--disable-admission-plugins=ServiceAccount", "--disable-admission-plugins=ServiceAccount,PodSecurity", 1)))
			},
			want: map[string]func(string) string{component.APIServer: func(m string) string {
				return strings.Replace(m, "    image: ", "    - --disable-admission-plugins=PodSecurity\n    image: ", 1)
			}},
		},
		"OperatorAddsTheSameLine": {
			reason: "of several equal lines the last one is ours", version: oldVersion,
			meanwhile: func(t *testing.T, p *controlPlane) {
				p.write(t, apiServerFile, []byte(ownPluginOff(string(staticpodtest.Read(t, p.config.manifest(component.APIServer))))))
			},
			want: map[string]func(string) string{component.APIServer: ownPluginOff},
		},
		"AllThatWeKeptIsGone": {
			reason: "our lines are known by their names", version: oldVersion,
			operator: map[string]func(string) string{component.ControllerManager: ownOptOut},
			meanwhile: func(t *testing.T, p *controlPlane) {
				for name := range p.all(t) {
					if !strings.HasPrefix(name, "manifests/kube-") {
						p.remove(t, name)
					}
				}
			},
		},
		"MadeWithOurs": {
			made: true, version: oldVersion,
			operator: map[string]func(string) string{component.ControllerManager: madeWithOurs, component.APIServer: ownPluginOff},
			want: map[string]func(string) string{
				component.ControllerManager: func(m string) string { return strings.Replace(m, "pki/sa.key", "pki/ours.key", 1) },
				component.APIServer:         unchanged,
			},
		},
		"MadeWithoutOurs": {
			reason: "one of the three, and all of them under their aliases, are the operator's", made: true, version: oldVersion,
			operator: map[string]func(string) string{component.ControllerManager: func(m string) string {
				return strings.Replace(ownOptOut(m), "*,", "*,-serviceaccount,-root-ca-cert-publisher,-legacy-service-account-token-cleaner,", 1)
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, oldVersion)
			for component, change := range tc.operator {
				p.write(t, "manifests/"+component+".yaml", sample(t, oldVersion, component, change))
			}
			if tc.made {
				p.writeSteps(t, takeover, 1) // our manifest
			} else {
				p.writeSteps(t, takeover, 3)
			}
			if tc.meanwhile != nil {
				tc.meanwhile(t, p)
			}
			p.writeSteps(t, handback, 4)
			for _, name := range []string{component.ControllerManager, component.APIServer} {
				operator, version := tc.operator[name], tc.version
				if want, other := tc.want[name]; other && want == nil {
					version = newVersion
				} else if other {
					operator = want
				}
				if operator == nil {
					operator = unchanged
				}
				testutil.Check(t, tc.reason+": "+name, string(sample(t, version, name, operator)),
					string(staticpodtest.Read(t, p.config.manifest(name))))
			}
			for name := range p.all(t) {
				if !strings.HasPrefix(name, "backup/") && !strings.HasPrefix(name, "manifests/kube-") && !strings.HasPrefix(name, "pki/") {
					t.Errorf("%s is left", name)
				}
			}
		})
	}
}

// TestHandbackOfADeadProcess is the whole way back of a node whose process is dead, and whose
// kube-apiserver is away for a while: nothing is awaited that the process would have to do.
func TestHandbackOfADeadProcess(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *controlPlane){
		"CrashLooping": func(*testing.T, *controlPlane) {}, // its manifest is there
		"Gone":         func(t *testing.T, p *controlPlane) { p.remove(t, "manifests/sa-controller-manager.yaml") },
		"Damaged": func(t *testing.T, p *controlPlane) {
			p.write(t, "manifests/sa-controller-manager.yaml", []byte("kind: ["))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, "v1.37")
			before := p.all(t)
			p.writeSteps(t, takeover, 3)
			// On this machine a process of ours may listen on the port that is the default.
			own := []byte(strings.Replace(string(staticpodtest.Read(t, p.config.manifest(manager))), "    args:\n",
				"    args:\n    - --secure-port=1\n", 1))
			p.write(t, "manifests/sa-controller-manager.yaml", own)
			p.write(t, "backup/sa-controller-manager.yaml", own)
			prepare(t, p)
			client := fake.NewClientset(
				&admissionregistrationv1.MutatingWebhookConfiguration{
					ObjectMeta: metav1.ObjectMeta{Name: registration.Name}, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "mutate"}},
				},
				&admissionregistrationv1.ValidatingWebhookConfiguration{
					ObjectMeta: metav1.ObjectMeta{Name: registration.Name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
						{Name: "validate.sa-controller-manager.webhook"},
					},
				})
			p.kubelet(t, client)
			p.config.DryRun, p.config.Client, p.config.Clock, p.config.StepTimeout = false, client, clock.RealClock{}, 10*time.Second
			testutil.Must(t, Handback(t.Context(), p.config))
			after := p.all(t)
			for _, name := range []string{component.ControllerManager, component.APIServer} {
				file := "manifests/" + name + ".yaml"
				if diff := cmp.Diff(before[file], after[file]); diff != "" {
					t.Errorf("%s (-before +after):\n%s", file, diff)
				}
			}
			if _, there := after["manifests/sa-controller-manager.yaml"]; there {
				t.Error("our manifest is still there")
			}
			if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), registration.Name,
				metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the validating configuration: %v", err)
			}
		})
	}
}

// kubelet answers for the Pods of kube-system: it shows what the manifests say. Every third request
// fails.
func (p *controlPlane) kubelet(t *testing.T, client *fake.Clientset) {
	t.Helper()
	calls := 0
	parsed := func(name string) *staticpod.Manifest {
		m, err := staticpod.Parse(staticpodtest.Read(t, p.config.manifest(name)), name)
		testutil.Must(t, err)
		return m
	}
	show := func(name string) *corev1.Pod { return mirror(name, "n", true, parsed(name).Command()...) }
	client.PrependReactor("update", "validatingwebhookconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
		webhooks := action.(clienttesting.UpdateAction).GetObject().(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
		if len(webhooks) == 0 && component.PluginIsOff(show(component.APIServer)) {
			t.Error("the webhook goes before kube-apiserver has its plugin")
		}
		return false, nil, nil
	})
	client.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if calls++; calls%3 == 0 {
			return true, nil, errors.New("connection refused")
		}
		if list, ok := action.(clienttesting.ListAction); ok && list.GetVerb() == "list" {
			return true, &corev1.PodList{Items: []corev1.Pod{*show(component.APIServer), *show(component.ControllerManager)}}, nil
		}
		name := strings.TrimSuffix(action.(clienttesting.GetAction).GetName(), "-n")
		if name == manager {
			return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
		}
		return true, show(name), nil
	})
}

// The break-glass handback of kube-apiserver reads no other manifest: an operator stops
// kube-controller-manager by moving its manifest away.
func TestHandbackOfOneComponent(t *testing.T) {
	t.Parallel()
	const file = "manifests/kube-controller-manager.yaml"
	for name, prepare := range map[string]func(*testing.T, *controlPlane){
		"OtherIsGone":    func(t *testing.T, p *controlPlane) { p.remove(t, file) },
		"OtherIsDamaged": func(t *testing.T, p *controlPlane) { p.write(t, file, []byte("kind: [")) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.writeSteps(t, takeover, 3)
			prepare(t, p)
			p.config.Steps, p.config.Render = []string{StepAPIServer}, nil // as the command has it
			testutil.Check(t, "plan", []string{apiServerBack}, p.plan(t, handback))
		})
	}
}
