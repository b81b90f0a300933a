// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	upstream "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/certs"
	"sa-controller-manager/admission/configfile"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/signing/reload"
)

// webhook is the admission webhook. Every replica serves one; the leader registers it.
type webhook struct {
	server    *admission.Server
	source    *certs.Source
	registrar *registration.Registrar   // nil with --webhook-registration=static, and none
	static    *registration.StaticFiles // nil without
	informers *informers.Informers      // of the plugins
	ready     func() error              // returns nil when calls can be answered
	// followers maintain certificates and the registration of every replica.
	followers []Part
}

func (w *webhook) follow(phase Phase, run func(context.Context) error) {
	w.followers = append(w.followers, Part{Phase: phase, Run: run})
}

// buildWebhook builds the webhook and opens its port immediately, so that a port in use is an error at
// start-up.
func (m *Manager) buildWebhook(p *Part) error {
	if m.Options.Webhook.Port == 0 {
		return nil
	}
	o := &m.Options.Webhook
	metrics := admission.NewMetrics(m.Registry.MustRegister)
	plugin, err := m.newPlugin(p.Informers)
	if err != nil {
		return err
	}
	w := &webhook{informers: p.Informers}
	if err := w.certify(m, o); err != nil {
		return err
	}
	w.ready = func() error { return errors.Join(w.source.Ready(), m.synced(w.informers)) }
	responder := &registration.ProbeResponder{}
	if err := w.register(m, o, responder); err != nil {
		return err
	}
	handler, err := traced(admission.NewWebhook(admission.WebhookConfig{
		Plugin: plugin, Probe: responder.Probe, MaxInFlight: o.MaxInFlight, Metrics: metrics,
	}), o.TracingFile)
	if err != nil {
		return err
	}
	if err := w.listen(m.Options, handler, metrics); err != nil {
		return err
	}
	m.webhook, m.parts = w, append(m.parts, w.followers...)
	p.Check = func() (string, error) { return w.source.Note(), w.source.Ready() }
	return nil
}

// buildAdmissionConfig checks the file that makes kube-apiserver read the files of the static registration.
func (m *Manager) buildAdmissionConfig(p *Part) error {
	if m.webhook != nil && m.webhook.static != nil {
		p.Findings = func() (check.Result, error) { return configfile.Findings(m.Options.Webhook.StaticDir) }
	}
	return nil
}

func (m *Manager) buildRegistration(p *Part) error {
	if m.webhook == nil {
		return nil
	}
	p.Informers = m.webhook.informers // nothing is registered before it can answer
	var status func() registration.Status
	switch registrar, static := m.webhook.registrar, m.webhook.static; {
	case registrar != nil:
		p.Run, status = registrar.Lead, registrar.Status
	case static != nil:
		status = static.Status
	default:
		return nil
	}
	p.Findings = func() (check.Result, error) {
		now := status()
		return check.Result{Note: now.String(), Findings: now.Findings()}, nil
	}
	return nil
}

// register builds the Registrar or with static what keeps the files.
func (w *webhook) register(m *Manager, o *options.Webhook, responder *registration.ProbeResponder) error {
	if o.Registration == registration.None {
		return nil
	}
	spec := m.webhookSpec()
	config := registration.Config{
		Spec: spec, Client: m.Client, ServingCA: w.source, Recorder: m.Recorder, Loops: m.Loops,
		Metrics: registration.NewMetrics(m.Registry.MustRegister),
	}
	if !anyReplicaProves(o) {
		config.Responder = responder
	}
	if o.Registration == registration.Static {
		return w.registerStatic(m, &config)
	}
	w.registrar = registration.New(config)
	w.follow(Connected, w.registrar.Run)
	return nil
}

// anyReplicaProves reports whether an answer of another replica proves that the API server reaches
// the webhook: that replica has a certificate which only replicas of this cluster have, or is
// behind a Service of this cluster. A load balancer may always lead to it, because the API server
// keeps its connections. A CA in files may be shared with other clusters, and files of this host are about this process.
func anyReplicaProves(o *options.Webhook) bool {
	return o.Registration == registration.Service || o.Registration == registration.URL && o.CertFile == ""
}

// traced returns the handler with a span around each call, in the trace of kube-apiserver's own span. The file is
// read once, as by kube-apiserver. Spans of the last five seconds of the process may be lost. A span has nothing
// of the request: any client of the port would decide how much is kept while the collector is away.
func traced(handler http.Handler, file string) (http.Handler, error) {
	if file == "" {
		return handler, nil
	}
	_, err := reload.ReadFile(file) // refuses a file that upstream would read without end, such as a FIFO
	var config *tracingapi.TracingConfiguration
	if err == nil {
		config, err = upstream.ReadTracingConfiguration(file)
	}
	if err == nil {
		err = tracingapi.ValidateTracingConfiguration(config, nil, nil).ToAggregate()
	}
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	name := resource.WithAttributes(attribute.String("service.name", options.ProgramName))
	provider, err := tracing.NewProvider(context.Background(), config, nil, []resource.Option{name})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := provider.Tracer(options.ProgramName).Start(ctx, "webhook", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		handler.ServeHTTP(w, r.WithContext(ctx))
	}), nil
}

// listen opens the port.
func (w *webhook) listen(all *options.Options, handler http.Handler, metrics *admission.Metrics) error {
	o := &all.Webhook
	config, err := w.tlsConfig(o, secureport.Of(all).Serving.MinTLSVersion)
	if err != nil {
		return err
	}
	address := net.JoinHostPort(o.Address().String(), strconv.Itoa(o.Port))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("open --webhook-port %d on %s: %w", o.Port, o.Address(), err)
	}
	w.server = admission.NewServer(admission.ServerConfig{
		Listener:     listener,
		TLS:          config,
		ClientNames:  o.ClientNames,
		Webhook:      handler,
		MaxInFlight:  o.MaxInFlight,
		Ready:        func(context.Context) error { return w.ready() },
		DrainDelay:   o.DrainDelay,
		DrainTimeout: callsTimeout,
		Metrics:      metrics,
	})
	return nil
}

// webhookSpec returns what the leader registers.
func (m *Manager) webhookSpec() registration.Spec {
	o := &m.Options.Webhook
	mutating, validating := serviceaccount.Rules()
	spec := registration.Spec{
		Mode:             o.Registration,
		Host:             o.URLHost,
		Port:             o.Port,
		ServiceName:      o.ServiceName,
		ServiceNamespace: o.ServiceNamespace,
		FailurePolicy:    admissionregistrationv1.FailurePolicyType(o.FailurePolicy),
		Timeout:          o.Timeout,
		MutatingRules:    mutating,
		ValidatingRules:  validating,
		Ordinary:         m.Options.Admission.Plugin().Ordinary(),

		Namespace: m.ownNamespace,
		Account:   m.ownAccount,
	}
	if o.Registration == registration.Service {
		spec.Port = 443 // of the Service; its target port is ours
	}
	return spec
}

// certify sets the source of the serving certificate: the given files, or the serving CA that all
// replicas share.
func (w *webhook) certify(m *Manager, o *options.Webhook) error {
	metrics := certs.NewMetrics(m.Registry.MustRegister)
	if o.CertFile != "" {
		files, err := certs.NewFiles(certs.FilesConfig{
			CertFile: o.CertFile, KeyFile: o.KeyFile, NeedsCA: o.Registration != registration.None, Hosts: callersHosts(o),
			Metrics: metrics, Loops: m.Loops,
		})
		if err != nil {
			return fmt.Errorf("--webhook-tls-cert-file: %w", err)
		}
		w.source = files.Source
		w.follow(Connected, files.Run)
		return nil
	}
	config := certs.ManagedConfig{Client: m.Client, Hosts: callersHosts(o), Recorder: m.Recorder, Metrics: metrics, Loops: m.Loops}
	phase := Connected
	if o.Registration == registration.Static {
		config.File, phase = filepath.Join(o.StaticDir, servingCAFile), AtOnce
	}
	managed := certs.NewManaged(config)
	w.source = managed.Source
	w.follow(phase, managed.Run)
	return nil
}

// callersHosts returns the names for which the API server verifies our certificate.
func callersHosts(o *options.Webhook) []string {
	switch o.Registration {
	case registration.URL, registration.Static:
		return []string{o.URLHost}
	case registration.Service:
		return certs.ServiceHosts(o.ServiceNamespace, o.ServiceName)
	case registration.None:
	}
	return nil
}

// tlsConfig returns the configuration for the port. NewServer raises a lower minVersion to TLS 1.2.
func (w *webhook) tlsConfig(o *options.Webhook, minVersion string) (*tls.Config, error) {
	version, err := cliflag.TLSVersion(minVersion)
	if err != nil {
		return nil, fmt.Errorf("--tls-min-version: %w", err)
	}
	config := &tls.Config{
		MinVersion:     version,
		GetCertificate: w.source.GetCertificate,
		NextProtos:     []string{"http/1.1"},
	}
	if o.ClientCAFile == "" {
		return config, nil
	}
	ca, err := certs.NewClientCA(o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca-file: %w", err)
	}
	w.follow(Connected, ca.Run)
	config.ClientAuth = tls.VerifyClientCertIfGiven // /readyz works without; the server requires one elsewhere
	current := config.Clone()
	config.ClientCAs = ca.Pool()
	config.GetConfigForClient = ca.ConfigForClient(current)
	return config, nil
}
