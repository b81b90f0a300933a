// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/must"
)

// StartAPIServer starts kube-apiserver and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.apiServer != nil && c.apiServer.running() {
		return errors.New("start kube-apiserver: it is running")
	}
	path, err := ControlPlaneBinary("kube-apiserver")
	if err != nil {
		return err
	}
	if c.apiServer, err = c.host.start("kube-apiserver", path, c.dir, c.apiServerArgs(), nil, c.options.Log); err != nil {
		return err
	}
	return c.AwaitAPIServer(ctx)
}

// AwaitAPIServer returns when kube-apiserver says that it is ready, and with an
// error when it or etcd ends instead.
func (c *Cluster) AwaitAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	probe, err := newProbe(c.admin)
	if err != nil {
		return err
	}
	if err := probe.awaitOK(ctx, "/readyz", c.apiServer, c.etcd); err != nil {
		return err
	}
	return must.Catch(func() { c.awaitOwnObjects(ctx) })
}

// KillAPIServer ends kube-apiserver at once.
func (c *Cluster) KillAPIServer() error {
	_, err := c.apiServer.Kill()
	return err
}

// APIServerMetrics reads kube-apiserver's metrics.
func (c *Cluster) APIServerMetrics(ctx context.Context) (Metrics, error) {
	probe, err := newProbe(c.admin)
	if err != nil {
		return nil, err
	}
	return probe.Metrics(ctx)
}

// apiServerArgs renders the default flags with the caller's laid over them, in
// the order of their names.
func (c *Cluster) apiServerArgs() []string {
	flags := c.defaultAPIServerFlags()
	if c.options.ExternalSigner {
		// It does not start if the key flags are there, be they empty.
		delete(flags, "service-account-signing-key-file")
		delete(flags, "service-account-key-file")
		flags["service-account-signing-endpoint"] = []string{c.SignerSocket()}
	}
	maps.Copy(flags, c.options.APIServerFlags)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		for _, value := range flags[name] {
			args = append(args, "--"+name+"="+value)
		}
	}
	return args
}

func (c *Cluster) defaultAPIServerFlags() map[string][]string {
	return map[string][]string{
		"etcd-servers":      {c.etcdURL()},
		"bind-address":      {loopback},
		"advertise-address": {loopback},
		"secure-port":       {strconv.Itoa(c.apiServerPort)},
		// An Endpoints object may not hold a loopback address, so kube-apiserver must
		// not try to announce itself.
		"endpoint-reconciler-type": {"none"},
		"service-cluster-ip-range": {"10.0.0.0/24"},
		"allow-privileged":         {"true"},
		"profiling":                {"false"},

		"cert-dir":             {c.dir},
		"tls-cert-file":        {c.path("kube-apiserver.crt")},
		"tls-private-key-file": {c.path("kube-apiserver.key")},
		"client-ca-file":       {c.path("client-ca.crt")},
		"authorization-mode":   {"RBAC"},
		// As kubeadm has them.
		"requestheader-client-ca-file":       {c.ProxyCAFile()},
		"requestheader-allowed-names":        {"front-proxy-client"},
		"requestheader-username-headers":     {"X-Remote-User"},
		"requestheader-group-headers":        {"X-Remote-Group"},
		"requestheader-extra-headers-prefix": {"X-Remote-Extra-"},

		// The product replaces it.
		"disable-admission-plugins": {"ServiceAccount"},

		"service-account-issuer":           {c.Issuer()},
		"service-account-signing-key-file": {c.SigningKeyFile()},
		"service-account-key-file":         append([]string{c.SigningKeyFile()}, c.options.ExtraKeyFiles...),
	}
}

// StartEtcd starts etcd on the cluster's data. It does not wait: kube-apiserver
// does.
func (c *Cluster) StartEtcd() error {
	if c.etcd != nil && c.etcd.running() {
		return errors.New("start etcd: it is running")
	}
	path, err := ControlPlaneBinary("etcd")
	if err != nil {
		return err
	}
	clientURL, peerURL := c.etcdURL(), "http://"+address(c.etcdPeerPort)
	c.etcd, err = (*host)(nil).start("etcd", path, c.dir, []string{
		"--name=devcluster",
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=devcluster=" + peerURL,
		// A killed process loses nothing by this, only a machine without power does.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, nil, c.options.Log)
	return err
}

// KillEtcd ends etcd at once, as a power cut would. Its data stays.
func (c *Cluster) KillEtcd() error {
	_, err := c.etcd.Kill()
	return err
}

func (c *Cluster) etcdURL() string { return "http://" + address(c.etcdPort) }

// PutIntoEtcd writes a key of etcd without kube-apiserver, and deletes it if value is "".
func (c *Cluster) PutIntoEtcd(ctx context.Context, key, value string) error {
	call, body := "put", map[string][]byte{"key": []byte(key), "value": []byte(value)}
	if value == "" {
		call = "deleterange"
		delete(body, "value")
	}
	return must.Catch(func() {
		text := must.Get(json.Marshal(body))
		answer, err := http.DefaultClient.Do(must.Get(
			http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL()+"/v3/kv/"+call, bytes.NewReader(text))))
		must.Do(err)
		defer answer.Body.Close()
		defer http.DefaultClient.CloseIdleConnections()
		must.Not(answer.StatusCode != http.StatusOK, "%s %s into etcd: %s", call, key, answer.Status)
	})
}

// RewriteRootCA has a policy put another root CA into the ConfigMaps of a namespace at each update, and a stamp, so that no two are
// alike. Both objects have the name of the namespace.
func RewriteRootCA(ctx context.Context, client kubernetes.Interface, namespace string) error {
	policies := client.AdmissionregistrationV1()
	name := metav1.ObjectMeta{Name: namespace}
	_, err1 := policies.MutatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admissionregistrationv1.Ignore), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"configmaps"}},
				},
			}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "namespace", Expression: "object.metadata.namespace == '" + namespace + "'",
			}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: "Object{metadata: " +
					"Object.metadata{annotations: {'example.com/stamp': oldObject.metadata.resourceVersion}}, data: {'ca.crt': 'of " +
					"another party'}}"},
			}},
		},
	}, metav1.CreateOptions{})
	_, err2 := policies.MutatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name.Name},
	}, metav1.CreateOptions{})
	return errors.Join(err1, err2)
}
