// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
)

// longerOutage is how much longer kube-apiserver may be away during a takeover than during any other
// edit of its manifest.
const longerOutage = 1.2

func within(t *testing.T, what string, took []time.Duration, restarts int, usual time.Duration) {
	t.Helper()
	t.Logf("%s: kube-apiserver was away for %v; usual is %v", what, took, usual)
	testutil.Expect(t, len(took) == restarts && slices.Max(took).Seconds() <= longerOutage*usual.Seconds(),
		"%s: kube-apiserver was away for %v, want %d times, and %.1f times %v at most", what, took, restarts, longerOutage, usual)
}

// underTraffic creates Pods while do runs and returns how long kube-apiserver was away, each time.
func (c *cluster) underTraffic(t *testing.T, name string, do func()) (took []time.Duration) {
	t.Helper()
	namespace := c.namespace(t, name)
	c.awaitDefaultAccount(t, namespace)
	load := c.startLoad(t, namespace)
	do()
	load.unharmed(t)
	for _, outage := range load.outages("/livez") {
		took = append(took, outage.to.Sub(outage.from))
	}
	return took
}

// isAccount checks that a Pod is authenticated as the account default, with both groups.
func (c *cluster) isAccount(t *testing.T, name string, groups []string, namespace string) {
	t.Helper()
	if want := "system:serviceaccount:" + namespace + ":default"; name != want {
		t.Errorf("the Pod is %q, want %q", name, want)
	}
	for _, want := range []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace} {
		testutil.Expect(t, strings.Contains(" "+strings.Join(groups, " ")+" ", " "+want+" "), "the Pod is in the groups %q, want %q too",
			groups,
			want)
	}
}

// harmlessEdit is the default.
const harmlessEdit = "    - --profiling=true\n"

// outageOfAnEdit returns how long kube-apiserver is away after an edit of its manifest without a takeover.
func (c *cluster) outageOfAnEdit(t *testing.T) time.Duration {
	t.Helper()
	took := c.underTraffic(t, "during-an-edit", func() {
		c.editManifest(t, "kube-apiserver", harmlessEdit)
		c.awaitRestart(t, "kube-apiserver", "--profiling=true")
	})
	testutil.Require(t, len(took) == 1, "an edit of its manifest takes kube-apiserver away for %v, want once", took)
	return took[0]
}

// editManifest adds an argument to a static pod.
func (c *cluster) editManifest(t *testing.T, name, argument string) {
	t.Helper()
	manifest := c.readManifest(t, name)
	edited := strings.Replace(manifest, "    - "+name+"\n", "    - "+name+"\n"+argument, 1)
	testutil.Require(t, edited != manifest, "the manifest of %s has no command as expected:\n%s", name, manifest)
	c.writeManifest(t, name, edited)
}

// writeManifest writes to a name with a dot first: the kubelet reads every other file of the directory.
func (c *cluster) writeManifest(t *testing.T, name, content string) {
	t.Helper()
	const path = "/etc/kubernetes/manifests/"
	c.onNodeWith(t, content, "sh", "-c", fmt.Sprintf("cat >%[1]s.%[2]s.new && mv %[1]s.%[2]s.new %[1]s%[2]s.yaml", path, name))
}

// awaitRestart waits until the mirror pod of a static pod has the argument and is ready.
func (c *cluster) awaitRestart(t *testing.T, name, argument string) {
	t.Helper()
	mirror := name + "-" + c.controlPlane()
	c.awaitPods(t, metav1.NamespaceSystem, func(pods []*corev1.Pod) error {
		pod, ok := await.Find(pods, mirror)
		if !ok || !strings.Contains(strings.Join(pod.Spec.Containers[0].Command, " "), argument) || !isReady(pod) {
			return fmt.Errorf("%s is not ready with %s", mirror, argument)
		}
		return nil
	})
}

// versions returns the resourceVersions of all ServiceAccounts and Secrets.
func (c *cluster) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	accounts := testutil.Get(c.client.CoreV1().ServiceAccounts("").List(t.Context(), metav1.ListOptions{}))(t)
	for _, account := range accounts.Items {
		versions["serviceaccount "+account.Namespace+"/"+account.Name] = account.ResourceVersion
	}
	secrets := testutil.Get(c.client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}))(t)
	for _, secret := range secrets.Items {
		versions["secret "+secret.Namespace+"/"+secret.Name] = secret.ResourceVersion
	}
	return versions
}

// namespace creates a namespace.
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	made := testutil.Get(c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}))(t)
	return made.Name
}

func (c *cluster) awaitDefaultAccount(t *testing.T, namespace string) {
	t.Helper()
	_, err := await.ServiceAccounts(t.Context(), c.client, namespace, await.Named[*corev1.ServiceAccount]("default"))
	testutil.Must(t, err)
}

const ownManifest = "/etc/kubernetes/manifests/sa-controller-manager.yaml"

// withoutDeadUs takes over and breaks our process in several ways. Each time the handback
// restores the manifests, and the API accepts the tokens of new Pods.
func (c *cluster) withoutDeadUs(t *testing.T) {
	t.Helper()
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	before := c.controlPlaneManifests(t)
	for _, tc := range []struct {
		name     string
		breaks   func(*testing.T)
		upgraded bool // as docs/takeover.md says for a process that is dead
	}{
		{name: "manifest-removed", breaks: func(t *testing.T) { c.onNode(t, "rm", ownManifest) }},
		{name: "crash-looping", upgraded: true, breaks: func(t *testing.T) {
			// It ends at once, because it has no token.
			c.onNode(t, "sh", "-c", fmt.Sprintf("cp %s/apicheck %[2]s.new && mv %[2]s.new %[2]s", nodeBinaries, product))
			c.restartOurPod(t)
		}},
		{name: "binary-missing", breaks: func(t *testing.T) {
			c.onNode(t, "rm", product)
			c.rebootWithoutUs(t)
		}},
	} {
		whole := t.Run(tc.name, func(t *testing.T) {
			c.installProduct(t)
			c.product(t, "kubeadm", "takeover")
			taken := c.controlPlaneManifests(t)
			tc.breaks(t)
			c.awaitRefusal(t)
			if tc.upgraded {
				c.upgrade(t, "--patches=/etc/kubernetes/sa-controller-manager-patches")
				testutil.Check(t, "after an upgrade with our patches", taken, c.controlPlaneManifests(t))
			}
			// The installed binary may be broken or gone: run another copy.
			t.Log(c.onNode(t, nodeBinaries+"/sa-controller-manager", "kubeadm", "handback"))
			c.checkHandedBack(t, before, tc.name)
		})
		if !whole {
			return // the next case would start from a broken state
		}
	}
}

// controlPlaneManifests are those of the two components that a takeover changes, by name.
func (c *cluster) controlPlaneManifests(t *testing.T) map[string]string {
	t.Helper()
	manifests := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager"} {
		manifests[name] = c.readManifest(t, name)
	}
	return manifests
}

// checkHandedBack checks that the manifests are those from before the takeover, that our webhook is
// gone, and that the API accepts the token of a new Pod. The namespace must not exist yet.
func (c *cluster) checkHandedBack(t *testing.T, before map[string]string, namespace string) {
	t.Helper()
	diff := cmp.Diff(before, c.controlPlaneManifests(t))
	testutil.Expect(t, diff == "", "manifests (-before the takeover +after the handback):\n%s", diff)
	c.checkNothingOfUs(t)
	c.namespace(t, namespace)
	c.awaitDefaultAccount(t, namespace)
	answers := c.answers(t, namespace, c.asker(t, on(c.controlPlane())))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
}

// checkNothingOfUs checks that neither the webhook nor a policy for Pods is there.
func (c *cluster) checkNothingOfUs(t *testing.T) {
	t.Helper()
	api := c.client.AdmissionregistrationV1()
	_, mutating := api.MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	_, validating := api.ValidatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	for _, err := range []error{mutating, validating} {
		testutil.Expect(t, apierrors.IsNotFound(err), "the configurations of the webhook: %v, want none", err)
	}
	for _, policy := range []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion} {
		exists, _, err := policy.Problem(t.Context(), c.client)
		testutil.Expect(t, !exists && err == nil, "a policy for Pods is there, %v", err)
	}
}

// restartOurPod has the kubelet restart our Pod with its init containers and the current files.
func (c *cluster) restartOurPod(t *testing.T) {
	t.Helper()
	c.without(t, func() {})
}

// without does something while our Pod is away.
func (c *cluster) without(t *testing.T, do func()) {
	t.Helper()
	const away = "/root/sa-controller-manager.yaml"
	c.onNode(t, "mv", ownManifest, away)
	c.awaitPods(t, metav1.NamespaceSystem, func(pods []*corev1.Pod) error {
		if _, there := await.Find(pods, "sa-controller-manager-"+c.controlPlane()); there {
			return errors.New("our Pod is still there without its manifest")
		}
		return nil
	})
	do()
	c.onNode(t, "mv", away, ownManifest)
}

// awaitRefusal waits until Pods are refused because the webhook does not answer. From v1.36 on those of the account
// default do not need it.
func (c *cluster) awaitRefusal(t *testing.T) {
	t.Helper()
	poll(t, "that Pods are refused", func(ctx context.Context) error {
		pod := homeless()
		pod.Spec.ServiceAccountName = "another"
		_, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return errors.Join(errors.New("the webhook is not missed"), err)
		}
		return nil
	})
}

// rebootWithoutUs restarts the node and waits until the control plane is up without our process.
func (c *cluster) rebootWithoutUs(t *testing.T) {
	t.Helper()
	stopped := time.Now()
	run(t, "docker", "restart", c.controlPlane())
	names := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	// kube-apiserver is a Pod of this node, so there is nothing to watch yet.
	poll(t, "the control plane after the restart", func(ctx context.Context) error {
		for _, name := range names {
			pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name+"-"+c.controlPlane(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			running := pod.Status.ContainerStatuses
			if !isReady(pod) || len(running) != 1 || running[0].State.Running == nil ||
				running[0].State.Running.StartedAt.Time.Before(stopped.Truncate(time.Second)) {
				return fmt.Errorf("%s is not ready after the restart", pod.Name)
			}
		}
		return nil
	})
	t.Logf("the control plane is ready %v after the node was turned off", time.Since(stopped).Round(100*time.Millisecond))
}

// deleteAll deletes what an administrator can delete of ours through the API.
const deleteAll = `export KUBECONFIG=/etc/kubernetes/admin.conf
kubectl delete mutatingwebhookconfigurations,validatingwebhookconfigurations --all
kubectl delete validatingadmissionpolicybindings,validatingadmissionpolicies --all
kubectl delete mutatingadmissionpolicybindings,mutatingadmissionpolicies --all
kubectl --namespace kube-system delete pods --selector component=sa-controller-manager --wait=false
kubectl --namespace kube-system get leases,secrets,configmaps --output name | grep sa-controller-manager |
	xargs kubectl --namespace kube-system delete`

// TestStaticTakeover takes over and hands back while Pods are created, uses the cluster in between, and then
// breaks our process in several ways.
func TestStaticTakeover(t *testing.T) {
	config := stock(t, 1)
	if strings.Contains(os.Getenv("KIND_NODE_IMAGE"), ":v1.36.") { // there it is alpha
		config += "featureGates: {ManifestBasedAdmissionControlConfig: true}\n"
	}
	c := create(t, config)
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	usual := c.outageOfAnEdit(t)
	before, untouched := c.controlPlaneManifests(t), c.versions(t)
	took := c.underTraffic(t, "during-takeover", func() { t.Log(c.product(t, "kubeadm", "takeover")) })
	within(t, "takeover", took, 2, usual) // to read files, and to lose the plugin
	now := c.versions(t)
	maps.DeleteFunc(now, func(name, _ string) bool { return untouched[name] == "" })
	testutil.Check(t, "resourceVersions of what there was", untouched, now)
	t.Run("Calls", func(t *testing.T) { c.callTheAPI(t, c.name+"-worker") })
	t.Run("Heals", c.healsWithoutUs)
	c.undeletable(t, "undeletable")
	c.underTraffic(t, "during-restart", func() { c.killAPIServer(t) })
	taken := c.controlPlaneManifests(t)
	c.upgrade(t, "--patches=/etc/kubernetes/sa-controller-manager-patches")
	for _, manifests := range []map[string]string{before, taken} { // kubeadm writes them again
		manifests["kube-apiserver"] = strings.Replace(manifests["kube-apiserver"], harmlessEdit, "", 1)
	}
	testutil.Check(t, "after an upgrade with our patches", taken, c.controlPlaneManifests(t))
	within(t, "handback", c.underTraffic(t, "during-handback", func() { t.Log(c.product(t, "kubeadm", "handback")) }), 1, usual)
	c.checkHandedBack(t, before, "handed-back")
	c.withoutDeadUs(t)
}

// healsWithoutUs rolls CoreDNS and a Deployment of an account default out while our process is away: kube-apiserver
// completes their Pods, and accepts the tokens with which they run.
func (c *cluster) healsWithoutUs(t *testing.T) {
	namespace := c.namespace(t, "heals")
	c.awaitDefaultAccount(t, namespace)
	asker := c.asker(t)
	asker.Spec.RestartPolicy = corev1.RestartPolicyAlways
	asker.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "STAY", Value: "1"}} // if the token is accepted
	labels := map[string]string{"app": "asker"}
	c.without(t, func() {
		c.awaitRefusal(t)
		_, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "asker"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels}, MinReadySeconds: 3,
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: asker.Spec},
			},
		}, metav1.CreateOptions{})
		testutil.Must(t, err)
		c.kubectl(t, "-n", metav1.NamespaceSystem, "rollout", "restart", "deployment/coredns")
		// CoreDNS is ready once it has listed Services by its token.
		c.kubectl(t, "-n", metav1.NamespaceSystem, "rollout", "status", "deployment/coredns", "--timeout=3m")
		c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/asker", "--timeout=3m")
		answers := c.answers(t, namespace, c.asker(t))
		c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
	})
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
}

// undeletable deletes all of ours that is in the API, which no Pod passes by.
func (c *cluster) undeletable(t *testing.T, namespace string) {
	t.Helper()
	c.underTraffic(t, namespace, func() {
		t.Log(c.onNode(t, "sh", "-c", deleteAll))
		await.Sleep(t.Context(), 2*time.Second) // for Pods to be created
	})
}

// killAPIServer returns once the kubelet has started kube-apiserver again.
func (c *cluster) killAPIServer(t *testing.T) {
	t.Helper()
	name := "kube-apiserver-" + c.controlPlane()
	pod := testutil.Get(c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{}))(t)
	before := restarts(pod)
	c.onNode(t, "pkill", "-x", "kube-apiserver")
	poll(t, "that kube-apiserver is back", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (restarts(pod) == before || !isReady(pod)) {
			err = errors.New("it has not been started again yet")
		}
		return err
	})
}

// upgrade ignores CreateJob as docs/takeover.md says for a process that is dead, and otherwise because
// the Job wants a "pause -v" that ends, which not every node image has. The other checks that it
// ignores fail on kind nodes.
func (c *cluster) upgrade(t *testing.T, flags ...string) {
	t.Helper()
	version := testutil.Get(c.client.Discovery().ServerVersion())(t)
	out := c.onNode(t, append([]string{"kubeadm", "upgrade", "apply", version.GitVersion, "--yes", "--force",
		"--ignore-preflight-errors=CreateJob,SystemVerification,CoreDNSUnsupportedPlugins,CoreDNSMigration"}, flags...)...)
	testutil.Require(t, strings.Contains(out, "SUCCESS! A control plane node of your cluster was upgraded"), "kubeadm upgrade apply:\n%s",
		out)
}

// TestSignerTakeover takes over what signs and nothing else, rotates, and hands back, while Pods are created. Of the two
// manifests only that of kube-apiserver changes, and comes back byte for byte.
func TestSignerTakeover(t *testing.T) {
	const pki, ring = "/etc/kubernetes/pki", "--service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json"
	c := create(t, stock(t, 1))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	usual := c.outageOfAnEdit(t)
	before := c.controlPlaneManifests(t)
	held := map[string]string{} // tokens, by what was done before
	first := c.signs(t, held, "nothing")

	admin := "--kubeconfig=/etc/kubernetes/admin.conf"
	c.product(t, "keys", "init", ring, admin, "--from-private-key-file="+pki+"/sa.key", "--service-account-key-file="+pki+"/sa.pub")
	took := c.underTraffic(t, "during-takeover", func() { t.Log(c.product(t, "kubeadm", "takeover", "--only=signer")) })
	within(t, "takeover", took, 1, usual)
	testutil.Check(t, "kube-controller-manager", before["kube-controller-manager"], c.readManifest(t, "kube-controller-manager"))
	t.Log(c.product(t, "kubeadm", "status"))
	key := c.signs(t, held, "the takeover")
	testutil.Expect(t, key == first, "key %s signs after the takeover, want %s", key, first)
	former := []string{first}
	if took := c.underTraffic(t, "during-rotations", func() {
		for _, name := range []string{"a rotation", "two rotations"} {
			c.product(t, "keys", "rotate", ring, admin, "--wait", "--cache-age=1s")
			former = append(former, c.signs(t, held, name, former...))
		}
	}); len(took) > 0 {
		t.Errorf("kube-apiserver was away for %v during rotations", took)
	}
	const namespace = "signed"
	c.namespace(t, namespace)
	c.awaitDefaultAccount(t, namespace)
	answers := c.answers(t, namespace, c.asker(t, on(c.name+"-worker")))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
	c.product(t, "keys", "export", ring, "--kubeadm="+pki)
	within(t, "handback", c.underTraffic(t, "during-handback", func() { t.Log(c.product(t, "kubeadm", "handback")) }), 1, usual)
	c.signs(t, held, "the handback", former[:2]...)
	c.checkHandedBack(t, before, "handed-back")
}

// signs returns the ID of the key that signs, once it is none of the former ones. All tokens since then have to be accepted.
func (c *cluster) signs(t *testing.T, held map[string]string, since string, former ...string) (key string) {
	t.Helper()
	poll(t, "a token of another key after "+since, func(ctx context.Context) error {
		answer, err := c.client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default", &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
		token := testutil.Get(tokens.Inspect(answer.Status.Token))(t)
		for _, one := range former {
			if token.KeyID == one {
				return fmt.Errorf("key %s signs", one)
			}
		}
		key, held[since] = token.KeyID, answer.Status.Token
		return nil
	})
	for when, token := range held {
		review := testutil.Get(c.client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token},
		}, metav1.CreateOptions{}))(t)
		testutil.Expect(t, review.Status.Authenticated, "after %s the token from after %s is refused: %s", since, when, review.Status.Error)
	}
	return key
}
