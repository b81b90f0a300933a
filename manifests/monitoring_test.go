// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
)

// That the expressions mean what they should is tested by test/alerts, with Prometheus'
// own engine. What is here needs nothing of Prometheus.

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var rule struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       struct {
			Groups []struct {
				Name  string  `json:"name"`
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	testutil.Must(t, yaml.UnmarshalStrict([]byte(page(t, "monitoring/prometheusrule.yaml")), &rule))
	var found []alert
	for _, group := range rule.Spec.Groups {
		found = append(found, group.Rules...)
	}
	testutil.Require(t, len(found) != 0, "there are no alerts")
	return found
}

// Each alert leads to a heading of docs/operations.md, and each heading there to an alert.
func TestAlertsAreDocumented(t *testing.T) {
	t.Parallel()
	var names, headings []string
	for _, alert := range alerts(t) {
		names = append(names, alert.Alert)
		if want := "docs/operations.md#" + strings.ToLower(alert.Alert); alert.Annotations["runbook_url"] != want {
			t.Errorf("%s: the runbook is %q, want %q", alert.Alert, alert.Annotations["runbook_url"], want)
		}
		for _, annotation := range []string{"summary", "description"} {
			testutil.Expect(t, alert.Annotations[annotation] != "", "%s has no %s", alert.Alert, annotation)
		}
		testutil.Expect(t, slices.Contains([]string{"critical", "warning", "info"}, alert.Labels["severity"]), "%s: the severity is %q",
			alert.Alert, alert.Labels["severity"])
	}
	for _, match := range regexp.MustCompile(`(?m)^### (SACM\w+)$`).FindAllStringSubmatch(page(t, operationsFile), -1) {
		headings = append(headings, match[1])
	}
	testutil.Check(t, "alerts, and headings of "+operationsFile+" in their order", names, headings)
}

// A metric that is asked for is in docs/metrics.md, which is compared with the code.
func TestExpressionsAskForMetricsThatExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{ // of Prometheus and of kube-apiserver
		"up": true, "apiserver_current_inflight_requests": true, "apiserver_externaljwt_fetch_keys_success_timestamp": true,
		"apiserver_mutating_admission_policy_check_total": true, "apiserver_admission_controller_admission_duration_seconds": true,
	}
	for _, name := range documented(t, "Metrics") {
		known[name] = true
	}
	expressions := map[string]string{}
	for _, alert := range alerts(t) {
		expressions[alert.Alert] = alert.Expr
	}
	maps.Copy(expressions, dashboard(t))
	for where, expr := range expressions {
		asked := metricsOf(expr)
		testutil.Expect(t, len(asked) != 0, "%s asks for no metric: %s", where, expr)
		for _, name := range asked {
			testutil.Expect(t, known[name] || known[histogramPart.ReplaceAllString(name, "")], "%s asks for %s, which is not in %s", where,
				name,
				metricsFile)
		}
	}
}

var histogramPart = regexp.MustCompile(`_(bucket|sum|count)$`)

// metricsOf takes away what is no metric in an expression: selectors, ranges, lists of
// labels, functions, operators.
func metricsOf(expr string) []string {
	for _, other := range []string{
		`"(\\.|[^"\\])*"`, `\{[^}]*\}`, `\[[^\]]*\]`, `\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`,
		`\boffset\s+\w+`, `\b(and|or|unless|bool|sum|min|max|avg|count|group|topk)\b`, `\w+\s*\(`, `\b[0-9][0-9a-z.]*\b`,
	} {
		expr = regexp.MustCompile(other).ReplaceAllString(expr, " ; ")
	}
	return regexp.MustCompile(`[a-zA-Z_:]\w*`).FindAllString(expr, -1)
}

// dashboard are the expressions of Grafana's panels, by title.
func dashboard(t *testing.T) map[string]string {
	t.Helper()
	var board struct {
		Panels []struct {
			ID    int    `json:"id"`
			Type  string `json:"type"`
			Title string `json:"title"`
			Field struct {
				Defaults struct {
					Thresholds struct {
						Steps []any `json:"steps"`
					} `json:"thresholds"`
				} `json:"defaults"`
			} `json:"fieldConfig"`
			Targets []struct {
				RefID   string `json:"refId"`
				Expr    string `json:"expr"`
				Instant bool   `json:"instant"`
			} `json:"targets"`
		} `json:"panels"`
	}
	testutil.Must(t, json.Unmarshal([]byte(page(t, "monitoring/grafana/sa-controller-manager.json")), &board))
	found, ids := map[string]string{}, map[int]bool{}
	for _, panel := range board.Panels {
		testutil.Expect(t, !ids[panel.ID], "the panel %q has the number %d of another one", panel.Title, panel.ID)
		ids[panel.ID] = true
		testutil.Expect(t, panel.Type != "stat" || len(panel.Field.Defaults.Thresholds.Steps) >= 2,
			"the panel %q has no colours: 0 and 2 leaders would look like 1", panel.Title)
		for _, target := range panel.Targets {
			found["panel "+panel.Title+" "+target.RefID] = target.Expr
			testutil.Expect(t, panel.Type != "stat" || target.Instant,
				"the panel %q shows the last value of the range, of a process that is down too", panel.Title)
		}
	}
	return found
}

// docs/metrics.md and docs/operations.md are compared with the code, so that an engineer who reads them
// at night finds every metric, every Event and every alert, and none that was renamed.

const (
	metricsFile    = "../docs/metrics.md"
	operationsFile = "../docs/operations.md"
)

func TestPageHasEveryMetric(t *testing.T) {
	t.Parallel()
	var ours []string
	for _, name := range documented(t, "Metrics") {
		if regexp.MustCompile(`^(sacm|root_ca_cert_publisher)_`).MatchString(name) {
			ours = append(ours, name)
		}
	}
	testutil.Check(t, "metrics of the code, and of "+metricsFile, metricNames(t), ours)
}

func TestPageHasEveryEvent(t *testing.T) {
	t.Parallel()
	testutil.Check(t, "reasons of Events of the code, and of "+metricsFile, eventReasons(t), documented(t, "Events"))
}

// documented are the names in the first cells of the tables below a heading, sorted.
func documented(t *testing.T, heading string) []string {
	t.Helper()
	_, text, found := strings.Cut(page(t, metricsFile), "\n## "+heading+"\n")
	testutil.Require(t, found, "%s has no heading %q", metricsFile, heading)
	text, _, _ = strings.Cut(text, "\n## ")
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, match := range regexp.MustCompile("`([A-Za-z0-9_]+)`").FindAllStringSubmatch(cells[1], -1) {
			names[match[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func page(t *testing.T, file string) string {
	t.Helper()
	text := testutil.Get(os.ReadFile(file))(t)
	return string(text)
}

// sources are the texts of the product's packages, by directory.
func sources(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, root := range []string{"../admission", "../cmd", "../controllers", "../internal", "../signing"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if path == "../internal/testutil" || path == "../internal/series" {
				return filepath.SkipDir // only tests import one, and the other has no names
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			found[filepath.Dir(path)] += string(text)
			return err
		})
		testutil.Must(t, err)
	}
	return found
}

// constantsIn are all strings that have a name, in functions too.
func constantsIn(text string) map[string]string {
	found := map[string]string{}
	for _, match := range regexp.MustCompile(`(\w+) += "([^"]*)"`).FindAllStringSubmatch(text, -1) {
		found[match[1]] = match[2]
	}
	return found
}

// metricNames are those in the options of component-base's metrics, sorted.
func metricNames(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for directory, text := range sources(t) {
		for _, call := range regexp.MustCompile(`\bseries\.\w+\(\w[\w.]*,\s+"(\w+)",`).FindAllStringSubmatch(text, -1) {
			names[call[1]] = true
		}
		constants := constantsIn(text)
		for _, options := range regexp.MustCompile(`(?s)\bmetrics\.\w+Opts\{(.*?)Help:`).FindAllStringSubmatch(text, -1) {
			var full []string
			for _, field := range []string{"Namespace", "Subsystem", "Name"} {
				match := regexp.MustCompile(`\b` + field + `:\s+(?:"(\w+)"|(?:\w+\.)?(\w+))`).FindStringSubmatch(options[1])
				if match == nil {
					continue
				}
				full = append(full, match[1]+constants[match[2]])
			}
			if len(full) == 0 || full[len(full)-1] == "" {
				t.Errorf("%s: a metric whose name is no constant: %s", directory, options[1])
			}
			names[strings.Join(full, "_")] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// eventReasons are what Events are filtered by: the second arguments of calls that record one,
// and the constants called reason..., sorted.
func eventReasons(t *testing.T) []string {
	t.Helper()
	camel := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	reasons := map[string]bool{}
	for directory, text := range sources(t) {
		constants := constantsIn(text)
		for name, value := range constants {
			if strings.HasPrefix(name, "reason") && camel.MatchString(value) {
				reasons[value] = true
			}
		}
		for _, match := range regexp.MustCompile(`(?s)\.(?:Warn|Normal|warn)\([^;]{0,200}?,`+
			`\s+(?:"(\w+)"|(\w+)),`).FindAllStringSubmatch(text,
			-1) {
			switch reason := match[1] + constants[match[2]]; {
			case camel.MatchString(reason):
				reasons[reason] = true
			case match[2] != "reason": // handed on, or one of the constants above
				t.Errorf("%s: %s has a reason that is neither a constant nor called reason", directory, match[0])
			}
		}
	}
	return slices.Sorted(maps.Keys(reasons))
}
