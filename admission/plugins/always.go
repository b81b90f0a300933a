// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"io"

	"sa-controller-manager/admission"
)

// AlwaysAdmit is the name of the plugin that NewAlwaysAdmit builds.
const AlwaysAdmit = "AlwaysAdmit"

// NewAlwaysAdmit builds a plugin that allows whatever it matches: Pods, unless
// configured. It is good for seeing that calls arrive.
func NewAlwaysAdmit(config io.Reader) (admission.Plugin, error) {
	rules, err := configuredRules(config)
	if err != nil {
		return nil, err
	}
	return &alwaysAdmit{Handler: admission.NewHandler(admission.Any), rules: rules}, nil
}

type alwaysAdmit struct {
	*admission.Handler
	rules []admission.Rule
}

func (a *alwaysAdmit) Rules() []admission.Rule { return a.rules }

func (a *alwaysAdmit) Admit(context.Context, *admission.Request, *admission.Response) error {
	return nil
}

func (a *alwaysAdmit) Validate(context.Context, *admission.Request, *admission.Response) error {
	return nil
}

// AlwaysDeny is the name of the plugin that NewAlwaysDeny builds.
const AlwaysDeny = "AlwaysDeny"

var errDenyAll = errors.New("admission control is denying all modifications")

// NewAlwaysDeny builds a plugin that refuses whatever it matches: Pods, unless
// configured.
func NewAlwaysDeny(config io.Reader) (admission.Plugin, error) {
	rules, err := configuredRules(config)
	if err != nil {
		return nil, err
	}
	return &alwaysDeny{Handler: admission.NewHandler(admission.Any), rules: rules}, nil
}

type alwaysDeny struct {
	*admission.Handler
	rules []admission.Rule
}

func (a *alwaysDeny) Rules() []admission.Rule { return a.rules }

func (a *alwaysDeny) Admit(_ context.Context, request *admission.Request, _ *admission.Response) error {
	return admission.Forbidden(request, errDenyAll)
}

func (a *alwaysDeny) Validate(_ context.Context, request *admission.Request, _ *admission.Response) error {
	return admission.Forbidden(request, errDenyAll)
}
