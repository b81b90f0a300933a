// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// TestNamespacesOverPages: one that goes on over several pages is read once, and rows are in the order of the
// list. No other Secrets are asked for.
func TestNamespacesOverPages(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	var secrets []corev1.Secret
	for _, namespace := range []string{"a", "b"} {
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
		account := &corev1.ServiceAccount{ObjectMeta: meta("robot"), Secrets: []corev1.ObjectReference{{Name: "1"}}}
		account.UID = "uid-robot"
		pod := &corev1.Pod{ObjectMeta: meta("user"), Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: "1"},
		}}}}}
		testutil.Must(t, client.Tracker().Add(account))
		testutil.Must(t, client.Tracker().Add(pod))
		for _, name := range []string{"1", "2", "3"} {
			secret := tokenSecret(t, name, testkeys.P256())
			secret.Namespace = namespace
			secrets = append(secrets, *secret)
		}
	}
	client.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := action.(clienttesting.ListActionImpl)
		testutil.Check(t, "selector", "type=kubernetes.io/service-account-token", list.ListRestrictions.Fields.String())
		page, _ := strconv.Atoi(list.ListOptions.Continue)
		answer := &corev1.SecretList{Items: secrets[2*page : 2*page+2]}
		if page < 2 {
			answer.Continue = strconv.Itoa(page + 1)
		}
		return true, answer, nil
	})
	client.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{}, nil
	})
	auditor := &Auditor{Client: client, Keys: testKeys(t), Rules: Rules{Now: now}, Reach: true, Progress: func(int) {}}
	report := testutil.Get(auditor.Run(t.Context()))(t)
	var got []string
	for _, row := range report.Tokens {
		got = append(got, fmt.Sprintf("%s/%s %t %v", row.Namespace, row.Name, row.Referenced, row.Pods))
	}
	want := []string{"a/1 true [user]", "a/2 false []", "a/3 false []", "b/1 true [user]", "b/2 false []", "b/3 false []"}
	testutil.Check(t, "rows", want, got)
	testutil.Check(t, "examined and shown", []int{6, 6}, []int{report.Summary.Examined, report.Summary.Shown})
	requests := map[string]int{}
	for _, action := range client.Actions() {
		requests[action.GetResource().Resource]++
	}
	testutil.Check(t, "requests", map[string]int{"secrets": 3, "pods": 2, "serviceaccounts": 2, "subjectaccessreviews": 6}, requests)
}

// TestPage looks at the source of the page; test/browser opens it.
func TestPage(t *testing.T) {
	t.Parallel()
	const hostile = `</script><img src=x onerror="alert(1)">` + "\u202e\x1b[2J"
	rows := []Row{
		{
			Namespace: "shop", Name: "a", Account: hostile, Created: metav1.NewTime(now.AddDate(-4, 0, 0)), KeyID: hostile, State: "active",
			Reach: Everything, Problem: hostile, ReachBy: hostile, Pods: []string{hostile}, PodCount: 1, Findings: []Finding{ClusterAdmin},
		},
		{Namespace: "bank", Name: "b", Created: metav1.NewTime(now.Add(-time.Hour)), State: "unknown"},
	}
	var written bytes.Buffer
	summary := Summary{Cluster: "prod " + hostile, Examined: 3, Shown: 2, Findings: map[Finding]int{ClusterAdmin: 1}}
	testutil.Must(t, Print(&written, "html", &Report{Tokens: rows, Summary: summary}, now))
	page := written.String()
	for _, want := range []string{
		`<title>Token audit of prod &lt;`, `\u001b[2J, 2026-11-21 12:00 UTC</title>`, "<h1>1 of 2 tokens can take over the cluster</h1>",
		"2026-11-21 12:00 UTC. Token Secrets: 3, listed: 2.", `<td>under 30 days</td><td class="number">1</td>`,
		`<td>3 years and more</td><td class="number">1</td>`,
		`<a class="high" href="#finding=cluster-admin">cluster-admin</a><br><small>high</small></td><td class="number">1</td>`,
		"No token has: secrets-reader, bad-token, ", `\u001b[2J">&lt;/script</small>`, `<option>bank</option><option>shop</option>`,
		`<option>active</option><option>unknown</option>`, `<tr data-findings="cluster-admin " data-namespace="shop" data-key="active">`,
		`<tr data-findings="none" data-namespace="bank" data-key="unknown">`,
		`&lt;/script&gt;&lt;img src=x onerror=&#34;alert(1)&#34;&gt;\u202e\u001b[2J`,
	} {
		testutil.Expect(t, strings.Contains(page, want), "the page lacks %q", want)
	}
	testutil.Expect(t, !strings.Contains(page, "<img") && !strings.ContainsAny(page, "\u202e\x1b"), "text of users is in the page as it is")
	policy := regexp.MustCompile(`content="default-src 'none'; [^"]*"`).FindString(page)
	for _, element := range []string{"style", "script"} {
		text := regexp.MustCompile(`(?s)<` + element + `>(.*)</` + element + `>`).FindStringSubmatch(page)
		sum := sha256.Sum256([]byte(text[1]))
		testutil.CheckContains(t, "the policy", element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'", policy)
	}
}

// TestHeadline claims nothing that was not asked, and no safety: other permissions are dangerous too.
func TestHeadline(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rows     []Row
		findings map[Finding]int
		want     string
	}{
		"both kinds": {
			make([]Row, 13), map[Finding]int{ClusterAdmin: 1, SecretsReader: 3, Unused: 9}, "4 of 13 tokens can take over the cluster",
		},
		"none": {
			[]Row{{Reach: Limited}, {}}, map[Finding]int{Unused: 2}, "0 of 2 tokens may do everything or read all Secrets",
		},
		"not asked":        {make([]Row, 2), nil, "Tokens that never expire: 2"},
		"none in the file": {nil, nil, "Tokens that never expire: 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := &Report{Tokens: tc.rows, Summary: Summary{Shown: len(tc.rows), Findings: tc.findings}}
			testutil.Check(t, "headline", tc.want, headline(report))
		})
	}
}

// palace is a namespace in which robot may do everything and servant nothing.
func palace(secret *corev1.Secret) *fake.Clientset {
	account := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	}
	client := fake.NewClientset(account("robot"), account("servant"), secret)
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = review.Spec.User == "system:serviceaccount:shop:robot" && review.Spec.UID == "uid-robot"
		return true, review, nil
	})
	return client
}

// TestAnnotationsHideNothing: kube-apiserver goes by the claims of a token. Who may edit the Secret
// must not be able to have an administrator's token called harmless, or dead.
func TestAnnotationsHideNothing(t *testing.T) {
	t.Parallel()
	of := func(name, uid string) func(*corev1.Secret) {
		return func(secret *corev1.Secret) {
			secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: name, corev1.ServiceAccountUIDKey: uid}
		}
	}
	bare := func(secret *corev1.Secret) { secret.Annotations = nil }
	copied := holding(string(tokenSecret(t, "b", testkeys.P256()).Data["token"]))
	servant := of("servant", "uid-servant")
	const (
		inOrder = "robot everything [cluster-admin unmounted unreferenced]"
		admin   = "robot everything [cluster-admin bad-token unmounted unreferenced]"
		dead    = "servant  [bad-token orphan unmounted unreferenced]"
	)
	type changes []func(*corev1.Secret)
	for name, tc := range map[string]struct {
		reason    string
		key       []byte // P-256 if nil
		unchecked bool
		changes   changes
		want      string
	}{
		"in order":           {want: inOrder},
		"no name":            {changes: changes{of("Not a name", "uid-robot")}, want: admin},
		"nobody's name":      {changes: changes{of("nobody", "uid-robot")}, want: admin},
		"another's":          {changes: changes{servant}, want: admin},
		"another UID":        {changes: changes{of("robot", "uid-former")}, want: inOrder},
		"none":               {changes: changes{bare}, want: admin},
		"respelled":          {reason: "kube-apiserver does not mind the spelling", changes: changes{servant, respell}, want: admin},
		"spaced":             {reason: "likewise", changes: changes{servant, space}, want: admin},
		"keys are unchecked": {reason: "kube-apiserver need not show its keys", unchecked: true, changes: changes{servant}, want: admin},
		"key is unknown": {
			reason: "the flags need not name all of kube-apiserver's", key: testkeys.P521(), changes: changes{servant},
			want: "robot everything [cluster-admin bad-token unknown-key unmounted unreferenced]",
		},
		"forged":            {reason: "what it claims is worth nothing", changes: changes{servant, tampered}, want: dead},
		"of another Secret": {reason: "that one tells", changes: changes{servant, copied}, want: dead},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.key == nil {
				tc.key = testkeys.P256()
			}
			auditor := &Auditor{
				Client: palace(tokenSecret(t, "a", tc.key, tc.changes...)), Keys: testKeys(t), Rules: Rules{Now: now, UnusedFor: year},
				Reach:    true,
				Progress: func(int) {},
			}
			if tc.unchecked {
				auditor.Keys = nil
			}
			report := testutil.Get(auditor.Run(t.Context()))(t)
			var got []string
			for _, row := range report.Tokens {
				got = append(got, fmt.Sprintf("%s %s %s", row.Account, row.Reach, row.Findings))
			}
			testutil.Check(t, tc.reason+": rows", []string{tc.want}, got)
		})
	}
}

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// testKeys are an active and a retired key. A third one is nobody's.
func testKeys(tb testing.TB) Keys {
	tb.Helper()
	return Keys{
		{PublicKey: testkeys.Parse(testkeys.P256()).Public(), Role: signing.Active},
		{PublicKey: testkeys.Parse(testkeys.P384()).Public(), Role: signing.Retired},
	}
}

// tokenSecret is in order: of account robot in namespace shop, made ten days ago.
func tokenSecret(tb testing.TB, name string, key []byte, changes ...func(*corev1.Secret)) *corev1.Secret {
	tb.Helper()
	token := testutil.Get(tokens.NewIssuer(testkeys.Parse(key), tokens.CompatClaims).
		Legacy(tb.Context(), tokens.Account{Namespace: "shop", Name: "robot", UID: "uid-robot"}, name))(tb)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" +
				name), CreationTimestamp: metav1.NewTime(now.AddDate(0, 0, -10)), Labels: map[string]string{},
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: "uid-robot"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"token": []byte(token), "namespace": []byte("shop")},
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

// TestSARIF has what section 3 of the format requires, and what services show.
func TestSARIF(t *testing.T) {
	t.Parallel()
	var written bytes.Buffer
	testutil.Must(t, Print(&written, SARIF, &Report{Tokens: []Row{
		{Namespace: "shop", Name: "a", Account: "robot\x1b[2J", Findings: []Finding{ClusterAdmin, Unused}},
		{Namespace: "bank", Name: "b", Account: "gone", Problem: "the account does not exist", Findings: []Finding{Orphan}},
		{Namespace: "bank", Name: "c"},
	}}, now))
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct{ ID string }
				}
			}
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
				}
			}
		}
	}
	testutil.Must(t, json.Unmarshal(written.Bytes(), &log))
	run := log.Runs[0]
	testutil.Check(t, "version and tool", []string{"2.1.0", "sa-controller-manager"}, []string{log.Version, run.Tool.Driver.Name})
	var rules, results []string
	for _, rule := range run.Tool.Driver.Rules {
		rules = append(rules, rule.ID)
	}
	testutil.Check(t, "rules", Names(), rules)
	for _, result := range run.Results {
		results = append(results, result.RuleID+" "+result.Level+" "+result.Locations[0].PhysicalLocation.ArtifactLocation.URI+" "+
			result.Message.Text)
	}
	testutil.Check(t, "results", []string{
		`cluster-admin error api/v1/namespaces/shop/secrets/a Token of robot\u001b[2J: the account may do everything, in all namespaces`,
		`unused note api/v1/namespaces/shop/secrets/a Token of robot\u001b[2J: it was not used for a year, or the period that was given`,
		"orphan warning api/v1/namespaces/bank/secrets/b Token of gone: the account does not exist",
	}, results)
}
