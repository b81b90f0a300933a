// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount ensures that the named ServiceAccounts exist in every Active
// namespace. It creates them by a template, again if they are deleted, and never changes one that
// exists.
// Creating is idempotent, so more than one process may do it.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/accounttemplate"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

const (
	// queueName is upstream's (pkg/controller/serviceaccount/serviceaccounts_controller.go).
	queueName = "serviceaccount"

	// workers is more than upstream's one, because a worker mostly waits for kube-apiserver.
	workers = 8

	// requeueAfter is the delay of the next sync of a namespace in which an account was created.
	// uncachedRecheck is the delay if the account existed already and the cache lacks it, which
	// lasts as long as the watch hangs. An account that is deleted meanwhile causes no event.
	requeueAfter    = 10 * time.Second
	uncachedRecheck = time.Minute
)

// Config is what a Controller needs.
type Config struct {
	Client    kubernetes.Interface
	Informers *informers.Informers
	// Names are the accounts that every Active namespace has.
	Names []string
	// Template returns how an account that is created looks now. It may be nil.
	Template func() *accounttemplate.Template
	Loops    *reconcile.Metrics
}

// Controller ensures accounts. Build it with New before the informers are started.
type Controller struct {
	Config

	namespaces        corev1listers.NamespaceLister
	accounts          corev1listers.ServiceAccountLister
	namespaceInformer cache.SharedIndexInformer
	accountInformer   cache.SharedIndexInformer
	queue             *reconcile.Runner[string]
}

// New builds a controller that does not run yet.
func New(config Config) *Controller {
	c := &Controller{Config: config}
	c.namespaces, c.namespaceInformer = config.Informers.Namespaces()
	c.accounts, c.accountInformer = config.Informers.Accounts()
	c.queue = reconcile.New(reconcile.Config[string]{Name: queueName, Workers: workers, Sync: c.sync, Metrics: config.Loops})
	return c
}

// Run works until ctx ends and returns when no sync is under way any more. The informers must
// be synced. Registering the handlers replays the whole cache, so every namespace is synced
// once at the start.
func (c *Controller) Run(ctx context.Context) error {
	return reconcile.WithHandlers(ctx, func() { c.queue.Run(ctx) },
		reconcile.Handled{What: "namespaces", Informer: c.namespaceInformer, Handler: c.namespaceHandler()},
		reconcile.Handled{What: "serviceaccounts", Informer: c.accountInformer, Handler: c.accountHandler()})
}

func (c *Controller) namespaceHandler() cache.ResourceEventHandler {
	handler := reconcile.OnEveryName(func(name cache.ObjectName) { c.queue.Add(name.Name) })
	handler.DeleteFunc = nil
	return handler
}

func (c *Controller) accountHandler() cache.ResourceEventHandler {
	every := reconcile.OnEveryName(func(name cache.ObjectName) {
		if slices.Contains(c.Names, name.Name) {
			c.queue.Add(name.Namespace)
		}
	})
	return cache.ResourceEventHandlerFuncs{DeleteFunc: every.DeleteFunc}
}

func (c *Controller) sync(ctx context.Context, name string) error {
	namespace, err := c.namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up namespace %q: %w", name, err)
	}
	if namespace.Status.Phase != corev1.NamespaceActive {
		return nil
	}
	var errs []error
	for _, account := range c.Names {
		if _, err := c.accounts.ServiceAccounts(name).Get(account); apierrors.IsNotFound(err) {
			created, err := c.Ensure(ctx, name, account)
			errs = append(errs, err)
			switch {
			case err != nil: // requeued with a back-off
			case created:
				c.queue.AddAfter(name, requeueAfter)
			default:
				c.queue.AddAfter(name, uncachedRecheck)
			}
		}
	}
	return errors.Join(errs...)
}

// Ensure creates one account, as the template says. If the account exists already, or the
// namespace is gone or terminating, that is success and created is false. It may be called
// on any replica, leader or not.
func (c *Controller) Ensure(ctx context.Context, namespace, name string) (created bool, _ error) {
	account, err := c.fromTemplate(ctx, namespace, name)
	if err == nil {
		_, err = c.Client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{FieldManager: meta.FieldManager})
	}
	switch {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("Created service account", "serviceAccount", klog.KRef(namespace, name))
		return true, nil
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil
	default:
		return false, fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
}

// fromTemplate returns the account to create. Labels of the namespace come from kube-apiserver, as an
// account is created once: neither may the cache lack the namespace, nor have its labels of before.
func (c *Controller) fromTemplate(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if c.Template == nil {
		return account, nil
	}
	template := c.Template()
	var labels map[string]string
	if template.NeedsLabels(namespace, name) {
		live, err := c.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read the labels of the namespace for the account template: %w", err)
		}
		labels = live.Labels
	}
	fields := template.For(namespace, name, labels)
	account.Labels, account.Annotations = fields.Labels, fields.Annotations
	account.AutomountServiceAccountToken, account.ImagePullSecrets = fields.AutomountServiceAccountToken, fields.ImagePullSecrets
	return account, nil
}
