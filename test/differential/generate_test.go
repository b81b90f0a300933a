// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"context"
	"math/rand"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	corefuzzer "k8s.io/kubernetes/pkg/apis/core/fuzzer"
	upstream "k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"sa-controller-manager/admission/serviceaccount"
)

const (
	namespace = "shop"
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// choices turns the fuzzer's bytes into decisions, so that it can change one of them at
// a time. When they are used up, every choice is the first.
type choices struct{ data []byte }

func (c *choices) below(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	chosen := int(c.data[0]) % n
	c.data = c.data[1:]
	return chosen
}

func (c *choices) yes() bool { return c.below(2) == 1 }

func (c *choices) oneOf(words ...string) string { return words[c.below(len(words))] }

func (c *choices) secret() string { return c.oneOf("mine", "theirs", "pull", "") }

func (c *choices) wish() *bool {
	switch c.below(3) {
	case 1:
		return new(false)
	case 2:
		return new(true)
	default:
		return nil
	}
}

func (c *choices) world() *world {
	w := &world{config: serviceaccount.DefaultConfig()}
	w.config.LimitSecretReferences = c.yes()
	w.config.MountServiceAccountToken = !c.yes()
	for _, name := range []string{"default", "web", "robot"} {
		account := c.account(name)
		w.serving = append(w.serving, account)
		if !c.yes() {
			w.cached = append(w.cached, account)
		}
	}
	return w
}

func (c *choices) account(name string) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{
		ObjectMeta:                   metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"},
		AutomountServiceAccountToken: c.wish(),
	}
	if value := c.oneOf("", "true", "1", "T", "false", "yes", "TRUE "); value != "" {
		account.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": value}
	}
	for range c.below(3) {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: c.secret()})
	}
	for range c.below(3) {
		account.ImagePullSecrets = append(account.ImagePullSecrets, corev1.LocalObjectReference{Name: c.secret()})
	}
	return account
}

// pod is a Pod of few words, put on top of one of Kubernetes' own random Pods half of
// the time, which has all fields that there are.
func (c *choices) pod() *corev1.Pod {
	pod := &corev1.Pod{}
	if c.yes() {
		pod = randomPod(int64(c.below(256))<<8 | int64(c.below(256)))
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Name, pod.GenerateName, pod.Namespace = c.oneOf("", "web"), c.oneOf("", "web-"), c.oneOf(namespace, "")
	pod.Annotations = nil
	if c.below(4) == 1 {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: c.oneOf("", "hash")}
	}
	spec := &pod.Spec
	spec.ServiceAccountName = c.oneOf("", "", "default", "web", "robot", "nobody")
	spec.DeprecatedServiceAccount = c.oneOf("", "", spec.ServiceAccountName, "web", "nobody")
	spec.AutomountServiceAccountToken = c.wish()
	if c.yes() {
		c.contents(spec)
	}
	return pod
}

func (c *choices) contents(spec *corev1.PodSpec) {
	spec.Volumes, spec.ImagePullSecrets = nil, nil
	spec.InitContainers, spec.Containers, spec.EphemeralContainers = nil, nil, nil
	for range c.below(4) {
		spec.Volumes = append(spec.Volumes, c.volume())
	}
	for range c.below(3) {
		spec.InitContainers = append(spec.InitContainers, c.container("init"))
	}
	for range c.below(4) {
		spec.Containers = append(spec.Containers, c.container("app"))
	}
	for range c.below(2) {
		ephemeral := corev1.EphemeralContainerCommon(c.container("debug"))
		spec.EphemeralContainers = append(spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: ephemeral})
	}
	for range c.below(3) {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: c.secret()})
	}
}

func (c *choices) container(name string) corev1.Container {
	container := corev1.Container{Name: name}
	for range c.below(3) {
		env := corev1.EnvVar{Name: c.oneOf("A", "B")}
		switch c.below(3) {
		case 0:
			env.Value = "plain"
		case 1:
			selector := &corev1.SecretKeySelector{Key: "k", LocalObjectReference: corev1.LocalObjectReference{Name: c.secret()}}
			env.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: selector}
		case 2:
			env.ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
		}
		container.Env = append(container.Env, env)
	}
	for range c.below(3) {
		source := corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{}}
		if c.yes() {
			source = corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: c.secret()},
			}}
		}
		container.EnvFrom = append(container.EnvFrom, source)
	}
	for range c.below(3) {
		mount := corev1.VolumeMount{Name: c.volumeName(), MountPath: c.oneOf("/data", tokenPath, tokenPath+"/", tokenPath+"/x")}
		container.VolumeMounts = append(container.VolumeMounts, mount)
	}
	return container
}

func (c *choices) volumeName() string {
	return c.oneOf("own", "kube-api-access-own", "kube-api-access", "kube-api-access-", "other")
}

// volume has one source, as every valid one has.
func (c *choices) volume() corev1.Volume {
	v := corev1.Volume{Name: c.volumeName()}
	ref := &corev1.LocalObjectReference{Name: c.secret()}
	switch c.below(15) {
	case 0:
		v.Secret = &corev1.SecretVolumeSource{SecretName: ref.Name}
	case 1:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{}}, {Secret: &corev1.SecretProjection{LocalObjectReference: *ref}},
		}}
	case 2, 14:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		}}
	case 3:
		v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: ref.Name}
	case 4:
		v.CephFS = &corev1.CephFSVolumeSource{SecretRef: ref}
	case 5:
		v.Cinder = &corev1.CinderVolumeSource{SecretRef: ref}
	case 6:
		v.FlexVolume = &corev1.FlexVolumeSource{SecretRef: ref}
	case 7:
		v.ISCSI = &corev1.ISCSIVolumeSource{SecretRef: ref}
	case 8:
		v.RBD = &corev1.RBDVolumeSource{SecretRef: ref}
	case 9:
		v.ScaleIO = &corev1.ScaleIOVolumeSource{SecretRef: ref}
	case 10:
		v.StorageOS = &corev1.StorageOSVolumeSource{SecretRef: ref}
	case 11:
		v.CSI = &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: ref}
	case 12:
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	case 13:
	}
	return v
}

// randomPod is a Pod that Kubernetes' own round-trip tests could use.
func randomPod(seed int64) *corev1.Pod {
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, corefuzzer.Funcs)
	internal, pod := &core.Pod{}, &corev1.Pod{}
	fuzzer.FuzzerFor(funcs, rand.NewSource(seed), legacyscheme.Codecs).Fill(internal)
	if err := legacyscheme.Scheme.Convert(internal, pod, nil); err != nil {
		panic(err) // every internal Pod has a v1 form
	}
	return pod
}

const suffix = "fffff"

// world is what both plugins see. Accounts are in the cache, or only in the apiserver.
type world struct {
	config          serviceaccount.Config
	cached, serving []*corev1.ServiceAccount
}

// plugins builds both plugins on the world.
func (w *world) plugins() (*upstream.Plugin, *serviceaccount.Plugin) {
	factory := informers.NewSharedInformerFactory(apiserver{world: w}, 0)
	accounts := factory.Core().V1().ServiceAccounts()
	for _, account := range w.cached {
		_ = accounts.Informer().GetIndexer().Add(account) // fails only without metadata
	}
	theirs := upstream.NewServiceAccount()
	theirs.LimitSecretReferences = w.config.LimitSecretReferences
	theirs.MountServiceAccountToken = w.config.MountServiceAccountToken
	theirs.SetExternalKubeClientSet(apiserver{world: w})
	theirs.SetExternalKubeInformerFactory(factory)
	ours := serviceaccount.New(w.config, serviceaccount.Dependencies{
		Accounts: accounts.Lister(),
		Client:   coreV1{world: w},
		Waiters:  serviceaccount.NewWaiters(1, nil),
		Suffix:   func() string { return suffix },
	})
	return theirs, ours
}

// apiserver, coreV1 and serviceAccounts are a clientset that can get accounts.
type apiserver struct {
	kubernetes.Interface

	world *world
}

type coreV1 struct {
	corev1client.CoreV1Interface

	world *world
}

type serviceAccounts struct {
	corev1client.ServiceAccountInterface

	world     *world
	namespace string
}

func (a apiserver) CoreV1() corev1client.CoreV1Interface { return coreV1{world: a.world} }

func (c coreV1) ServiceAccounts(namespace string) corev1client.ServiceAccountInterface {
	return serviceAccounts{world: c.world, namespace: namespace}
}

func (s serviceAccounts) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ServiceAccount, error) {
	for _, account := range s.world.serving {
		if account.Namespace == s.namespace && account.Name == name {
			return account, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
}
