// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/await"
)

// Client is a user who retries until there is an answer that means something, so that the
// model is never in doubt about what there is.
type Client struct {
	kubernetes.Interface
}

// AttemptTimeout bounds one attempt of Retry.
const AttemptTimeout = 5 * time.Second

// Retry repeats do until it succeeds or ctx ends. A refusal by the product or by rules of
// kube-apiserver is tried again as well: a namespace that is not known yet will be.
func Retry(ctx context.Context, what string, do func(context.Context) error) error {
	err := await.Poll(ctx, func(ctx context.Context) error {
		once, cancel := context.WithTimeout(ctx, AttemptTimeout)
		defer cancel()
		return do(once)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// objects is a client for one kind of objects.
type objects[T metav1.Object] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// create creates an object and sets its UID. An earlier attempt may have created it.
func create[T metav1.Object](ctx context.Context, api objects[T], object T, uid *types.UID) error {
	return Retry(ctx, fmt.Sprintf("create %T %s", object, object.GetName()), func(ctx context.Context) error {
		made, err := api.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			made, err = api.Get(ctx, object.GetName(), metav1.GetOptions{})
		}
		if err == nil {
			*uid = made.GetUID()
		}
		return err
	})
}

// CreateNamespace creates a namespace.
func (c Client) CreateNamespace(ctx context.Context, name string) error {
	var uid types.UID
	return create(ctx, c.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, &uid)
}

// DeleteNamespace does what a namespace controller would, for there is none.
func (c Client) DeleteNamespace(ctx context.Context, name string) error {
	all := metav1.ListOptions{}
	core := c.CoreV1()
	return Retry(ctx, "delete namespace "+name, func(ctx context.Context) error {
		now := metav1.NewDeleteOptions(0)
		for _, remove := range []func() error{
			func() error { return core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{}) },
			func() error { return core.Pods(name).DeleteCollection(ctx, *now, all) },
			func() error { return core.ServiceAccounts(name).DeleteCollection(ctx, metav1.DeleteOptions{}, all) },
			func() error { return core.Secrets(name).DeleteCollection(ctx, metav1.DeleteOptions{}, all) },
			func() error { return core.ConfigMaps(name).DeleteCollection(ctx, metav1.DeleteOptions{}, all) },
		} {
			if err := remove(); err != nil && !apierrors.IsNotFound(err) {
				// It says so once it is being deleted, until it is finalized.
				if !apierrors.IsConflict(err) {
					return err
				}
			}
		}
		_, err := core.Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
		return Ignore(err, apierrors.IsNotFound)
	})
}

// CreateAccount creates a ServiceAccount and sets the UID of account.
func (c Client) CreateAccount(ctx context.Context, namespace, name string, account *Account) error {
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"user/note": account.Note}}}
	for _, foreign := range account.Foreign {
		object.Secrets = append(object.Secrets, corev1.ObjectReference{Name: foreign})
	}
	for _, pull := range account.Pulls {
		object.ImagePullSecrets = append(object.ImagePullSecrets, corev1.LocalObjectReference{Name: pull})
	}
	err := create(ctx, c.CoreV1().ServiceAccounts(namespace), object, &account.UID)
	account.Since = time.Now()
	return err
}

// AnnotateAccount sets the annotation of the user.
func (c Client) AnnotateAccount(ctx context.Context, namespace, name string, uid types.UID, note string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{"user/note":%q}}}`, uid, note)
	return Retry(ctx, "annotate serviceaccount "+name, func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// MakeTokenSecret creates a token Secret of an account that is in the model, and adds it to that.
func (c Client) MakeTokenSecret(ctx context.Context, n *Namespace, name, account, extra string) error {
	secret := &TokenSecret{Account: account, Owner: n.Accounts[account].UID, Extra: extra}
	n.Secrets[name] = secret
	n.Accounts[account].AwaitNextSecond(ctx)
	return c.CreateTokenSecret(ctx, n.Name, name, secret)
}

// RemoveAccount deletes an account, also from the model.
func (c Client) RemoveAccount(ctx context.Context, n *Namespace, name string) error {
	uid := n.Accounts[name].UID
	delete(n.Accounts, name)
	return c.DeleteAccount(ctx, n.Name, name, uid)
}

// AddReference has the account list a Secret, beside what it lists, as kube-controller-manager did.
func (c Client) AddReference(ctx context.Context, namespace, name, secret string) error {
	patch := fmt.Appendf(nil, `{"secrets":[{"name":%q}]}`, secret)
	return Retry(ctx, "edit serviceaccount "+name, func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{FieldManager: "kube-controller-manager"})
		return err
	})
}

// DeleteAccount deletes the ServiceAccount with that UID.
func (c Client) DeleteAccount(ctx context.Context, namespace, name string, uid types.UID) error {
	return Retry(ctx, "delete serviceaccount "+name, func(ctx context.Context) error {
		return Ignore(c.CoreV1().ServiceAccounts(namespace).Delete(ctx, name, only(uid)), isGone)
	})
}

// CreateTokenSecret creates a token Secret without a token and sets the UID of secret.
func (c Client) CreateTokenSecret(ctx context.Context, namespace, name string, secret *TokenSecret) error {
	return create(ctx, c.CoreV1().Secrets(namespace), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: secret.Account}},
		Type:       corev1.SecretTypeServiceAccountToken,
		Data:       map[string][]byte{"extra": []byte(secret.Extra)},
	}, &secret.UID)
}

// DeleteSecret deletes the Secret with that UID, or any of the name if the UID is empty.
func (c Client) DeleteSecret(ctx context.Context, namespace, name string, uid types.UID) error {
	return Retry(ctx, "delete secret "+name, func(ctx context.Context) error {
		return Ignore(c.CoreV1().Secrets(namespace).Delete(ctx, name, only(uid)), isGone)
	})
}

// only has a deletion mean the object of that UID, and whichever there is without one. A try
// that had no answer may still be on its way when another object of the name is there.
func only(uid types.UID) metav1.DeleteOptions {
	if uid == "" {
		return metav1.DeleteOptions{}
	}
	return *metav1.NewPreconditionDeleteOptions(string(uid))
}

// isGone reports whether there is no such object, or another one of the name.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// lastOwn is the last of the Secrets that the account lists and that have the name of an
// auto-created one, "" if there is none.
func (c Client) lastOwn(ctx context.Context, namespace, account string) (own string, err error) {
	err = Retry(ctx, "get serviceaccount "+account, func(ctx context.Context) error {
		object, err := c.CoreV1().ServiceAccounts(namespace).Get(ctx, account, metav1.GetOptions{})
		for _, ref := range object.Secrets {
			if IsOwnName(account, ref.Name) {
				own = ref.Name
			}
		}
		return err
	})
	return own, err
}

// spoilRootCA is a user who edits what is published.
func (c Client) spoilRootCA(ctx context.Context, namespace string) error {
	return Retry(ctx, "edit "+RootCAConfigMap, func(ctx context.Context) error {
		_, err := c.CoreV1().ConfigMaps(namespace).Patch(ctx, RootCAConfigMap, types.MergePatchType,
			[]byte(`{"data":{"ca.crt":"nothing"}}`), metav1.PatchOptions{})
		return Ignore(err, apierrors.IsNotFound) // it is not published yet
	})
}

// Ignore returns nil for an error that is harmless.
func Ignore(err error, harmless func(error) bool) error {
	if harmless(err) {
		return nil
	}
	return err
}

// RestartTimeout bounds how long a process or kube-apiserver may take to be back.
const RestartTimeout = 4 * time.Minute

// Operations of users on auto-created Secrets. None of them may have the product delete one.
const (
	Edited = "edit references"
	Copied = "copy an auto-created Secret"
)

// EditReferences is a user who replaces the list of an account by one that has none of its
// auto-created Secrets, but one of the user's own if there is any. What the list had must stay from now on.
func (c Client) EditReferences(ctx context.Context, n *Namespace, name string) error {
	account := n.Accounts[name]
	account.Edited = true
	listed, err := c.autoCreated(ctx, n.Name, name, account)
	if err != nil {
		return err
	}
	users := n.usersSecrets(name) // copies of auto-created ones among them, which the account may list
	add := users[:min(len(users), 1)]
	for _, secret := range listed {
		// A successor that was never used is the one auto-created Secret that may be deleted.
		if _, used := secret.Labels[LastUsedLabel]; used || secret.Annotations[ReplacesLabel] == "" {
			n.Secrets[secret.Name] = &TokenSecret{UID: secret.UID, Account: name, Owner: account.UID, Extra: string(secret.Data["extra"])}
		}
	}
	return Retry(ctx, "edit serviceaccount "+name, func(ctx context.Context) error {
		object, err := c.CoreV1().ServiceAccounts(n.Name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.Secrets = slices.DeleteFunc(object.Secrets, func(ref corev1.ObjectReference) bool {
			return IsOwnName(name, ref.Name) || slices.Contains(users, ref.Name)
		})
		for _, secret := range add {
			object.Secrets = append(object.Secrets, corev1.ObjectReference{Name: secret})
		}
		_, err = c.CoreV1().ServiceAccounts(n.Name).Update(ctx, object, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
		return err
	})
}

// autoCreated are the auto-created Secrets that the account lists. The token of each has been
// used.
func (c Client) autoCreated(ctx context.Context, namespace, name string, account *Account) (listed []*corev1.Secret, err error) {
	secrets := c.CoreV1().Secrets(namespace)
	err = Retry(ctx, "get the Secrets of serviceaccount "+name, func(ctx context.Context) error {
		listed = nil
		object, err := c.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, ref := range object.Secrets {
			secret, err := secrets.Get(ctx, ref.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && (!IsOwnName(name, ref.Name) || Owner(secret) != account.UID) {
				continue
			}
			if err == nil {
				err = c.useToken(ctx, string(secret.Data[corev1.ServiceAccountTokenKey]))
			}
			if err == nil {
				secret, err = secrets.Get(ctx, ref.Name, metav1.GetOptions{})
			}
			if err != nil {
				return err
			}
			listed = append(listed, secret)
		}
		return nil
	})
	return listed, err
}

// useToken has kube-apiserver note in the Secret that the token was used.
func (c Client) useToken(ctx context.Context, token string) error {
	_, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	return err
}

// CopySecret is a user who applies the YAML of a token Secret under another name, without its data.
func (c Client) CopySecret(ctx context.Context, n *Namespace, from, to, extra string) error {
	var original *corev1.Secret
	err := Retry(ctx, "get secret "+from, func(ctx context.Context) (err error) {
		original, err = c.CoreV1().Secrets(n.Name).Get(ctx, from, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			original, err = nil, nil
		}
		return err
	})
	if err != nil || original == nil {
		return err
	}
	name := original.Annotations[corev1.ServiceAccountNameKey]
	account := n.Accounts[name]
	if account == nil || Owner(original) != account.UID {
		return nil // it belonged to the previous account of the name
	}
	account.Edited = true
	account.AwaitNextSecond(ctx)
	secret := &TokenSecret{Account: name, Owner: account.UID, Extra: extra}
	n.Secrets[to] = secret
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: to, Labels: original.Labels, Annotations: original.Annotations},
		Type:       original.Type,
		Data:       map[string][]byte{"extra": []byte(extra)},
	}
	if err := create(ctx, c.CoreV1().Secrets(n.Name), object, &secret.UID); err != nil {
		return fmt.Errorf("copy a token Secret: %w", err)
	}
	return nil
}
