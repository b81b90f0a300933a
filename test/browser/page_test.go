// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build browser

package browser

import (
	"errors"
	"fmt"
	"image"
	"image/color/palette"
	"image/draw"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/audit"
	"sa-controller-manager/internal/testutil"
)

// hostile is what users can get into a row, such as by a label, and what it does if it is not escaped.
const hostile = `</script><img src="http://evil.test/" onerror="document.title='owned'"><script>document.title="owned"</script>` +
	"\u202e\u009b2J"

// title is gone if a script of users ran.
const title = "<title>Token audit of " + cluster + ", 2026-11-22 12:00 UTC</title>"

const cluster = "kind-shop https://127.0.0.1:6443"

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// pageOf writes the page of rows and returns its URL.
func pageOf(t *testing.T, rows []audit.Row) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	file := testutil.Get(os.Create(path))(t)
	audit.Sort(rows, "findings")
	summary := audit.Summary{Cluster: cluster, Examined: len(rows), Shown: len(rows), Findings: map[audit.Finding]int{}}
	for i := range rows {
		for _, finding := range rows[i].Findings {
			summary.Findings[finding]++
		}
	}
	testutil.Must(t, audit.Print(file, "html", &audit.Report{Tokens: rows, Summary: summary}, now))
	testutil.Must(t, file.Close())
	return "file://" + path
}

// row is one of a cluster like any other.
func row(namespace, name string, age time.Duration, findings ...audit.Finding) audit.Row {
	return audit.Row{
		Namespace: namespace, Name: name, Account: strings.TrimSuffix(name, "-token"), Created: metav1.NewTime(now.Add(-age)),
		KeyID: "jBOnFTUjFUR5gPKctU5QKjxUKsAqqhj7nlHnf3Yg7Yk", State: "published", LastUsed: "2026-11-20", Reach: audit.Limited,
		Findings: findings,
	}
}

func few() []audit.Row {
	const day = 24 * time.Hour
	admin := row("shop", "admin-token", 3*365*day, audit.ClusterAdmin, audit.Unused, audit.Unmounted)
	admin.Reach, admin.ReachBy, admin.LastUsed = audit.Everything, `RBAC: allowed by ClusterRoleBinding "admins"`, ""
	old := row("bank", "old-token", 2300*day, audit.UnknownKey, audit.Unused)
	old.State, old.KeyID, old.LastUsed = "unknown", hostile, "2020-01-01"
	odd := row("bank", "odd-token", 40*day, audit.BadToken)
	odd.Account, odd.Problem = hostile, hostile
	plain := row("shop", "plain-token", 12*day)
	plain.Pods, plain.PodCount = []string{"plain-7c5d", "plain-9f2k"}, 2
	getter := row("shop", "getter-token", 40*day, audit.SecretsReader, audit.Unmounted)
	getter.Reach, getter.ReachBy = audit.AllSecrets, `RBAC: allowed by ClusterRoleBinding "getters"`
	return []audit.Row{odd, old, admin, getter, plain}
}

// browser runs Chromium with a proxy that counts the requests for anything on a network.
type browser struct {
	proxy    *httptest.Server
	requests atomic.Int32
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{}
	b.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.requests.Add(1)
		http.Error(w, r.URL.String(), http.StatusBadGateway)
	}))
	t.Cleanup(b.proxy.Close)
	return b
}

// open returns the page after its script has run, and what its console has.
func (b *browser) open(t *testing.T, url string, flags ...string) (page, console string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "chromium-headless-shell", append(flags,
		"--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--proxy-server="+b.proxy.URL, "--disable-background-networking",
		"--enable-logging=stderr", "--dump-dom", url)...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("run Chromium: %v\n%s", err, &stderr)
	}
	return stdout.String(), strings.Join(regexp.MustCompile(`.*CONSOLE.*`).FindAllString(stderr.String(), -1), "\n")
}

var (
	shownRow = regexp.MustCompile(`<tr data-findings="[^"]*" data-namespace="[^"]*" data-key="[^"]*">`)
	policy   = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`)
	shown    = regexp.MustCompile(`<output id="shown">(\d+)</output>`)
)

// TestFilters: the part of the URL after # selects the rows, as the form does.
func TestFilters(t *testing.T) {
	url, chromium := pageOf(t, few()), newBrowser(t)
	for fragment, want := range map[string]int{
		"":                              5,
		"finding=unused":                2,
		"finding=none":                  1,
		"namespace=shop":                3,
		"key=unknown":                   1,
		"text=GETTER":                   1,
		"text=onerror":                  2,
		"finding=unmounted&namespace=x": 0,
		"finding=unused&namespace=bank": 1,
	} {
		t.Run(fragment, func(t *testing.T) {
			page, console := chromium.open(t, url+"#"+fragment)
			testutil.Check(t, "visible rows", want, len(shownRow.FindAllString(page, -1)))
			if count := shown.FindStringSubmatch(page); len(count) < 2 || count[1] != fmt.Sprint(want) {
				t.Errorf("the page counts %v, want %d", count, want)
			}
			testutil.Check(t, "the console", "", console)
			if !strings.Contains(page, title) || strings.Contains(page, "<img") || strings.ContainsAny(page, "\u202e\u009b") {
				t.Errorf("hostile text was not escaped:\n%s", page)
			}
		})
	}
	if n := chromium.requests.Load(); n > 0 {
		t.Errorf("%d requests, want none", n)
	}
}

// TestPolicy puts markup past the escaping: then the policy of the page stops it. Without the policy
// the same markup runs, and is fetched: the test above would see both.
func TestPolicy(t *testing.T) {
	path := strings.TrimPrefix(pageOf(t, few()), "file://")
	data := testutil.Get(os.ReadFile(path))(t)
	broken := strings.Replace(string(data), "<h1>", hostile+"<h1>", 1)
	for name, tc := range map[string]struct {
		page    string
		harmful bool
	}{"With": {broken, false}, "Without": {policy.ReplaceAllString(broken, ""), true}} {
		t.Run(name, func(t *testing.T) {
			chromium := newBrowser(t)
			testutil.Must(t, os.WriteFile(path, []byte(tc.page), 0o600))
			page, console := chromium.open(t, "file://"+path)
			testutil.Check(t, "foreign script runs", tc.harmful, !strings.Contains(page, title))
			testutil.Check(t, "something is fetched", tc.harmful, chromium.requests.Load() > 0)
			if !tc.harmful && !strings.Contains(console, "Content Security Policy") {
				t.Errorf("the console has %q, want what was refused", console)
			}
		})
	}
}

// TestForm: what the user chooses becomes the part of the URL after #. A script may do the choosing only
// where the policy is gone.
func TestForm(t *testing.T) {
	url := pageOf(t, few())
	path := strings.TrimPrefix(url, "file://")
	data := testutil.Get(os.ReadFile(path))(t)
	const choice = `<script>document.forms[0].elements.finding.value = "unused"; ` +
		`document.forms[0].dispatchEvent(new Event("input"))</script></body>`
	testutil.Must(t, os.WriteFile(path, []byte(strings.Replace(policy.ReplaceAllString(string(data), ""), "</body>", choice, 1)), 0o600))
	page, console := newBrowser(t).open(t, url, "--virtual-time-budget=10000")
	if got := len(shownRow.FindAllString(page, -1)); got != 2 || console != "" {
		t.Errorf("%d rows are visible, want 2; the console has %q", got, console)
	}
}

// TestScreenshot writes the picture of the documentation to SACM_SCREENSHOT.
func TestScreenshot(t *testing.T) {
	path := os.Getenv("SACM_SCREENSHOT")
	if path == "" {
		t.Skip("SACM_SCREENSHOT is not set")
	}
	rows := few()[2:] // those that README.md prints
	for i := range rows {
		rows[i].Findings = append(rows[i].Findings, audit.Unreferenced)
	}
	rows[2].LastUsed = "2026-11-21"
	newBrowser(t).open(t, pageOf(t, rows), "--screenshot="+path, "--window-size=1300,760", "--hide-scrollbars")
	file := testutil.Get(os.Open(path))(t)
	picture, err := png.Decode(file)
	testutil.Must(t, errors.Join(err, file.Close()))
	small := image.NewPaletted(picture.Bounds(), palette.Plan9) // a third of the size
	draw.Draw(small, small.Bounds(), picture, image.Point{}, draw.Src)
	file = testutil.Get(os.Create(path))(t)
	testutil.Must(t, errors.Join(png.Encode(file, small), file.Close()))
}
