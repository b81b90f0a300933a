// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/component"
)

// writes does the first n writes of a way, each of which is one rename or removal, and returns how many there are.
func (p *controlPlane) writeFirst(t *testing.T, way way, n int) (all int) {
	t.Helper()
	for _, s := range p.steps(t, way) {
		for _, w := range s.writes {
			if all < n {
				testutil.Must(t, w.Do())
			}
			all++
		}
	}
	return all
}

// TestKilled ends a takeover before each of its writes, and a handback after it: each later handback leaves both manifests
// byte for byte, also where a person has edited them in between or a takeover was before.
func TestKilled(t *testing.T) {
	t.Parallel()
	everything := func(c *Config) {
		c.ExternalSigner, c.Rewrite, c.Given = true, true, []string{"--token-secrets=auto"}
	}
	edited := func(t *testing.T, p *controlPlane) {
		p.change(t, component.APIServer, "--allow-privileged=true", "--allow-privileged=false")
		p.change(t, component.ControllerManager, "--cluster-name=kind", "--cluster-name=other")
	}
	for name, tc := range map[string]struct {
		sample string
		before func(*testing.T, *controlPlane) // an earlier takeover, nil for none
		edit   func(*testing.T, *controlPlane)
	}{
		"First": {sample: "v1.37"},
		"HandWritten": {sample: "v1.37", edit: func(t *testing.T, p *controlPlane) {
			for _, file := range []string{apiServerFile, kcmFile} {
				p.write(t, file, []byte("# by hand\r\n"+strings.ReplaceAll(p.files(t)[file], "\n", "\r\n")))
			}
		}},
		"Second": {sample: "v1.37", edit: edited, before: func(t *testing.T, p *controlPlane) { p.writeSteps(t, takeover, all) }},
	} {
		for k := 0; ; k++ {
			p := newControlPlane(t, tc.sample)
			if tc.before != nil {
				tc.before(t, p)
			}
			if tc.edit != nil {
				tc.edit(t, p)
			}
			never := newControlPlane(t, tc.sample)
			if tc.edit != nil {
				tc.edit(t, never)
			}
			want := never.files(t)
			everything(&p.config)
			takes := p.writeFirst(t, takeover, k)
			back := 0
			if k > takes {
				back = p.writeFirst(t, handback, k-takes)
			}
			p.writeSteps(t, handback, all)
			got := p.files(t)
			for _, file := range []string{apiServerFile, kcmFile} {
				testutil.Check(t, fmt.Sprintf("%s, killed after %d writes: %s", name, k, file), want[file], got[file])
			}
			for file := range got {
				if strings.HasPrefix(file, "sa-controller-manager-patches/") || file == ownFile ||
					file == "sa-controller-manager-backup/record.json" {
					t.Errorf("%s, killed after %d writes: %s is left", name, k, file)
				}
			}
			if k > takes && k-takes > back {
				break
			}
		}
	}
}

// TestRestartTenTimes: the annotation is ours, wherever it is.
func TestRestartTenTimes(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]int{"NotTakenOver": 0, "TakenOver": all} {
		for _, one := range []string{component.APIServer, component.ControllerManager} {
			p := newControlPlane(t, "v1.37")
			before := p.files(t)
			p.writeSteps(t, takeover, steps)
			taken := p.files(t)
			for i := range 10 {
				value := fmt.Sprint(i)
				p.writeFirst(t, func(c *Config, o *observed) ([]step, error) {
					s, err := c.planRestart(o, one, value)
					return []step{s}, err
				}, all)
				testutil.Expect(t, strings.Contains(p.files(t)["manifests/"+one+".yaml"],
					"\n    "+component.RestartAnnotation+": \""+value+"\"\n"),
					"%s: no annotation in\n%s", name, p.files(t)["manifests/"+one+".yaml"])
			}
			if steps == all { // one more takeover restarts nothing
				restarted := p.files(t)
				p.writeSteps(t, takeover, all)
				testutil.Check(t, name+": another takeover", restarted, p.files(t))
				testutil.Check(t, name+": the patch for kubeadm", taken[apiServerPatch], restarted[apiServerPatch])
			}
			p.writeSteps(t, handback, all)
			testutil.Check(t, name+": after the handback", before, p.withoutBackups(t))
		}
	}
}
