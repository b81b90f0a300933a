// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range that Linux hands out by itself
// (32768 and up), so that no outgoing connection takes one between our look and
// the child's bind, or while kube-apiserver is down for a restart.
const (
	firstPort = 20000
	portCount = 10000
)

// loopback is the one address anything here listens on.
const loopback = "127.0.0.1"

// FreePort returns a port of loopback on which nothing listens now.
func FreePort() (int, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// FreePorts returns n different ports of loopback on which nothing listens now.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 100 * n {
		port := firstPort + rand.IntN(portCount)
		listener, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		// Held until all are found, so that none is found twice.
		defer listener.Close()
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("find a free port on " + loopback)
}

func address(port int) string {
	return fmt.Sprintf("%s:%d", loopback, port)
}

// OwnAddress returns an address of this machine that is not loopback, which endpoints may not have. What is sent
// to it does not leave the machine.
func OwnAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address but loopback, which endpoints may not have")
}
