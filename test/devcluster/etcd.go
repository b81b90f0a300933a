// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// StartEtcd starts etcd on the cluster's data. It does not wait: kube-apiserver
// does.
func (c *Cluster) StartEtcd() error {
	if c.etcd != nil && c.etcd.running() {
		return errors.New("start etcd: it is running")
	}
	path, err := ControlPlaneBinary("etcd")
	if err != nil {
		return err
	}
	clientURL, peerURL := c.etcdURL(), "http://"+address(c.etcdPeerPort)
	c.etcd, err = (*host)(nil).start("etcd", path, c.dir, []string{
		"--name=devcluster",
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=devcluster=" + peerURL,
		// A killed process loses nothing by this, only a machine without power does.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, nil, c.options.Log)
	return err
}

// KillEtcd ends etcd at once, as a power cut would. Its data stays.
func (c *Cluster) KillEtcd() error {
	_, err := c.etcd.Kill()
	return err
}

func (c *Cluster) etcdURL() string { return "http://" + address(c.etcdPort) }

// PutIntoEtcd writes a key of etcd without kube-apiserver, and deletes it if value is "".
func (c *Cluster) PutIntoEtcd(ctx context.Context, key, value string) error {
	call, body := "put", map[string][]byte{"key": []byte(key), "value": []byte(value)}
	if value == "" {
		call = "deleterange"
		delete(body, "value")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL()+"/v3/kv/"+call, bytes.NewReader(text))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s into etcd: %s", call, key, answer.Status)
	}
	return nil
}
