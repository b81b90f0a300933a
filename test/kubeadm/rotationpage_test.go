// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"
)

// rotationPage is docs/rotation.md and the node on which a reader follows it.
type rotationPage struct {
	node     *node
	sections map[string]string // the commands below each heading
	good     map[string]string // tokens that have to be accepted, by whose they are
}

func openRotationPage(t *testing.T) *rotationPage {
	t.Helper()
	p := &rotationPage{node: newNode(t), sections: readRotationPage(t), good: map[string]string{}}
	awaitDefaultAccount(t, p.node, "default")
	awaitDefaultAccount(t, p.node, "kube-system")
	return p
}

// readRotationPage returns the commands below each heading that has any.
func readRotationPage(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../docs/rotation.md")
	testutil.Must(t, err)
	sections := map[string]string{}
	heading, fenced := "", false
	for line := range strings.Lines(string(content)) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && !fenced && fence != "sh test":
			t.Fatalf("a block of %q that nobody runs", fence)
		case isFence:
			fenced = !fenced
		case fenced && !slices.Contains(headings(), heading):
			t.Fatalf("nobody runs the commands below %q", heading)
		case fenced:
			sections[heading] += line
		case strings.HasPrefix(line, "##"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return sections
}

// follow types what is below a heading into a shell.
func (p *rotationPage) follow(t *testing.T, heading string) {
	t.Helper()
	if p.sections[heading] == "" {
		t.Fatalf("the page has no commands below %q", heading)
	}
	p.run(t, heading, p.sections[heading])
}

// run runs commands in a shell that knows what is to be pasted first.
func (p *rotationPage) run(t *testing.T, heading, commands string) {
	t.Helper()
	if printed, err := p.node.shell(t, p.sections[pasteFirst]+commands).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s\nprinted:\n%s\n%s", heading, err, commands, printed, p.node.kubelet)
	}
}

func startTime() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^process_start_time_seconds .*$`)
}

// headerOf reads a token without verifying it.
func headerOf(t *testing.T, token string) tokens.Token {
	t.Helper()
	content, err := tokens.Inspect(token)
	testutil.Must(t, err)
	return content
}

// allAccepted asks until kube-apiserver has answered; it may be on its way out or in.
func (n *node) allAccepted(t *testing.T, when string, all map[string]string) {
	t.Helper()
	n.reviewed(t, when, all, true)
}

// reviewed asks until kube-apiserver accepts all tokens, or refuses them.
func (n *node) reviewed(t *testing.T, when string, all map[string]string, accepted bool) {
	t.Helper()
	for whose, token := range all {
		poll(t, when+", the token "+whose, func(ctx context.Context) error {
			review, err := n.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token},
			}, metav1.CreateOptions{})
			if err == nil && review.Status.Authenticated != accepted {
				err = fmt.Errorf("it is accepted: %t, want %t: %s", !accepted, accepted, review.Status.Error)
			}
			return err
		})
	}
}
