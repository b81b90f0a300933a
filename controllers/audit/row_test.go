// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/paging"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// year is the period of tests.
const year = 365 * 24 * time.Hour

var labelled, annotated = controllertest.Labelled, controllertest.Annotated

func aged(days int) func(*corev1.Secret) { return controllertest.CreatedAt(now.AddDate(0, 0, -days)) }

func holding(token string) func(*corev1.Secret) {
	return controllertest.WithData(corev1.ServiceAccountTokenKey, token)
}

// tampered replaces the signature of its token.
func tampered(secret *corev1.Secret) {
	token := string(secret.Data["token"])
	secret.Data["token"] = []byte(token[:strings.LastIndex(token, ".")+1] + strings.Repeat("A", 86))
}

// respell sets a bit behind the last one of the signature. go-jose, and so kube-apiserver, does not
// look at it.
func respell(secret *corev1.Secret) {
	token := secret.Data["token"]
	token[len(token)-1]++ // of 86 digits the last one is A, Q, g or w
}

// space does likewise with white space.
func space(secret *corev1.Secret) {
	token := string(secret.Data["token"])
	secret.Data["token"] = []byte(token[:3] + "\t" + token[3:] + "\n")
}

func TestRow(t *testing.T) {
	t.Parallel()
	robot, other := &account{uid: "uid-robot", secrets: sets.New("a")}, &account{uid: "uid-2"}
	used := users{first: []string{"user"}, count: 1}
	named := func(value string) func(*corev1.Secret) { return annotated(corev1.ServiceAccountNameKey, value) }
	uid := func(value string) func(*corev1.Secret) { return annotated(corev1.ServiceAccountUIDKey, value) }
	lastUsed := func(day string) func(*corev1.Secret) { return labelled(tokensecrets.LastUsedLabel, day) }
	invalid := labelled(tokensecrets.InvalidSinceLabel, "2026-01-01")
	type changes []func(*corev1.Secret)
	const respelled, three = "data.token is not a service account token: malformed token: the signature is not base64url",
		"data.token is not a service account token: malformed token: not three segments"
	const former = "the token is of another account that had the name"
	cases := map[string]struct {
		reason  string
		key     []byte // P-256 if nil
		changes changes
		account *account     // robot if nil
		nobody  bool         // there is no account
		unused  bool         // by Pods
		reach   Reach        // of the account
		state   signing.Role // signing.Active if empty
		problem string
		want    []Finding
	}{
		"fine":           {},
		"retired key":    {reason: "to be re-issued", key: testkeys.P384(), state: signing.Retired, want: []Finding{RetiredKey}},
		"unknown key":    {reason: "it is refused", key: testkeys.P521(), state: tokens.Unknown, want: []Finding{UnknownKey}},
		"admin":          {reach: Everything, want: []Finding{ClusterAdmin}},
		"reader":         {reach: AllSecrets, want: []Finding{SecretsReader}},
		"no Pod":         {unused: true, want: []Finding{Unmounted}},
		"made by a user": {account: &account{uid: "uid-robot"}, want: []Finding{Unreferenced}},
		"marked":         {changes: changes{invalid}, want: []Finding{Invalidated}},
		"tampered": {
			reason: "nobody repairs it", changes: changes{tampered}, want: []Finding{BadToken},
			problem: "data.token has a wrong signature: the key that its header names has not made it",
		},
		"of another Secret": {
			reason: "it was copied", changes: changes{holding(string(tokenSecret(t, "b", testkeys.P256()).Data["token"]))},
			want:    []Finding{BadToken},
			problem: `data.token is not for this Secret: the token's claim kubernetes.io/serviceaccount/secret.name is not "a"`,
		},
		"no token": {
			reason: "a user wrote there", changes: changes{holding("CANARY")}, state: StateMalformed, problem: three,
			want: []Finding{BadToken},
		},
		"respelled": {
			reason: "kube-apiserver takes it for the same", changes: changes{respell}, problem: respelled, want: []Finding{BadToken},
		},
		"only blanks": {changes: changes{holding(" \n")}, state: StateMalformed, problem: three, want: []Finding{BadToken}},
		"empty":       {reason: "nobody has filled it", changes: changes{holding(""), aged(900)}, state: StateEmpty},
		"no account":  {nobody: true, problem: "the account does not exist", want: []Finding{Orphan, Unreferenced}},
		"other account": {
			reason: "however far it reaches", account: other, reach: Everything, want: []Finding{Orphan, Unreferenced},
			problem: "the account was deleted, and another one has its name",
		},
		"former account": {
			reason: "a user changed the annotation", changes: changes{uid("uid-2")}, account: other, problem: former,
			want: []Finding{Orphan, Unreferenced},
		},
		"nameless": {
			reason: "kube-apiserver reads no annotation: it opens what it did", changes: changes{named("Not a name")}, reach: Everything,
			problem: `data.token is not for this Secret: the token's claim kubernetes.io/serviceaccount/service-account.name is not ""`,
			want:    []Finding{ClusterAdmin, BadToken},
		},
		"nameless, empty": {
			changes: changes{holding(""), named("Not a name")}, nobody: true, state: StateEmpty,
			problem: "it names no account that could exist", want: []Finding{Orphan, Unreferenced},
		},
		"no UID":        {reason: "likewise", changes: changes{uid("")}, reach: Everything, want: []Finding{ClusterAdmin}},
		"no UID, empty": {reason: "a user gives the name alone", changes: changes{holding(""), uid("")}, state: StateEmpty},
		"no UID, forged": {
			changes: changes{tampered, uid("")}, account: other, problem: former, want: []Finding{BadToken, Orphan, Unreferenced},
		},
		"never used":      {reason: "for a year and a day", changes: changes{aged(366)}, want: []Finding{Unused}},
		"used long ago":   {changes: changes{aged(900), lastUsed("2025-11-20")}, want: []Finding{Unused}},
		"used a year ago": {reason: "that day may have ended just now", changes: changes{aged(900), lastUsed("2025-11-21")}},
		"strange label":   {reason: "nothing is concluded", changes: changes{aged(900), lastUsed("yesterday")}},
		"all at once": {
			reason: "the worst first", key: testkeys.P384(), changes: changes{aged(900), invalid}, account: &account{uid: "uid-robot"},
			unused: true,
			reach:  Everything, state: signing.Retired,
			want: []Finding{ClusterAdmin, RetiredKey, Invalidated, Unused, Unmounted, Unreferenced},
		},
	}
	rules := Rules{Now: now, UnusedFor: year}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.key == nil {
				tc.key = testkeys.P256()
			}
			observed := testKeys(t).observe(tokenSecret(t, "a", tc.key, tc.changes...))
			var of *account
			if !tc.nobody {
				one := *cmp.Or(tc.account, robot)
				one.reach = reach{cmp.Or(tc.reach, Limited), "a role"}
				of = &one
			}
			pods := used
			if tc.unused {
				pods = users{}
			}
			row := rules.row(&observed, of, pods)
			testutil.Expect(t, row.State == cmp.Or(tc.state, signing.Active) && row.Problem == tc.problem,
				"%s: state %s, problem %q; want %s, %q",
				tc.reason, row.State, row.Problem, tc.state, tc.problem)
			testutil.Check(t, tc.reason+": findings", tc.want, row.Findings)
		})
	}
}

func TestIdleSince(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time { return testutil.Get(time.Parse(time.RFC3339, text))(t) }
	for name, tc := range map[string]struct {
		reason  string
		rules   Rules
		changes []func(*corev1.Secret)
		want    time.Time
	}{
		"never used":         {"since it is there", Rules{}, nil, now.AddDate(0, 0, -10)},
		"tracked since then": {"nobody noted it before", Rules{TrackedSince: at("2026-11-15T00:00:00Z")}, nil, at("2026-11-15T00:00:00Z")},
		"used": {
			"until the day's end", Rules{}, []func(*corev1.Secret){labelled(tokensecrets.LastUsedLabel, "2026-11-18")},
			at("2026-11-19T00:00:00Z"),
		},
		"untracked": {
			"cannot be told", Rules{Untracked: true}, []func(*corev1.Secret){labelled(tokensecrets.LastUsedLabel, "2026-11-18")},
			time.Time{},
		},
	} {
		got := tc.rules.idleSince(testKeys(t).observe(tokenSecret(t, "a", testkeys.P256(), tc.changes...)).view)
		testutil.Expect(t, got.Equal(tc.want), "%s (%s): %s, want %s", name, tc.reason, got, tc.want)
	}
	since, ok := legacytokencleaner.TrackedSince(&corev1.ConfigMap{Data: map[string]string{"since": "2026-11-14"}})
	testutil.Expect(t, ok && since.Equal(at("2026-11-15T00:00:00Z")), "tracked since %s, %t", since, ok)
	if _, ok := legacytokencleaner.TrackedSince(&corev1.ConfigMap{Data: map[string]string{"since": "then"}}); ok {
		t.Error("a word is taken for a day")
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	secret := tokenSecret(t, "a", testkeys.P384(), aged(100), labelled(tokensecrets.LastUsedLabel, "2026-11-01"))
	id := testkeys.Parse(testkeys.P384()).ID()
	cases := map[string]struct {
		filter Filter
		want   bool
	}{
		"old enough":     {Filter{OlderThan: 100 * 24 * time.Hour}, true},
		"too young":      {Filter{OlderThan: 101 * 24 * time.Hour}, false},
		"unused enough":  {Filter{UnusedFor: 19 * 24 * time.Hour}, true},
		"used meanwhile": {Filter{UnusedFor: 20 * 24 * time.Hour}, false},
		"key":            {Filter{KeyID: id}, true},
		"other key":      {Filter{KeyID: id[1:6]}, false},
		"state":          {Filter{States: []string{"active", "retired"}}, true},
		"other state":    {Filter{States: []string{"active"}}, false},
		"finding":        {Filter{Findings: []string{"unmounted", "retired-key"}}, true},
		"other finding":  {Filter{Findings: []string{"cluster-admin"}}, false},
	}
	rules := Rules{Now: now, UnusedFor: year}
	observed := testKeys(t).observe(secret)
	row := rules.row(&observed, &account{uid: "uid-robot"}, users{count: 1})
	for name, tc := range cases {
		testutil.Check(t, name, tc.want, tc.filter.wantsToken(observed, rules) && tc.filter.wantsRow(&row))
	}
}

// rowsToSort are a to d, in the order of their names.
func rowsToSort() []Row {
	row := func(name, account string, created, idle int, key string, state signing.Role, findings ...Finding) Row {
		return Row{
			Namespace: "shop", Name: name, Account: account, Created: metav1.NewTime(now.AddDate(0, 0, -created)),
			idle: now.AddDate(0, 0, -idle), KeyID: key, State: state, Findings: findings,
		}
	}
	return []Row{
		row("a", "z", 1, 4, "k2", signing.Retired, Unmounted), row("b", "y", 2, 3, "k1", signing.Active),
		row("c", "y", 3, 2, "k1", signing.Retired, SecretsReader, Unmounted),
		row("d", "x", 2, 3, "k3", signing.Active, SecretsReader, Unused, Unmounted),
	}
}

func TestSort(t *testing.T) {
	t.Parallel()
	want := map[string]string{"namespace": "abcd", "account": "dbca", "age": "cbda", "last-used": "abdc", "key": "bdca", "findings": "dcab"}
	for _, by := range SortKeys() {
		rows := rowsToSort()
		Sort(rows, by)
		got := ""
		for _, row := range rows {
			got += row.Name
		}
		testutil.Expect(t, got == want[by], "by %s: %s, want %s", by, got, want[by])
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	rows := rowsToSort()
	rows[0].KeyID, rows[0].LastUsed, rows[0].PodCount = "0123456789", "2026-11-20", 12
	rows[1].Account = "evil\x1b[2J"
	rows[3].Name = "a-much-longer-name"
	const want = `NAMESPACE   NAME                 ACCOUNT         AGE   KEY        STATE     LAST-USED    PODS   FINDINGS
shop        a                    z               24h   01234567   retired   2026-11-20   12     unmounted
shop        b                    evil\u001b[2J   2d    k1         active    never        0      <none>
shop        c                    y               3d    k1         retired   never        0      secrets-reader,unmounted
shop        a-much-longer-name   x               2d    k3         active    never        0      secrets-reader,unused,unmounted
`
	testutil.Check(t, "result", want, table(rows, false, now))
	rows[0].Pods, rows[0].Reach, rows[0].ReachBy, rows[0].Problem, rows[0].InvalidSince, rows[0].Referenced = []string{"p",
		"q"}, AllSecrets, "a role", "odd", "2026-11-19", true
	if _, line, _ := strings.Cut(table(rows[:1], true, now), "\n"); !strings.HasSuffix(line,
		"2026-11-19      yes          p,q and 10 more   all-secrets   odd; a role\n") {
		t.Errorf("wide line %q", line)
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	read := map[string]func([]byte, *Report) error{
		"json": func(text []byte, into *Report) error { return json.Unmarshal(text, into) },
		"yaml": func(text []byte, into *Report) error { return yaml.UnmarshalStrict(text, into) },
	}
	for output, unmarshal := range read {
		for _, rows := range [][]Row{rowsToSort(), {}, slices.Repeat(rowsToSort(), paging.Size)} {
			var text bytes.Buffer
			report := &Report{printers.Of("TokenAudit"), rows, Summary{Examined: 7, Findings: map[Finding]int{Unused: 1}}}
			testutil.Must(t, Print(&text, output, report, now))
			if len(rows) == len(rowsToSort()) {
				clitest.Golden(t, "audit."+output, text.String())
			}
			var got Report
			if err := unmarshal(text.Bytes(), &got); err != nil {
				t.Fatalf("%s: %v:\n%s", output, err, text.String())
			}
			testutil.Expect(t, got.Tokens != nil && len(got.Tokens) == len(rows) && got.Summary.Examined == 7 &&
				got.Summary.Findings[Unused] == 1,
				"%s: %d tokens, summary %+v", output, len(got.Tokens), got.Summary)
		}
	}
}
