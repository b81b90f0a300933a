// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/trial"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/traffic"
)

// limits changes the account default, and returns once watches have it: the plugins decide by their caches.
func (c *cluster) limits(t *testing.T, namespace, patch string) {
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	changes, err := accounts.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=default"})
	if err != nil {
		t.Error(err)
		return
	}
	defer changes.Stop()
	changed, err := accounts.Patch(t.Context(), "default", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	for event := range changes.ResultChan() {
		if account, ok := event.Object.(*corev1.ServiceAccount); !ok || account.ResourceVersion == changed.ResourceVersion {
			return
		}
	}
}

// completes applies the policy that completes Pods, as an administrator does, and returns once it acts. It goes
// with the test.
func (c *cluster) completes(t *testing.T) {
	t.Helper()
	c.skipsOlder(t)
	objects := testutil.Get(manifests.Completion())(t)
	c.apply(t, objects)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), timeout)
		defer cancel()
		testutil.Must(t, podpolicy.Completion.Delete(ctx, c.client))
	})
	c.awaitCompletion(t)
}

func (c *cluster) skipsOlder(t *testing.T) {
	t.Helper()
	minor := testutil.Get(devcluster.APIServerMinor(t.Context()))(t)
	if minor < 36 {
		t.Skipf("kube-apiserver v1.%d has no MutatingAdmissionPolicy", minor)
	}
}

func (c *cluster) apply(t *testing.T, objects []manifests.Object) {
	t.Helper()
	for _, object := range objects {
		err := c.client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).Param("fieldManager", "test").
			Param("force", "true").Body(object.YAML).Do(t.Context()).Error()
		testutil.Must(t, err)
	}
}

// awaitCompletion returns once the policy completes Pods, which the webhook does as well: its metric tells.
func (c *cluster) awaitCompletion(t *testing.T) {
	t.Helper()
	namespace := c.namespace(t)
	c.defaultAccount(t, namespace)
	other := c.evaluations(t)
	poll(t, "await the policy that completes Pods", func(ctx context.Context) error {
		if _, err := c.client.CoreV1().Pods(namespace).Create(ctx, newPod(), metav1.CreateOptions{}); err != nil {
			return err
		}
		if c.evaluations(t) == other {
			return errors.New("it has completed none yet")
		}
		return nil
	})
}

// evaluations counts how often kube-apiserver has evaluated the policy without an error.
func (c *cluster) evaluations(t *testing.T) float64 {
	t.Helper()
	return c.checks(t, "no_error")
}

// checks counts the evaluations of the policy that ended so.
func (c *cluster) checks(t *testing.T, errorType string) float64 {
	t.Helper()
	metrics := testutil.Get(c.APIServerMetrics(t.Context()))(t)
	return metrics.Sum("apiserver_mutating_admission_policy_check_total",
		devcluster.Labels{"policy": podpolicy.CompletionName, "error_type": errorType})
}

// defaultAccount waits for the account of a namespace, or makes it where nobody does.
func (c *cluster) defaultAccount(t *testing.T, namespace string, changes ...func(*corev1.ServiceAccount)) {
	t.Helper()
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	poll(t, "make the account", func(ctx context.Context) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		account, err := accounts.Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, change := range changes {
			change(account)
		}
		_, err = accounts.Update(ctx, account, metav1.UpdateOptions{})
		return err
	})
}

// odd is the content of a Pod as a client may send it: parts of metadata and spec in JSON.
type odd struct{ metadata, spec string }

const oneContainer = `"containers":[{"name":"a","image":"i"}]`

// oddPods have what the plugin decides on in every form that a client may give it.
func oddPods() map[string]odd {
	const (
		mounted   = `{"name":"a","image":"i","volumeMounts":[{"name":"own","mountPath":"` + tokenPath + `"}]}`
		own       = `"volumes":[{"name":"own","emptyDir":{}}]`
		secret    = oneContainer + `,"volumes":[{"name":"s","secret":{"secretName":"s"}}]`
		mark      = "sa-controller-manager:default"
		projected = `{"name":"kube-api-access-abcde","projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}}`
	)
	pods := map[string]odd{
		"plain":                   {spec: oneContainer},
		"names the account":       {spec: oneContainer + `,"serviceAccountName":"default"`},
		"deprecated name":         {spec: oneContainer + `,"serviceAccount":"default"`},
		"both names":              {spec: oneContainer + `,"serviceAccount":"other","serviceAccountName":"default"`},
		"both names, other":       {spec: oneContainer + `,"serviceAccount":"default","serviceAccountName":"other"`},
		"empty names":             {spec: oneContainer + `,"serviceAccount":"","serviceAccountName":""`},
		"null name":               {spec: oneContainer + `,"serviceAccountName":null`},
		"no such account":         {spec: oneContainer + `,"serviceAccountName":"nobody"`},
		"impossible account":      {spec: oneContainer + `,"serviceAccountName":"a_b"`},
		"automount off":           {spec: oneContainer + `,"automountServiceAccountToken":false`},
		"automount on":            {spec: oneContainer + `,"automountServiceAccountToken":true`},
		"automount null":          {spec: oneContainer + `,"automountServiceAccountToken":null`},
		"two containers":          {spec: `"containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}]`},
		"init containers":         {spec: oneContainer + `,"initContainers":[{"name":"i","image":"i"},{"name":"j","image":"i"}]`},
		"sidecar":                 {spec: oneContainer + `,"initContainers":[{"name":"i","image":"i","restartPolicy":"Always"}]`},
		"no containers":           {spec: `"containers":[]`},
		"null containers":         {spec: `"containers":null`},
		"no spec":                 {spec: ""},
		"own mount":               {spec: `"containers":[` + mounted + `],` + own},
		"own mount in one of two": {spec: `"containers":[` + mounted + `,{"name":"b","image":"i"}],` + own},
		"own mount in the init container": {
			spec: oneContainer + `,"initContainers":[` + strings.Replace(mounted, `"a"`, `"i"`, 1) + `],` + own,
		},
		"mount with a slash": {spec: `"containers":[` + strings.Replace(mounted, tokenPath, tokenPath+"/", 1) + `],` + own},
		"mount below":        {spec: `"containers":[` + strings.Replace(mounted, tokenPath, tokenPath+"/x", 1) + `],` + own},
		"mount with a subpath": {
			spec: `"containers":[` + strings.Replace(mounted, `"mountPath"`, `"subPath":"x","mountPath"`, 1) + `],` + own,
		},
		"other mounts": {
			spec: `"containers":[{"name":"a","image":"i","volumeMounts":[{"name":"own","mountPath":"/x"}]},` +
				`{"name":"b","image":"i","volumeMounts":[]}],` + own,
		},
		"empty volumes":    {spec: oneContainer + `,"volumes":[]`},
		"null volumes":     {spec: oneContainer + `,"volumes":null`},
		"own token volume": {spec: oneContainer + `,"volumes":[` + projected + `]`},
		"volume with the prefix": {
			spec: oneContainer + `,"volumes":[{"name":"kube-api-access-","emptyDir":{}},{"name":"kube-api-access-x","emptyDir":{}}]`,
		},
		"volume of our name":     {spec: oneContainer + `,"volumes":[{"name":"kube-api-access-sacm0","emptyDir":{}}]`},
		"volume without a name":  {spec: oneContainer + `,"volumes":[{"emptyDir":{}}]`},
		"mount without a volume": {spec: `"containers":[` + mounted + `]`},
		"mount without a path":   {spec: `"containers":[{"name":"a","image":"i","volumeMounts":[{"name":"own"}]}],` + own},
		"pull secrets":           {spec: oneContainer + `,"imagePullSecrets":[{"name":"mine"}]`},
		"empty pull secrets":     {spec: oneContainer + `,"imagePullSecrets":[]`},
		"nameless pull secret":   {spec: oneContainer + `,"imagePullSecrets":[{}]`},
		"secret in a variable": {
			spec: `"containers":[{"name":"a","image":"i","env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]`,
		},
		"secrets from":        {spec: `"containers":[{"name":"a","image":"i","envFrom":[{"secretRef":{"name":"s"}}]}]`},
		"secret volume":       {spec: secret},
		"listed secret":       {spec: oneContainer + `,"volumes":[{"name":"s","secret":{"secretName":"listed"}}]`},
		"projected secret":    {spec: oneContainer + `,"volumes":[{"name":"s","projected":{"sources":[{"secret":{"name":"s"}}]}}]`},
		"csi secret":          {spec: oneContainer + `,"volumes":[{"name":"s","csi":{"driver":"d","nodePublishSecretRef":{"name":"s"}}}]`},
		"ephemeral container": {spec: oneContainer + `,"ephemeralContainers":[{"name":"e","image":"i"}]`},
		"mirror pod":          {`"annotations":{"kubernetes.io/config.mirror":"h"}`, oneContainer + `,"nodeName":"n"`},
		"mirror pod, account": {
			`"annotations":{"kubernetes.io/config.mirror":""}`, oneContainer + `,"nodeName":"n","serviceAccountName":"default"`,
		},
		"mirror pod, secret":     {`"annotations":{"kubernetes.io/config.mirror":"h"}`, secret + `,"nodeName":"n"`},
		"mirror in another case": {`"annotations":{"kubernetes.io/Config.mirror":"h"}`, oneContainer},
		"probe annotation":       {`"annotations":{"sa-controller-manager/probe":""}`, oneContainer},
		"forged mark":            {`"uid":"` + mark + `","selfLink":"` + mark + `"`, secret},
		"forged mark, case":      {`"UID":"` + mark + `"`, secret},
		"forged mark, twice":     {`"uid":"","uid":"` + mark + `","selfLink":"","selfLink":"` + mark + `"`, secret},
		"forged mark, other": {
			`"uid":"sa-controller-manager:other","selfLink":"sa-controller-manager:other"`, oneContainer + `,"serviceAccountName":"other"`,
		},
		fixedName: {
			spec: `"containers":[{"name":"a","image":"i","volumeMounts":[{"name":"kube-api-access-sacm0","mountPath":"/x"}]}]`,
		},
		"deletion":                {`"deletionTimestamp":"2020-01-01T00:00:00Z"`, oneContainer},
		"finalizer":               {`"finalizers":["example.com/f"]`, oneContainer},
		"host network":            {spec: oneContainer + `,"hostNetwork":true`},
		"windows":                 {spec: oneContainer + `,"os":{"name":"windows"}`},
		"scheduling gate":         {spec: oneContainer + `,"schedulingGates":[{"name":"example.com/g"}]`},
		"unknown field":           {spec: oneContainer + `,"colour":"red"`},
		"a hundred containers":    {spec: `"containers":[` + many(100) + `]`},
		"a hundred and one":       {spec: `"containers":[` + many(101) + `]`},
		"a hundred init and more": {spec: oneContainer + `,"initContainers":[` + many(100) + `]`},
	}
	maps.Copy(pods, refusedPods())
	return pods
}

func many(containers int) string {
	var all []string
	for i := range containers {
		all = append(all, fmt.Sprintf(`{"name":"c%d","image":"i"}`, i))
	}
	return strings.Join(all, ",")
}

// ways are how a client may create a Pod.
var ways = map[string]func(c *cluster, namespace, name string, pod odd) *rest.Request{
	"POST": func(c *cluster, namespace, _ string, pod odd) *rest.Request {
		return c.post(namespace).SetHeader("Content-Type", "application/json").Body(pod.json("posted"))
	},
	"dry run": func(c *cluster, namespace, _ string, pod odd) *rest.Request {
		return c.post(namespace).Param("dryRun", "All").SetHeader("Content-Type", "application/json").Body(pod.json("dry-run"))
	},
	"apply": func(c *cluster, namespace, name string, pod odd) *rest.Request {
		return c.client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).Namespace(namespace).Resource("pods").Name(name).
			Param("fieldManager", "test").Body(pod.json(name))
	},
	"YAML": func(c *cluster, namespace, _ string, pod odd) *rest.Request {
		body, err := yaml.JSONToYAML(pod.json("yaml"))
		if err != nil { // a field twice
			body = pod.json("yaml")
		}
		return c.post(namespace).SetHeader("Content-Type", "application/yaml").Body(body)
	},
}

func (c *cluster) post(namespace string) *rest.Request {
	return c.client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods")
}

func (o odd) json(name string) []byte {
	metadata := `"name":"` + name + `","generateName":"pod-"`
	if o.metadata != "" {
		metadata += "," + o.metadata
	}
	return []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{` + metadata + `},"spec":{` + o.spec + `}}`)
}

// outcome is what becomes of a Pod, without what differs by chance.
type outcome struct {
	Code    int
	Message string
	Pod     map[string]any
}

var (
	volumeSuffix = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}\b`)
	requestTime  = regexp.MustCompile(`"time":"[^"]*"`)
)

// create has a Pod created in one way, deletes it, and returns what became of it.
func (c *cluster) outcome(t *testing.T, way, namespace string, pod odd) (o outcome) {
	t.Helper()
	result := ways[way](c, namespace, "apply", pod).MaxRetries(0).Do(t.Context()).StatusCode(&o.Code)
	if err := result.Error(); err != nil {
		var status apierrors.APIStatus
		testutil.Require(t, errors.As(err, &status), "%v", err)
		_, text, found := strings.Cut(status.Status().Message, "denied the request: ")
		if !found {
			text = status.Status().Message
		}
		o.Message = volumeSuffix.ReplaceAllString(text, "VOLUME")
		return o
	}
	raw := testutil.Get(result.Raw())(t)
	raw = requestTime.ReplaceAll(volumeSuffix.ReplaceAll(raw, []byte("VOLUME")), []byte(`"time":""`))
	testutil.Must(t, json.Unmarshal(raw, &o.Pod))
	delete(o.Pod, "status") // it has times
	metadata := o.Pod["metadata"].(map[string]any)
	name := metadata["name"].(string)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
		delete(metadata, field)
	}
	if way != "dry run" {
		err := c.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
		if metadata["finalizers"] != nil && err == nil {
			_, err = c.client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		testutil.Must(t, err)
	}
	return o
}

// inTree starts a control plane with kube-apiserver's own plugin.
func inTree(t *testing.T) *cluster {
	t.Helper()
	return startCluster(t, map[string][]string{"disable-admission-plugins": nil})
}

// TestAsInTree creates each odd Pod, for each kind of its account, in each way, with the webhook alone and with the
// policy, and holds what became of it to what becomes of it with kube-apiserver's own plugin.
func TestAsInTree(t *testing.T) {
	t.Parallel()
	own, other := ownCluster(t), inTree(t)
	own.skipsOlder(t)
	m := own.manage(t)
	m.faulty = true
	annotated := func(value string) func(*corev1.ServiceAccount) {
		return func(account *corev1.ServiceAccount) {
			metav1.SetMetaDataAnnotation(&account.ObjectMeta, "kubernetes.io/enforce-mountable-secrets", value)
			account.Secrets = []corev1.ObjectReference{{Name: "listed"}}
		}
	}
	accounts := map[string]func(*corev1.ServiceAccount){
		"plain": func(*corev1.ServiceAccount) {},
		"pulls": func(account *corev1.ServiceAccount) {
			account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}, {}, {Name: "pull"}}
		},
		"opted-out": func(account *corev1.ServiceAccount) { account.AutomountServiceAccountToken = new(false) },
		"limited":   annotated("true"),
	}
	// What strconv.ParseBool takes, and what it does not.
	for i, value := range []string{"1", "t", "T", "TRUE", "True", "0", "f", "F", "FALSE", "false", "False", "yes", "", " true", "tRUE"} {
		accounts[fmt.Sprintf("annotated-%d", i)] = annotated(value)
	}
	for name, change := range accounts {
		for _, c := range []*cluster{own, other} {
			_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
				metav1.CreateOptions{})
			testutil.Must(t, err)
			c.defaultAccount(t, name, change)
			c.createAccount(t, name, "other")
		}
	}
	differ := func(t *testing.T, policy bool) {
		for _, namespace := range slices.Sorted(maps.Keys(accounts)) {
			t.Run(namespace, func(t *testing.T) {
				for name, pod := range oddPods() {
					if strings.HasPrefix(namespace, "annotated-") && !strings.Contains(name, "secret") && !strings.Contains(name, "mark") {
						continue // the value decides on Secrets alone
					}
					for way := range ways {
						if way != "POST" && namespace != "plain" && namespace != "limited" {
							continue
						}
						got, want := own.outcome(t, way, namespace, pod), other.outcome(t, way, namespace, pod)
						if diff := cmp.Diff(want, got); diff != "" && !(policy && name == fixedName) && name != refusedByTheAPI {
							t.Errorf("%s by %s (-in-tree +ours):\n%s", name, way, diff)
						}
					}
				}
			})
		}
	}
	t.Run("webhook", func(t *testing.T) { differ(t, false) })
	own.completes(t)
	before, calls := own.evaluations(t), m.metric(t, "sacm_webhook_requests_total", nil)
	t.Run("policy", func(t *testing.T) { differ(t, true) })
	if failed := own.checks(t, "invalid_error"); failed > 0 { // the webhook would hide it
		t.Errorf("the policy failed %.0f times", failed)
	}
	t.Logf("the policy was evaluated %.0f times, the webhook called %.0f times", own.evaluations(t)-before,
		m.metric(t, "sacm_webhook_requests_total", nil)-calls)
}

// fixedName is a Pod that mounts a volume of the name that the policy gives its own, and declares none: the one
// difference, which docs/comparison.md names. The plugin's random name leads to 422.
const fixedName = "mount of our name without a volume"

// refusedByTheAPI is a Pod that the API refuses with 422 before the webhook would with 403.
const refusedByTheAPI = "mirror pod, token"

// ownCluster starts a control plane that only one test uses.
func ownCluster(t *testing.T) *cluster {
	t.Helper()
	return startCluster(t, map[string][]string{"enable-aggregator-routing": {"true"}})
}

func startCluster(t *testing.T, flags map[string][]string) *cluster {
	t.Helper()
	started := testutil.Get(devcluster.Start(t.Context(), devcluster.Options{APIServerFlags: flags}))(t)
	c := &cluster{Cluster: started}
	c.connect(t)
	t.Cleanup(func() {
		c.idle()
		testutil.Must(t, c.Stop())
	})
	return c
}

// TestLaterWebhook has a webhook of others change Pods that the policy has completed, and holds what becomes of them
// to what becomes of them with kube-apiserver's own plugin.
func TestLaterWebhook(t *testing.T) {
	t.Parallel()
	own, other := ownCluster(t), inTree(t)
	own.manage(t)
	own.completes(t)
	pod := odd{spec: oneContainer + `,"volumes":[{"name":"s","secret":{"secretName":"s"}}]`}
	const limited = `{"metadata":{"annotations":{"kubernetes.io/enforce-mountable-secrets":"1"}}}`
	for name, tc := range map[string]struct {
		patch  string
		limits bool // the account, meanwhile
		code   int
	}{
		"AddsContainer":     {patch: `[{"op":"add","path":"/spec/containers/-","value":{"name":"sidecar","image":"image"}}]`, code: 201},
		"AddsInitContainer": {patch: `[{"op":"add","path":"/spec/initContainers","value":[{"name":"init","image":"image"}]}]`, code: 201},
		"MakesMirror": {patch: `[{"op":"add","path":"/metadata/annotations","value":{"kubernetes.io/config.mirror":""}},` +
			`{"op":"add","path":"/spec/nodeName","value":"node"}]`, code: 403},
		"ChangesAccount": {
			patch: `[{"op":"add","path":"/spec/serviceAccountName","value":"other"},{"op":"add","path":"/spec/serviceAccount",` +
				`"value":"other"}]`,
			code: 201,
		},
		"ToLimitedAccount": {
			patch: `[{"op":"add","path":"/spec/serviceAccountName","value":"limited"},{"op":"add","path":"/spec/serviceAccount",` +
				`"value":"limited"}]`,
			code: 403,
		},
		"ToNoAccount": {
			patch: `[{"op":"add","path":"/spec/serviceAccountName","value":"nobody"},{"op":"add","path":"/spec/serviceAccount",` +
				`"value":"nobody"}]`,
			code: 403,
		},
		"RemovesMark": {
			patch: `[{"op":"add","path":"/metadata/uid","value":""},{"op":"add","path":"/metadata/selfLink","value":""}]`, code: 201,
		},
		"RemovesVolume": {
			patch: `[{"op":"remove","path":"/spec/volumes/1"},{"op":"remove","path":"/spec/containers/0/volumeMounts"}]`, code: 201,
		},
		"LimitsAccount": {patch: `[]`, limits: true, code: 403},
	} {
		t.Run(name, func(t *testing.T) {
			var outcomes []outcome
			for _, c := range []*cluster{other, own} {
				namespace := strings.ToLower(name)
				_, err := c.client.CoreV1().Namespaces().Create(t.Context(),
					&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
					metav1.CreateOptions{})
				testutil.Must(t, err)
				c.defaultAccount(t, namespace)
				c.createAccount(t, namespace, "other")
				c.createAccount(t, namespace, "limited", func(account *corev1.ServiceAccount) {
					account.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "t"}
				})
				called := 0
				c.hook(t, namespace, func() string {
					called++
					if tc.limits {
						c.limits(t, namespace, limited)
					}
					return tc.patch
				})
				var got outcome
				poll(t, "await that kube-apiserver calls the webhook", func(context.Context) error {
					called = 0
					if tc.limits {
						c.limits(t, namespace, `{"metadata":{"annotations":null}}`)
					}
					if got = c.outcome(t, "POST", namespace, pod); called == 0 {
						return errors.New("it was not called")
					} else if tc.limits && got.Code == http.StatusCreated {
						return errors.New("the informer of kube-apiserver did not have the change in time")
					}
					return nil
				})
				outcomes = append(outcomes, got)
			}
			testutil.Expect(t, outcomes[0].Code == tc.code, "with the plugin of kube-apiserver: %+v, want %d", outcomes[0], tc.code)
			if tc.limits { // in other words
				outcomes[1].Message = outcomes[0].Message
			}
			testutil.Check(t, "in-tree and ours", outcomes[0], outcomes[1])
		})
	}
}

// deadFor is how long TestWithoutUs creates Pods without our process, and before with it: minutes by hand.
func deadFor(t *testing.T) time.Duration {
	t.Helper()
	return testutil.Get(time.ParseDuration(stdcmp.Or(os.Getenv("SACM_DEAD_FOR"), "3s")))(t)
}

// TestWithoutUs kills our process. Pods of the account default of twenty namespaces, and of an account of kube-system,
// are created as before, and also by a kube-apiserver that starts then; those of other accounts are refused, and
// nothing is taken for our answer.
func TestWithoutUs(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) (*cluster, []*manager){
		"url": func(t *testing.T) (*cluster, []*manager) {
			t.Helper()
			c := ownCluster(t)
			return c, []*manager{c.manage(t)}
		},
		"service": func(t *testing.T) (*cluster, []*manager) {
			t.Helper()
			s := newService(t, ownCluster(t))
			for i := range s.replicas {
				s.replace(t, i)
			}
			s.cluster.awaitBound(t)
			return s.cluster, s.replicas[:]
		},
		"files": func(t *testing.T) (*cluster, []*manager) {
			t.Helper()
			c, dir := staticCluster(t, "")
			return c, []*manager{c.manageStatic(t, dir)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, managers := start(t)
			c.completes(t)
			namespaces := []string{metav1.NamespaceSystem}
			for range 20 {
				namespaces = append(namespaces, c.namespace(t))
			}
			for i, namespace := range namespaces {
				pulls := func(account *corev1.ServiceAccount) {
					account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}, {}}[:i%2*2]
				}
				c.defaultAccount(t, namespace, pulls)
				c.createAccount(t, namespace, "named")
			}
			c.createAccount(t, metav1.NamespaceSystem, "pulls", func(account *corev1.ServiceAccount) {
				account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
			})
			c.eight(t, namespaces)
			probe := func(works bool) {
				t.Helper()
				for _, namespace := range namespaces[:2] {
					_, called, err := trial.Pod(t.Context(), c.client, namespace)
					testutil.Expect(t, called == works && registration.Concerns(err) != works,
						"a probe Pod in %s: called %t, %v; want it called: %t",
						namespace, called, err, works)
				}
			}
			probe(true)
			staysRegistered(t, managers)
			for _, m := range managers {
				m.kill(t)
			}
			probe(false)
			next := 0
			load := traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
				next++
				return c.client.CoreV1().Pods(namespaces[next%len(namespaces)]).Create(ctx, newPod(), metav1.CreateOptions{})
			})
			_, err := c.client.CoreV1().Pods(namespaces[1]).Create(t.Context(), newPod(of("named")), metav1.CreateOptions{})
			testutil.Expect(t, registration.Concerns(err), "a Pod of another account: %v, want that the webhook is missed", err)
			complete(t, c.create(t, metav1.NamespaceSystem, newPod(of("named"))), "named")
			complete(t, c.create(t, metav1.NamespaceSystem, newPod(of("pulls"))), "pulls")
			load.Lasts(t, deadFor(t))
			load.Unharmed(t)

			restart := traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
				return c.client.CoreV1().Pods(namespaces[1]).Create(ctx, newPod(), metav1.CreateOptions{})
			})
			testutil.Must(t, errors.Join(c.KillAPIServer(), c.StartAPIServer(t.Context())))
			restart.Lasts(t, time.Second)
			restart.Unharmed(t, func(one traffic.Call) bool {
				unanswered := traffic.Unanswered(one) || apierrors.IsTimeout(one.Err)
				return unanswered && !registration.Concerns(one.Err) && !strings.Contains(one.Err.Error(), "There can be a delay")
			})
		})
	}
}

// staysRegistered watches that one of them says so, by its repeated proofs.
func staysRegistered(t *testing.T, managers []*manager) {
	t.Helper()
	for ended := time.Now().Add(deadFor(t)); time.Now().Before(ended); {
		registered := 0.0
		for _, m := range managers {
			registered += m.metric(t, "sacm_webhook_registration_state", devcluster.Labels{"state": "registered"})
		}
		testutil.Require(t, registered == 1, "%.0f of the managers say registered", registered)
		(*traffic.Traffic)(nil).Lasts(t, 500*time.Millisecond)
	}
}

// eight has a user whom nothing limits create 800 Pods at once.
func (c *cluster) eight(t *testing.T, namespaces []string) {
	t.Helper()
	var all errgroup.Group
	for i := range 800 {
		all.Go(func() error {
			pod, err := c.client.CoreV1().Pods(namespaces[i%len(namespaces)]).Create(t.Context(), newPod(), metav1.CreateOptions{})
			if err == nil {
				return traffic.Complete(pod)
			}
			if !registration.Concerns(err) { // a machine that is too busy for etcd
				t.Logf("one of 800 Pods at once: %v", err)
				return nil
			}
			return err
		})
	}
	testutil.CheckError(t, "one of 800 Pods at once", "", all.Wait())
}

// kill ends the manager without a last word.
func (m *manager) kill(t *testing.T) {
	t.Helper()
	m.stopped = true
	testutil.Get(m.Kill())(t)
}
