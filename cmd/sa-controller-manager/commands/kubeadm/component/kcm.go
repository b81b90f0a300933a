// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

// RootCAFlag is the same flag in kube-controller-manager and in ours.
const RootCAFlag = "root-ca-file"

// class says what a takeover does with a flag of kube-controller-manager.
type class string

const (
	carriedOver class = "carried over"
	notNeeded   class = "not needed here"
	unknown     class = "unknown"
)

// kcmFlags are flags of kube-controller-manager that our process has too. carry returns our value; it
// is nil for flags that we do not need.
type kcmFlags struct {
	names  string // separated by spaces
	reason string
	carry  func(k *Carried, name string) (string, error)
}

// kcmTable has the flags that are carried over and those not needed here that have a reason of their
// own. Others that our process accepts as kube-controller-manager does are about each one's own clients,
// port, metrics or log. One that our process does not know is named in the plan.
func kcmTable() []kcmFlags {
	return []kcmFlags{
		{KeyFlag, "signs the tokens of Secrets", (*Carried).key},
		{RootCAFlag, "is published in kube-root-ca.crt, token Secrets and the ClusterTrustBundle", (*Carried).rootCA},
		{ControllersFlag, "controllers that are off stay off", (*Carried).controllers},
		{"legacy-service-account-token-clean-up-period", "when an unused token is marked and deleted", (*Carried).last},
		{"concurrent-serviceaccount-token-syncs", "the workers for token Secrets", (*Carried).last},
		{"leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period", "how soon another replica leads", (*Carried).last},

		{"use-service-account-credentials", "our process is one user", nil},
		{"kube-api-qps kube-api-burst", "a limit would throttle the admission of Pods", nil},
		{"feature-gates", "our process has none", nil},
		{"leader-elect", "our replicas always elect a leader", nil},
		{"leader-elect-resource-name leader-elect-resource-namespace", "that Lease is kube-controller-manager's", nil},
	}
}

// Carried is what our process takes over of kube-controller-manager as the operator configured it.
type Carried struct {
	// Args are our flags, and Files what they name on the host.
	Args, Files []string

	*staticpod.Manifest

	own      staticpod.Command // of our manifest that is there
	flags    *pflag.FlagSet    // of our process
	verdicts []verdict
}

// verdict is a line of the table that a dry run prints.
type verdict struct {
	flag, theirs string
	class        class
	reason       string
}

// Carry decides about every flag, and refuses values that it cannot carry over. flags are those of our process, and own is
// the command of our manifest if no record says what takeovers have changed: it then knows more.
func Carry(m *staticpod.Manifest, flags *pflag.FlagSet, own staticpod.Command) (*Carried, error) {
	k := &Carried{Manifest: m, flags: flags, own: own}
	var all []error
	seen := map[string]bool{}
	// Without the first two flags kube-controller-manager differs from our manifest.
	for _, name := range append([]string{KeyFlag, RootCAFlag}, m.Command().Given()...) {
		if seen[name] {
			continue
		}
		seen[name] = true
		v, err := k.decide(name)
		if err != nil {
			all = append(all, fmt.Errorf("--%s of %s: %w", name, ControllerManager, err))
		}
		k.verdicts = append(k.verdicts, v)
	}
	return k, errors.Join(all...)
}

func (k *Carried) decide(name string) (verdict, error) {
	v := verdict{flag: name, theirs: strings.Join(k.Command().All(name), " "), class: notNeeded}
	for _, flags := range kcmTable() {
		if !slices.Contains(strings.Fields(flags.names), name) {
			continue
		}
		v.reason = flags.reason
		if flags.carry == nil {
			return v, nil
		}
		v.class = carriedOver
		value, err := flags.carry(k, name)
		if value != "" || name != ControllersFlag {
			k.Args = append(k.Args, Assign(name, value))
		}
		return v, err
	}
	if flag := k.flags.Lookup(name); flag == nil || !strings.HasPrefix(options.OriginOf(flag), "as KCM") {
		v.class, v.reason = unknown, "this version does not know the flag, and so not what it changes"
		return v, nil
	}
	v.reason = "is for its own process"
	for _, ignored := range options.IgnoredFlags() {
		if ignored.Name == name {
			v.reason = "is about " + ignored.Of
		}
	}
	return v, nil
}

// last returns the value of a flag that takes one.
func (k *Carried) last(name string) (string, error) {
	return k.Command().Last(name), k.Understands(name)
}

func (k *Carried) rootCA(name string) (string, error) {
	file, err := k.last(name)
	if err != nil || file == "" {
		return "", err // then both publish the CA of their kubeconfig
	}
	return k.visible(file)
}

// key returns the signing key. If none is named, our existing manifest may have it.
func (k *Carried) key(name string) (string, error) {
	file, err := k.last(name)
	if err != nil {
		return "", err
	}
	if file != "" {
		return k.visible(file)
	}
	for _, file := range slices.Backward(k.own.All(name)) {
		if file != "" {
			k.Files = append(k.Files, file)
			return file, nil
		}
	}
	return "", nil
}

// visible returns the path at which our Pod sees a file, which is its path on the host.
func (k *Carried) visible(file string) (string, error) {
	host, err := k.HostPath(file)
	if err != nil {
		return "", err
	}
	if err := manifests.Mountable(host); err != nil {
		return "", err
	}
	k.Files = append(k.Files, host)
	return host, nil
}

// controllers turns off the controllers that are off in kube-controller-manager, "" if none is.
func (k *Carried) controllers(name string) (string, error) {
	selectors := []string{allControllers}
	ours, err := OwnControllers(k.own)
	if err != nil {
		return "", err
	}
	for _, one := range replacedControllers(k.Image()) {
		// Without a record, those that ours runs may be off because of ours.
		if on, _ := isEnabled(k.Command().List(name), one); !on && (k.own == nil || !ours.Enabled(one.name)) {
			selectors = append(selectors, "-"+one.name)
		}
	}
	if len(selectors) == 1 {
		selectors = nil
	}
	return strings.Join(selectors, ","), k.Understands(name)
}

// Notes name the flags that this version does not know.
func (k *Carried) Notes() []string {
	var notes []string
	for _, v := range k.verdicts {
		if v.class == unknown {
			notes = append(notes, fmt.Sprintf("Not taken over: --%s=%s of %s: %s.", v.flag, v.theirs, ControllerManager, v.reason))
		}
	}
	return notes
}

// Table prints a line for each flag. ours is the command of our manifest.
func (k *Carried) Table(w io.Writer, ours staticpod.Command) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "FLAG\tKUBE-CONTROLLER-MANAGER\tOURS\tCLASS\tREASON")
	for _, v := range k.verdicts {
		value := "-"
		if v.class == carriedOver {
			value = ours.Last(v.flag)
			if v.flag == ControllersFlag {
				value = selectors(ours)
			}
		}
		fmt.Fprintf(out, "--%s\t%s\t%s\t%s\t%s\n", v.flag, v.theirs, value, v.class, v.reason)
	}
	fmt.Fprintln(out)
	_ = out.Flush() // as for all other output, a write error cannot be handled
}

// CheckControllers refuses to turn off a controller in kube-controller-manager that our process would not
// run with its command. of is the manifest as the operator has it.
func CheckControllers(of *staticpod.Manifest, own staticpod.Command) error {
	here, err := OwnControllers(own)
	if err != nil {
		return err
	}
	key, ring := own.Last(KeyFlag), own.Last(KeyRingFlag)
	nowhere := func(name string) error {
		return fmt.Errorf("%s runs in kube-controller-manager and would run nowhere after the takeover: "+
			"our manifest has --%s=%s, --%s=%s and --%s=%s; change that with --extra-arg (without \"*\" only controllers that are named run)",
			name, ControllersFlag, selectors(own), KeyFlag, key, KeyRingFlag, ring)
	}
	for _, one := range replacedControllers(of.Image()) {
		if runsController(of.Command().List(ControllersFlag), one) && !here.Enabled(one.name) {
			return nowhere(one.name)
		}
	}
	if token := tokenController().name; of.Command().Last(KeyFlag) != "" && (!here.Enabled(token) || key+ring == "") {
		return nowhere(token)
	}
	return nil
}

// RunsHereAlone returns the controllers that our process runs with its command and kube-controller-manager, as its manifest is,
// does not.
func RunsHereAlone(kcm *staticpod.Manifest, own staticpod.Command) (names []string, err error) {
	here, err := OwnControllers(own)
	if err != nil {
		return nil, err
	}
	for _, one := range replacedControllers(kcm.Image()) {
		if here.Enabled(one.name) && !runsController(kcm.Command().List(ControllersFlag), one) {
			names = append(names, one.name)
		}
	}
	signs := own.Last(KeyFlag)+own.Last(KeyRingFlag) != "" && here.Enabled(tokenController().name)
	if signs && kcm.Command().Last(KeyFlag) == "" {
		names = append(names, tokenController().name)
	}
	return names, nil
}

// selectors returns the controllers that our command turns on and off.
func selectors(own staticpod.Command) string {
	return cmp.Or(strings.Join(own.All(ControllersFlag), ","), allControllers)
}

// OwnControllers returns the controllers that run with our command.
func OwnControllers(own staticpod.Command) (options.ControllerSet, error) {
	set, err := options.ParseControllers(staticpod.Split(selectors(own)))
	if err != nil {
		return set, fmt.Errorf("our --%s: %w", ControllersFlag, err)
	}
	return set, nil
}
