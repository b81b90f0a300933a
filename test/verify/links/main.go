// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command links checks the Markdown pages given as arguments: every relative
// link must lead to a file or directory that exists and, if it has a fragment,
// to a heading of that page. Links to other hosts are not followed. It prints
// the broken ones and exits with 1 if there are any.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	code := 0
	for _, page := range os.Args[1:] {
		problems, err := check(page)
		if err != nil {
			problems = append(problems, err.Error())
		}
		for _, problem := range problems {
			fmt.Fprintf(os.Stderr, "%s: %s\n", page, problem)
			code = 1
		}
	}
	os.Exit(code)
}

// check returns one line for each broken link of a page.
func check(page string) ([]string, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	var problems []string
	for _, link := range links(string(text)) {
		if problem := follow(page, link); problem != "" {
			problems = append(problems, fmt.Sprintf("%s: %s", link, problem))
		}
	}
	return problems, nil
}

// follow says what is wrong with a link, or nothing.
func follow(page, link string) string {
	path, fragment, _ := strings.Cut(link, "#")
	target := page
	if path != "" {
		target = filepath.Join(filepath.Dir(page), path)
	}
	info, err := os.Stat(target)
	if err != nil {
		return "no such file"
	}
	if fragment == "" || info.IsDir() || filepath.Ext(target) != ".md" {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return err.Error()
	}
	if !anchors(string(text))[fragment] {
		return "no such heading"
	}
	return ""
}

// links returns the relative targets of inline links, images and references.
// Code is no link.
func links(text string) []string {
	patterns := []*regexp.Regexp{regexp.MustCompile(`\]\(<?([^)\s>]+)`), regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s+<?([^\s>]+)`)}
	var found []string
	text = withoutCode(text)
	for _, pattern := range patterns {
		for _, match := range pattern.FindAllStringSubmatch(text, -1) {
			if link := match[1]; !regexp.MustCompile(`^([a-z]+:|//)`).MatchString(link) {
				found = append(found, link)
			}
		}
	}
	return found
}

// anchors are the fragments that GitHub gives the headings of a page: lower
// case, blanks as hyphens, no punctuation, a number behind repeated ones.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	heading := regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*#*$`)
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, match := range heading.FindAllStringSubmatch(withoutFences(text), -1) {
		anchor := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-")
		unique := anchor
		for n := 1; found[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", anchor, n)
		}
		found[unique] = true
	}
	return found
}

func withoutCode(text string) string {
	return regexp.MustCompile("`[^`\n]+`").ReplaceAllString(withoutFences(text), "")
}

// withoutFences drops fenced code blocks, in which # starts a comment.
func withoutFences(text string) string {
	var kept strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
