// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/podsecrets"
)

const (
	// TokenPath is where programs in a Pod expect a token (client-go, rest.InClusterConfig).
	TokenPath = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // G101: a path, no credential

	// projectedPrefix begins the name of every projected token volume. Any volume with this prefix
	// counts as one.
	projectedPrefix = "kube-api-access-"

	// tokenSeconds is the requested lifetime. kube-apiserver extends exactly this one to a year if
	// configured to extend tokens, and warns when such a token is used after the 3607 seconds
	// (k8s.io/kubernetes pkg/serviceaccount, WarnOnlyBoundTokenExpirationSeconds).
	tokenSeconds = 3607

	// longestNameBase leaves room for a random suffix in a name of 63 characters.
	longestNameBase = validation.DNS1123LabelMaxLength - 5
)

// addedVolume holds the fields of a v1 volume that the plugin adds.
type addedVolume struct {
	Name      string                     `json:"name"`
	Secret    *corev1.SecretVolumeSource `json:"secret,omitempty"`
	Projected jsontext.Value             `json:"projected,omitempty"` // a corev1.ProjectedVolumeSource

	exists bool // in the Pod, which has it already
}

// addedMount is a mount of an addedVolume.
type addedMount struct {
	Name      string `json:"name"`
	ReadOnly  bool   `json:"readOnly"`
	MountPath string `json:"mountPath"`
}

// wantsToken reports whether a token has to be mounted in a Pod of account.
func (c Config) wantsToken(pod *pod, account *corev1.ServiceAccount) bool {
	return c.MountServiceAccountToken && automounts(pod, account) && pod.Spec.lacksMount()
}

// mountToken mounts a token in every container and init container that has no mount at the token's
// path. It returns the account, or a newer version of it that lists the token.
func (p *Plugin) mountToken(ctx context.Context, request *admission.Request, edits *edits,
	account *corev1.ServiceAccount) (*corev1.ServiceAccount, error) {
	if p.config.Mode == Projected {
		return account, edits.mount(ctx, p.projectedVolume(edits.pod.Spec))
	}
	account, secret, err := p.token(ctx, request, account)
	if err != nil || secret == "" {
		return account, err
	}
	return account, edits.mount(ctx, p.secretVolume(edits.pod.Spec, secret))
}

// lacksMount reports whether a container mounts nothing at the token's path.
func (s *podSpec) lacksMount() bool {
	return slices.ContainsFunc(s.InitContainers, lacksMount) || slices.ContainsFunc(s.Containers, lacksMount)
}

// lacksMount compares paths as they are written, as upstream does.
func lacksMount(c *podsecrets.Container) bool {
	return !slices.ContainsFunc(c.VolumeMounts, func(m podsecrets.Mount) bool { return m.MountPath == TokenPath })
}

// mount adds the volume, unless the Pod has it, and the mounts that are missing.
func (e *edits) mount(ctx context.Context, v addedVolume) error {
	if len(v.Name) > validation.DNS1123LabelMaxLength { // each mount repeats it
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the token volume has more than %d bytes", validation.DNS1123LabelMaxLength))
	}
	if !v.exists {
		e.addVolume(v)
	}
	mount := podsecrets.Mount{Name: v.Name, MountPath: TokenPath}
	encoded := e.encode(&addedMount{Name: v.Name, ReadOnly: true, MountPath: TokenPath})
	for _, list := range e.pod.Spec.Lists() {
		// Ephemeral containers join a complete Pod and bring their own mounts.
		if list.Role == podsecrets.RoleEphemeral {
			continue
		}
		for i, c := range list.Containers {
			if err := ctx.Err(); err != nil {
				return err
			}
			if lacksMount(c) {
				e.addMount(list, i, mount, encoded)
			}
		}
	}
	return nil
}

// projectedVolume returns the Pod's own token volume, or a new one.
func (p *Plugin) projectedVolume(spec *podSpec) addedVolume {
	for i := range spec.Volumes {
		if name := spec.Volumes[i].Name; strings.HasPrefix(name, projectedPrefix) {
			return addedVolume{Name: name, exists: true}
		}
	}
	name := projectedPrefix + p.from.Suffix()
	return addedVolume{Name: name, Projected: p.projection}
}

// tokenProjection provides the same files as a token Secret: token, CA and namespace. Defaults are
// explicit, so that kube-apiserver adds nothing.
func tokenProjection() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: corev1.ServiceAccountTokenKey, ExpirationSeconds: ptr.To[int64](tokenSeconds),
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     corev1.ServiceAccountNamespaceKey,
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}

// encodedProjection returns tokenProjection as JSON. It is the same for all Pods.
func encodedProjection() jsontext.Value {
	encoded, err := json.Marshal(tokenProjection())
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return encoded
}

// secretVolume returns the Pod's own volume of that Secret, or a new one.
func (p *Plugin) secretVolume(spec *podSpec, secret string) addedVolume {
	for i := range spec.Volumes {
		if own := spec.Volumes[i].Secret; own != nil && own.SecretName == secret {
			return addedVolume{Name: spec.Volumes[i].Name, exists: true}
		}
	}
	source := &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: ptr.To(corev1.SecretVolumeSourceDefaultMode)}
	return addedVolume{Name: p.secretVolumeName(spec, secret), Secret: source}
}

// secretVolumeName derives a volume name from the Secret's name: without dots and with at most 63
// characters.
func (p *Plugin) secretVolumeName(spec *podSpec, secret string) string {
	name := strings.ReplaceAll(secret, ".", "-")
	taken := slices.ContainsFunc(spec.Volumes, func(v podsecrets.Volume) bool { return v.Name == name })
	if !taken && len(name) <= validation.DNS1123LabelMaxLength {
		return name
	}
	return name[:min(len(name), longestNameBase-1)] + "-" + p.from.Suffix()
}

// tokenTimeout limits the wait for a token. Most requests have an earlier deadline.
const tokenTimeout = 10 * time.Second

// token returns the name of the account's token Secret, and the version of the account that lists
// it. The name is "" if there is none and none is required.
func (p *Plugin) token(ctx context.Context, request *admission.Request,
	account *corev1.ServiceAccount) (*corev1.ServiceAccount, string, error) {
	if secret := p.from.usableSecret(account); secret != "" || !p.config.RequireAPIToken {
		return account, secret, nil
	}
	if request.NoWait {
		return nil, "", noToken(account)
	}
	if !p.from.Waiters.enter(account.Namespace) {
		return nil, "", tooManyWaiters()
	}
	defer p.from.Waiters.leave(account.Namespace)
	newer, secret, ok := p.from.awaitToken(ctx, cache.MetaObjectToName(account))
	if !ok {
		return nil, "", noToken(account)
	}
	return newer, secret, nil
}

// usableSecret returns the first usable token Secret that the account lists, "" if there is none.
func (d *Dependencies) usableSecret(account *corev1.ServiceAccount) string {
	for _, reference := range account.Secrets {
		if d.UsableToken(account, reference.Name) {
			return reference.Name
		}
	}
	return ""
}

// awaitToken waits until the cached account lists a usable token Secret.
func (d *Dependencies) awaitToken(ctx context.Context, name cache.ObjectName) (account *corev1.ServiceAccount, secret string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	ok = d.Waiters.await(ctx, name, func() bool {
		cached, err := d.Accounts.ServiceAccounts(name.Namespace).Get(name.Name)
		if err != nil {
			return false
		}
		account, secret = cached, d.usableSecret(cached)
		return secret != ""
	})
	return account, secret, ok
}

// noToken has the text and the status of Kubernetes 1.20 and before; clients retry. The controller
// that creates token Secrets may run elsewhere and does not know of these Pods.
func noToken(account *corev1.ServiceAccount) error {
	refusal := apierrors.NewServerTimeout(corev1.Resource("serviceaccounts"), "create pod", 1)
	refusal.ErrStatus.Message = fmt.Sprintf("No API token found for service account %q, retry after the token is automatically created "+
		"and added to the service account (no token is created in an excluded namespace, as %q may be, or where token Secrets "+
		"are manual)", account.Name, account.Namespace)
	return refusal
}
