// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

// apiServer takes objects, each once.
type apiServer struct {
	mu      sync.Mutex
	taken   map[string]bool
	has     map[string][]byte // by path
	callers []x509.Certificate
	refused string // the name of an object that a policy engine refuses
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.callers = append(a.callers, *r.TLS.PeerCertificates[0])
	body, _ := io.ReadAll(r.Body)
	a.taken[r.Method+" "+r.Header.Get("Content-Type")+" "+r.URL.Path+" "+string(body)] = true
	w.Header().Set("Content-Type", "application/json")
	var object metav1.PartialObjectMetadata
	if at := r.URL.Path; r.Method == http.MethodPost && yaml.Unmarshal(body, &object) == nil {
		if object.Name == a.refused {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		if at += "/" + object.Name; a.has[at] != nil {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"AlreadyExists","code":409}`)
			return
		}
		a.has[at], _ = yaml.YAMLToJSON(body)
	} else if a.has[at] != nil {
		_, _ = w.Write(a.has[at])
		return
	}
	_, _ = io.WriteString(w, `{"kind":"ClusterRole","apiVersion":"rbac.authorization.k8s.io/v1"}`)
}

func (n *node) serve(t *testing.T, a *apiServer) {
	t.Helper()
	a.taken, a.has = map[string]bool{}, map[string][]byte{}
	s := httptest.NewUnstartedServer(a)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(n.read(t, "ca.crt"))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	n.write(t, "serving.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	ca := n.read(t, "ca.crt")
	n.write(t, "ca.crt", n.read(t, "serving.crt"))
	n.from(t, s.URL)
	n.write(t, "ca.crt", ca)
	n.config.ApplyPermissions = true
	n.config.Clock = clock.RealClock{}
}

func TestApplyPermissions(t *testing.T) {
	t.Parallel()
	for name, onlySigner := range map[string]bool{"All": false, "OnlySigner": true} {
		t.Run(name, func(t *testing.T) { applies(t, onlySigner) })
	}
}

func applies(t *testing.T, onlySigner bool) {
	t.Helper()
	n, a := newNode(t), &apiServer{}
	n.serve(t, a)
	n.config.OnlySigner = onlySigner
	n.ensure(t)

	objects := testutil.Get(manifests.Permissions(n.config.CreateSecrets, onlySigner))(t)
	protected := ""
	for _, object := range objects {
		collection, _, _ := strings.Cut(object.Path(), "/"+object.Name)
		request := "POST application/yaml " + collection + " " + string(object.YAML)
		testutil.Expect(t, a.taken[request], "%s was not created", object)
		if object.Kind == "ClusterRole" {
			protected = object.Path()
		}
	}
	for _, caller := range a.callers {
		testutil.Expect(t, slices.Contains(caller.Subject.Organization, "system:masters") && time.Until(caller.NotAfter) <= mastersLifetime,
			"applied by %s until %s", caller.Subject, caller.NotAfter)
	}
	for _, file := range []string{"identity/kubeconfig", "identity/client.pem", "ca.key"} {
		testutil.Expect(t, !bytes.Contains(n.read(t, file), []byte("masters")), "%s holds the powerful certificate", file)
	}

	clear(a.has)
	// The role that is there gets no rule, as its annotation says.
	own := []byte(`{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[]}`)
	a.has[protected] = own
	for _, says := range []bool{true, false} {
		n.ensure(t)
		said := strings.Contains(n.said.String(), "lacked permissions, and has them now")
		testutil.Expect(t, said == says, "it says that some were missing: %t, want %t", said, says)
		if len(a.has) != len(objects) || !bytes.Equal(a.has[protected], own) {
			t.Errorf("%d of %d objects, and the role with the annotation is %s", len(a.has), len(objects), a.has[protected])
		}
	}
}

// TestApplyWhatIsNotRefused: an object that a policy engine refuses costs itself alone.
func TestApplyWhatIsNotRefused(t *testing.T) {
	t.Parallel()
	objects := testutil.Get(manifests.Permissions(false, false))(t)
	n, a := newNode(t), &apiServer{refused: objects[0].Name}
	n.serve(t, a)
	want := slices.DeleteFunc(objects, func(object manifests.Object) bool { return object.Name == a.refused })
	if err := Ensure(t.Context(), n.config); err == nil || !strings.Contains(err.Error(), " "+a.refused+":") || len(a.has) != len(want) {
		t.Errorf("%d objects are applied, want %d; error %v", len(a.has), len(want), err)
	}
}

// TestApplyPermissionsWithoutTheKeyOfTheCA: the identity is there, and who has an administrator's
// rights has applied the permissions, or will.
func TestApplyPermissionsWithoutTheKeyOfTheCA(t *testing.T) {
	t.Parallel()
	n, a := newNode(t), &apiServer{}
	n.serve(t, a)
	n.config.ApplyPermissions = false
	n.ensure(t)
	n.config.ApplyPermissions = true
	n.remove(t, "ca.key")
	n.ensure(t)
	testutil.Expect(t, strings.Contains(n.said.String(), "kubectl apply -k manifests/permissions") && len(a.callers) == 0,
		"it says %q after %d requests", n.said.String(), len(a.callers))
}

// TestMissing is about a role that is there.
func TestMissing(t *testing.T) {
	t.Parallel()
	const ours = `
kind: ClusterRole
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get, list]}
- {nonResourceURLs: [/x], verbs: [get]}
`
	cases := map[string]struct{ existing, want string }{
		"Same": {
			existing: `{"rules":[{"nonResourceURLs":["/x"],"verbs":["get"]},{"apiGroups":[""],"resources":["secrets"],` +
				`"verbs":["get","list"]}]}`,
		},
		"More": {
			existing: `{"rules":[{"nonResourceURLs":["/x"],"verbs":["get"]},{"apiGroups":[""],"resources":["secrets"],` +
				`"verbs":["get","list"]},` +
				`{"apiGroups":["a"],"resources":["b"],"verbs":["c"]}]}`,
		},
		"Protected": {existing: `{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[]}`},
		"NotQuiteProtected": {
			existing: `{"metadata":{"resourceVersion":"7","annotations":{"rbac.authorization.kubernetes.io/autoupdate":"true"}}}`,
			want: `{"metadata":{"resourceVersion":"7"},"rules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["secrets"]},` +
				`{"verbs":["get"],"nonResourceURLs":["/x"]}]}`,
		},
		"OneIsMissing": {
			existing: `{"metadata":{"resourceVersion":"7"},"rules":[{"apiGroups":["a"],"resources":["b"],"verbs":["c"]},` +
				`{"apiGroups":[""],` +
				`"resources":["secrets"],"verbs":["get","list"]}]}`,
			want: `{"metadata":{"resourceVersion":"7"},"rules":[{"verbs":["c"],"apiGroups":["a"],"resources":["b"]},` +
				`{"verbs":["get","list"],"apiGroups":[""],"resources":["secrets"]},{"verbs":["get"],"nonResourceURLs":["/x"]}]}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := testutil.Get(missing([]byte(tc.existing), []byte(ours)))(t)
			testutil.Check(t, "patch", tc.want, string(change))
		})
	}
}

// stepped is a clock whose waits the test ends.
type stepped struct {
	clock.RealClock

	mu    sync.Mutex
	ahead time.Duration
	waits chan time.Duration // gets each wait
	ends  chan time.Time
}

func (s *stepped) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

func (s *stepped) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func (s *stepped) After(d time.Duration) <-chan time.Time {
	s.waits <- d
	return s.ends
}

// TestLostPermissionsComeBack: a restore of etcd from before a takeover has no roles of ours.
func TestLostPermissionsComeBack(t *testing.T) {
	t.Parallel()
	n, a, said := newNode(t), &apiServer{}, &lines{}
	n.serve(t, a)
	c := &stepped{waits: make(chan time.Duration), ends: make(chan time.Time)}
	n.config.Clock, n.config.Say = c, said
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Watch(ctx, n.config)
	}()
	passed := func() {
		d := <-c.waits
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ahead += d
	}
	passed()
	got := strings.Join(said.take(), "\n")
	testutil.Require(t, strings.Contains(got, "lacked permissions, and has them now"), "first: %q", got)
	objects := len(a.has)
	for name := range a.has {
		if strings.Contains(name, "/clusterroles/") || strings.Contains(name, "/clusterrolebindings/") {
			delete(a.has, name)
		}
	}
	// The role that is there gets no rule, as its annotation says.
	own := []byte(`{"metadata":{"annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[]}`)
	a.has[firstRole(t)] = own
	for time.Until(c.Now()) < 5*time.Minute-time.Second && len(a.has) < objects {
		c.ends <- time.Now()
		passed()
	}
	if len(a.has) != objects || !bytes.Equal(a.has[firstRole(t)], own) {
		t.Errorf("%d of %d objects after %v, and the role with the annotation is %s", len(a.has), objects, c.ahead, a.has[firstRole(t)])
	}
	if got := strings.Join(said.take(), "\n"); !strings.Contains(got, "lacked permissions, and has them now") {
		t.Errorf("again: %q", got)
	}
	cancel()
	<-ended
}

func firstRole(t *testing.T) string {
	t.Helper()
	objects := testutil.Get(manifests.Permissions(false, false))(t)
	for _, object := range objects {
		if object.Kind == "ClusterRole" {
			return object.Path()
		}
	}
	t.Fatal("there is no ClusterRole")
	return ""
}

// TestExternalCA: the operator's own kubeconfig is all that is needed.
func TestExternalCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.remove(t, "ca.key")
	err := Ensure(t.Context(), n.config)
	for _, want := range []string{"the key of the cluster's CA is not here", "identity/kubeconfig",
		"CN=system:sa-controller-manager, no O"} {
		testutil.Require(t, err != nil && strings.Contains(err.Error(), want), "error %v, want one with %q", err, want)
	}
	rendered := testutil.Get(render(&clientcmdapi.Cluster{Server: server}))(t)
	own := bytes.ReplaceAll(rendered, []byte(pairFile), []byte("own.pem"))
	n.write(t, "identity/kubeconfig", own)
	n.ensure(t)
	testutil.Expect(t, bytes.Equal(own, n.read(t, "identity/kubeconfig")) && strings.Contains(n.said.String(), "left as it is"),
		"it is changed: %q", n.said.String())
}

// TestExchangedCA: while a CA is exchanged, ca.crt has several certificates, in any order.
func TestExchangedCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	old, oldKey := n.read(t, "ca.crt"), n.read(t, "ca.key")
	n.newCA(t, time.Hour)
	other := n.read(t, "ca.crt")
	n.clock.SetTime(n.clock.Now().Add(-validity))
	n.newCA(t, time.Hour)
	n.clock.SetTime(n.clock.Now().Add(validity))
	expired, expiredKey := n.read(t, "ca.crt"), n.read(t, "ca.key")
	for name, tc := range map[string]struct {
		crt  [][]byte
		key  []byte
		want string
	}{
		"First":        {crt: [][]byte{old, other}, key: oldKey},
		"Appended":     {crt: [][]byte{other, old}, key: oldKey},
		"AfterExpired": {crt: [][]byte{expired, old}, key: oldKey},
		"Third":        {crt: [][]byte{expired, other, old}, key: oldKey},
		"KeyOfExpired": {crt: [][]byte{expired, old}, key: expiredKey, want: "ca.key belongs to none of the 2 certificates in "},
		"KeyOfAnother": {crt: [][]byte{other, old}, key: expiredKey, want: "ca.key belongs to none of the 2 certificates in "},
	} {
		n.write(t, "ca.crt", slices.Concat(tc.crt...))
		n.write(t, "ca.key", tc.key)
		_ = os.RemoveAll(n.config.Dir)
		err := Ensure(t.Context(), n.config)
		testutil.CheckError(t, name, tc.want, err)
		if err != nil {
			continue
		}
		ca := testutil.Get(cert.ParseCertsPEM(old))(t)
		if err := n.certificate(t).CheckSignatureFrom(ca[0]); err != nil {
			t.Errorf("%s: another CA has signed: %v", name, err)
		}
	}
}

// lines keeps what was said, and may be asked while Watch runs.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

// TestWatch goes through the life of an identity. Nothing ends it but its context.
func TestWatch(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		n, said := newNode(t), &lines{}
		n.clock.SetTime(time.Now()) // of the bubble
		n.newCA(t, 10*365*24*time.Hour)
		n.from(t, server)
		n.config.Clock, n.config.Say, n.config.Validity = clock.RealClock{}, said, 24*time.Hour
		n.remove(t, "controller-manager.conf")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Watch(ctx, n.config)
		}()
		// step lets time pass, and wants a line that was said then, or none.
		step := func(pause time.Duration, want string) {
			t.Helper()
			testutil.Pause(pause)
			if got := said.take(); !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) }) ||
				want == "" &&
					got[0] != "" {
				t.Errorf("after %v: %q, want %q", pause, got, want)
			}
		}
		step(0, "Error: read the API server's address")
		step(10*time.Second, "")
		n.from(t, server)
		step(5*time.Second, "client.pem is written")
		step(watchInterval, "left as it is")
		step(12*time.Hour, "")
		step(5*time.Hour, "The one before: it expires on")
		n.write(t, "identity/kubeconfig", []byte("{"))
		step(watchInterval, "Error: ")
		n.remove(t, "identity/kubeconfig")
		step(watchInterval, "kubeconfig is written")
		n.clock.SetTime(time.Now())
		key := n.read(t, "ca.key")
		n.remove(t, "ca.key")
		step(watchInterval, "left as it is")
		step(17*time.Hour, "Warning: the client certificate ends on")
		n.write(t, "ca.key", key)
		step(watchInterval, "client.pem is written")
		step(watchInterval, "left as it is")
		cancel()
		<-ended
	})
}
