// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// refusesUs has kube-apiserver refuse what the manager writes into a namespace.
const refusesUs = `{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: refuses-us}, spec: {
  matchConstraints: {resourceRules: [
    {apiGroups: [""], apiVersions: [v1], resources: [configmaps, serviceaccounts], operations: [CREATE, UPDATE]}]},
  validations: [{expression: "request.userInfo.username != 'system:sa-controller-manager' || object.metadata.namespace != 'shop'"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: refuses-us},
  spec: {policyName: refuses-us, validationActions: [Deny]}}
`

// stockPods are those of a control plane that was never taken over.
const stockPods = `{apiVersion: v1, kind: Pod, metadata: {name: kube-apiserver-cp,
  namespace: kube-system, annotations: {kubernetes.io/config.mirror: x}},
  spec: {nodeName: cp, containers: [{name: c, image: "kube-apiserver:v1.37.2", command: [kube-apiserver]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: kube-controller-manager-cp,
  namespace: kube-system, annotations: {kubernetes.io/config.mirror: x}},
  spec: {nodeName: cp, containers: [{name: c, image: "kube-controller-manager:v1.37.2", command: [kube-controller-manager]}]}}
`

// findings are the codes that each surface has, and what is wrong with how it says that.
type findings struct {
	NotReady                        bool
	Readyz, Doctor, Preflight, Keys []string
	Skipped                         []string // checks of doctor
	Wrong                           []string
}

// surfaces are a control plane in kube-apiserver's hands alone, a manager with a key ring, and those who say what is wrong.
type surfaces struct {
	*testcluster.ControlPlane

	m              *testcluster.Manager
	flags          []string
	dir            string
	ring, accepted string // files
}

// TestSurfaces breaks one fact after the other. /readyz, doctor, preflight, keys list and the metric of the alert that are about it
// say the same, the others nothing, and after the repair nobody has a finding.
func TestSurfaces(t *testing.T) {
	await.Long(t) // an unregistered webhook is proved again once a minute
	s := newSurfaces(t)
	without := []string{"apiservers", "control-plane", "secrets"} // has nothing to look at
	s.await(t, findings{Skipped: without})
	const shop = "--namespace=shop"
	whole := t
	for name, tc := range map[string]struct {
		breaks, repairs func(*testing.T)
		want            findings
		alert, series   string  // that the alert asks about
		value           float64 // of a series that is no counter
	}{
		"key not accepted": {
			breaks: func(t *testing.T) { s.accept(t, testkeys.P256()) }, repairs: func(t *testing.T) { s.accept(t, s.export(t)) },
			want:  findings{Readyz: []string{"key-not-accepted"}, Doctor: []string{"key-not-accepted"}, Keys: []string{"key-not-accepted"}},
			alert: "SACMSigningKeyRefused", series: `sacm_signing_key_probes_total{result="refused"}`,
		},
		"permission taken away": {
			breaks: func(t *testing.T) {
				s.kubectl(t, "", "delete", "clusterrolebinding", manifests.User+":root-ca")
				s.m.Shutdown(t) // a process asks when it starts
				s.start(whole)
			},
			repairs: s.permit,
			want: findings{
				NotReady: true, Readyz: []string{"permissions-missing"}, Doctor: []string{"permissions-missing"},
				Preflight: []string{"permissions-missing"},
			},
			alert: "SACMPermissionsMissing", series: `kubernetes_healthcheck{name="permissions",type="readyz"}`,
		},
		"webhook unreachable": {
			breaks: func(t *testing.T) {
				s.trust(t, s.CAFile())
				s.restart(t) // the connections of kube-apiserver go on working
			},
			repairs: func(t *testing.T) { s.trust(t, s.ClientCAFile()) },
			want:    findings{NotReady: true, Readyz: []string{"registration-unreachable"}, Doctor: []string{"registration-unreachable"}},
			alert:   "SACMWebhookUnreachable", series: `sacm_webhook_registration_state{state="unreachable"}`, value: 1,
		},
		"webhook switched off": {
			breaks: func(t *testing.T) { s.webhook(t, "unregister") }, repairs: func(t *testing.T) { s.webhook(t, "register") },
			want: findings{
				Readyz: []string{"registration-off", "policy-missing"},
				Doctor: []string{"registration-off", "pod-without-account", "policy-missing"},
			},
			alert: "SACMWebhookNotRegistered", series: `sacm_webhook_registration_state{state="registered"}`,
		},
		"policy missing": {
			breaks: func(t *testing.T) {
				s.kubectl(t, "", "delete", "validatingadmissionpolicybinding", "sa-controller-manager-pods")
			},
			repairs: s.permit,
			want:    findings{Readyz: []string{"policy-missing"}, Doctor: []string{"policy-missing"}},
			alert:   "SACMPodPolicyMissing", series: `sacm_pod_policy_findings{code="policy-missing"}`, value: 1,
		},
		"ring lost": {
			breaks:  func(t *testing.T) { testutil.Must(t, os.Rename(s.ring, s.ring+".away")) },
			repairs: func(t *testing.T) { testutil.Must(t, os.Rename(s.ring+".away", s.ring)) }, want: findings{
				NotReady: true, Readyz: []string{"ring-lost"}, Doctor: []string{"host-restored"}, Keys: []string{"ring-lost"},
				Skipped: append([]string{"keys"}, without...),
			},
			alert: "SACMKeyMissing", series: `sacm_key_ring_mismatch{verdict="ring-lost"}`, value: 1,
		},
		"account and root CA missing": {
			breaks: func(t *testing.T) {
				s.kubectl(t, refusesUs, "apply", "-f", "-")
				s.awaitRefusal(t)
				s.kubectl(t, "", shop, "delete", "serviceaccount/default", "configmap/kube-root-ca.crt")
			},
			repairs: func(t *testing.T) { s.kubectl(t, refusesUs, "delete", "-f", "-") },
			want:    findings{Doctor: []string{"no-default-account", "no-root-ca"}},
			alert:   "SACMRootCANotPublished", series: `root_ca_cert_publisher_sync_total{code="422"}`,
		},
		"another root CA": {
			breaks: func(t *testing.T) {
				s.kubectl(t, refusesUs, "apply", "-f", "-")
				s.awaitRefusal(t)
				s.kubectl(t, "", shop, "patch", "configmap", "kube-root-ca.crt", "--type=merge", `--patch={"data":{"ca.crt":"x"}}`)
			},
			repairs: func(t *testing.T) { s.kubectl(t, refusesUs, "delete", "-f", "-") },
			want:    findings{Doctor: []string{"root-ca-differs"}},
			alert:   "SACMRootCANotPublished", series: `root_ca_cert_publisher_sync_total{code="422"}`,
		},
		"two do the same": {
			breaks:  func(t *testing.T) { s.kubectl(t, stockPods, "apply", "-f", "-") },
			repairs: func(t *testing.T) { s.kubectl(t, stockPods, "delete", "--force", "-f", "-") },
			want:    findings{Doctor: []string{"apiserver-stock", "controller-manager-stock"}, Skipped: []string{"apiservers", "secrets"}},
		},
	} {
		clean := t.Run(name, func(t *testing.T) {
			began, before := time.Now(), s.value(t, tc.series)
			tc.breaks(t)
			if tc.want.Skipped == nil {
				tc.want.Skipped = without
			}
			s.await(t, tc.want)
			t.Logf("all say so after %s", time.Since(began).Round(time.Second))
			s.awaitAlert(t, tc.alert, tc.series, tc.value, before)
			tc.repairs(t)
			s.await(t, findings{Skipped: without})
			t.Logf("and nobody after %s", time.Since(began).Round(time.Second))
		})
		if !clean {
			return // what is broken may be so still
		}
	}
}

func newSurfaces(t *testing.T) *surfaces {
	t.Helper()
	dir := t.TempDir()
	s := &surfaces{dir: dir, ring: filepath.Join(dir, "ring", "ring.json"), accepted: filepath.Join(dir, "sa.pub")}
	testutil.Must(t, os.Mkdir(filepath.Join(dir, "ring"), 0o700))
	testcluster.Run(t, "", "keys", "init", "--service-account-key-ring="+s.ring, "--algorithm=P-256").ExpectCode(t, 0)
	testutil.Must(t, os.WriteFile(s.accepted, s.export(t), 0o600))
	caller := testutil.WriteFile(t, "webhooks.kubeconfig", fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nusers:\n- name: '*'\n"+
		"  user: {client-certificate: %[1]s/caller.crt, client-key: %[1]s/caller.key}\n", dir))
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"} {
		config += "- name: " + plugin + "\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: " +
			"WebhookAdmissionConfiguration, kubeConfigFile: " + caller + "}\n"
	}
	s.ControlPlane = testcluster.New(t, devcluster.Options{
		ExtraKeyFiles: []string{s.accepted}, APIServerFlags: map[string][]string{
			"disable-admission-plugins":     {"ServiceAccount"},
			"admission-control-config-file": {testutil.WriteFile(t, "admission.yaml", []byte(config))},
		},
	})
	_, identity, err := s.Identity("caller")
	testutil.Must(t, err)
	testutil.Must(t, errors.Join(os.WriteFile(filepath.Join(dir, "caller.crt"), identity.CertData, 0o600),
		os.WriteFile(filepath.Join(dir, "caller.key"), identity.KeyData, 0o600)))
	s.trust(t, s.ClientCAFile())
	s.permit(t)
	s.kubectl(t, "", "create", "namespace", "shop")
	kubeconfig, _, err := s.Identity(manifests.User)
	testutil.Must(t, err)
	port := testutil.Get(devcluster.FreePort())(t)
	s.flags = []string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=true", "--leader-elect-lease-duration=3m", "--leader-elect-renew-deadline=2m",
		"--token-secrets=manual", "--service-account-private-key-file=", "--service-account-key-ring=" + s.ring,
		"--webhook-port=" + strconv.Itoa(port), "--webhook-registration=url", "--webhook-client-ca-file=" + s.callers(), "-v=2",
	}
	s.start(t)
	return s
}

func (s *surfaces) start(t *testing.T) {
	t.Helper()
	s.m = s.StartManager(t, s.flags...)
	s.m.ExpectErrors = true
}

func (s *surfaces) callers() string { return filepath.Join(s.dir, "callers.crt") }

// trust has the webhook answer clients of a CA alone.
func (s *surfaces) trust(t *testing.T, ca string) {
	t.Helper()
	testutil.Must(t, os.WriteFile(s.callers(), testcluster.ReadFile(t, ca), 0o600))
}

func (s *surfaces) permit(t *testing.T) {
	t.Helper()
	permissions := testutil.Get(filepath.Abs("../../manifests/permissions"))(t)
	s.kubectl(t, "", "apply", "-k", permissions)
	for _, more := range []string{"/completion", "/token-secrets"} { // a ring re-issues token Secrets
		s.kubectl(t, "", "apply", "-k", permissions+more)
	}
}

// export returns the public keys of the ring.
func (s *surfaces) export(t *testing.T) []byte {
	t.Helper()
	to := t.TempDir()
	testcluster.Run(t, "", "keys", "export", "--kubeadm="+to, "--service-account-key-ring="+s.ring).ExpectCode(t, 0)
	return testcluster.ReadFile(t, filepath.Join(to, "sa.pub"))
}

// accept restarts kube-apiserver with these keys besides its own.
func (s *surfaces) accept(t *testing.T, keys []byte) {
	t.Helper()
	testutil.Must(t, os.WriteFile(s.accepted, keys, 0o600))
	s.restart(t)
}

func (s *surfaces) restart(t *testing.T) {
	t.Helper()
	testutil.Must(t, errors.Join(s.KillAPIServer(), s.StartAPIServer(t.Context())))
}

func (s *surfaces) webhook(t *testing.T, verb string) {
	t.Helper()
	testcluster.Run(t, "", "webhook", verb, "--kubeconfig="+s.Kubeconfig()).ExpectCode(t, 0)
}

func (s *surfaces) kubectl(t *testing.T, input string, args ...string) {
	t.Helper()
	program, err := devcluster.ControlPlaneBinary("kubectl")
	if err != nil {
		program = "kubectl"
	}
	testcluster.RunCommand(t, exec.CommandContext(testcluster.Context(t), program, append(args, "--kubeconfig="+s.Kubeconfig())...), input).
		ExpectCode(t, 0)
}

func (s *surfaces) await(t *testing.T, want findings) {
	t.Helper()
	testcluster.Poll(t, "compare the surfaces", func() error {
		if diff := cmp.Diff(want, s.look(t)); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// inReadyz is how /readyz names a finding.
var inReadyz = regexp.MustCompile(`(?:failed: |finding )([a-z]+(?:-[a-z]+)+): `)

func (s *surfaces) look(t *testing.T) (got findings) {
	t.Helper()
	text, err := s.m.Get(t.Context(), "/readyz?verbose")
	if err != nil {
		got.NotReady, text = true, err.Error()
	}
	for _, match := range inReadyz.FindAllStringSubmatch(text, -1) {
		got.Readyz = append(got.Readyz, match[1])
	}
	said := map[string]string{}
	doctor := []string{"doctor", "--kubeconfig=" + s.Kubeconfig(), "--root-ca-file=" + s.CAFile(), "--grace=1s"}
	if _, err := os.Stat(s.ring); err == nil { // without the file of a flag it says that alone
		doctor = append(doctor, "--service-account-key-ring="+s.ring)
	}
	for surface, command := range map[*[]string][]string{
		&got.Doctor:    doctor,
		&got.Preflight: append([]string{"preflight"}, s.flags...),
		&got.Keys:      {"keys", "list", "--kubeconfig=" + s.Kubeconfig(), "--service-account-key-ring=" + s.ring},
	} {
		out := testcluster.Run(t, "", append(command, "-o=json")...)
		var report struct {
			Findings []struct{ Code, Message string }
			Checks   []struct{ Name, Result, Note, Error string }
		}
		if err := json.Unmarshal([]byte(out.Stdout), &report); err != nil {
			got.Wrong = append(got.Wrong, command[0]+": "+out.Stderr)
		}
		for _, one := range report.Findings {
			*surface = append(*surface, one.Code)
			if before := said[one.Code]; before != "" && before != one.Message {
				got.Wrong = append(got.Wrong, one.Code+" is "+strconv.Quote(before)+" and "+strconv.Quote(one.Message))
			}
			said[one.Code] = one.Message
		}
		if want := 2 * min(1, len(report.Findings)); out.Code != want {
			got.Wrong = append(got.Wrong, fmt.Sprintf("%s exits with %d: %s", command[0], out.Code, out.Stderr))
		}
		for _, one := range report.Checks {
			switch {
			case one.Result == "skipped" && one.Note != "":
				got.Skipped = append(got.Skipped, one.Name)
			case one.Result != "ok" && one.Result != "findings":
				got.Wrong = append(got.Wrong, fmt.Sprint(one))
			}
		}
	}
	for _, code := range got.Readyz {
		if said[code] != "" && !strings.Contains(text, code+": "+said[code]) {
			got.Wrong = append(got.Wrong, fmt.Sprintf("/readyz does not say %q of %s:\n%s", said[code], code, text))
		}
	}
	slices.Sort(got.Wrong)
	return got
}

// awaitAlert waits until the series has what its alert fires for: a counter grows, and others have the value.
func (s *surfaces) awaitAlert(t *testing.T, alert, series string, value, before float64) {
	t.Helper()
	if series == "" {
		return
	}
	name, _, _ := strings.Cut(series, "{")
	_, rule, _ := strings.Cut(string(testcluster.ReadFile(t, "../../manifests/monitoring/prometheusrule.yaml")), "- alert: "+alert+"\n")
	expr, _, _ := strings.Cut(rule, "labels:")
	testutil.Expect(t, strings.Contains(expr, name), "%s does not ask for %s", alert, name)
	testcluster.Poll(t, "await what "+alert+" asks for", func() error {
		has := s.value(t, series)
		if counts := strings.HasSuffix(name, "_total"); counts && has <= before || !counts && has != value {
			return fmt.Errorf("%s is %v, and was %v", series, has, before)
		}
		return nil
	})
}

// value is the sum of a series, which names all labels that matter in their order.
func (s *surfaces) value(t *testing.T, series string) (sum float64) {
	t.Helper()
	for _, path := range []string{"/metrics", "/metrics/slis"} {
		text := testutil.Get(s.m.Get(t.Context(), path))(t)
		name, labels, _ := strings.Cut(series, "{")
		pattern := "(?m)^" + name + `\{[^}]*` + regexp.QuoteMeta(strings.TrimSuffix(labels, "}")) + `[^}]*\} (\S+)$`
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			one := testutil.Get(strconv.ParseFloat(match[1], 64))(t)
			sum += one
		}
	}
	return sum
}

// awaitRefusal returns once the policy acts.
func (s *surfaces) awaitRefusal(t *testing.T) {
	t.Helper()
	config := s.Config()
	config.Impersonate.UserName, config.Impersonate.Groups = manifests.User, []string{"system:masters"}
	us := testutil.Get(kubernetes.NewForConfig(config))(t)
	testcluster.Poll(t, "await the policy", func() error {
		probe := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		_, err := us.CoreV1().ServiceAccounts("shop").Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{"All"}})
		if err != nil && strings.Contains(err.Error(), "refuses-us") {
			return nil
		}
		return fmt.Errorf("it does not: %w", err)
	})
}
