// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sa-controller-manager/test/await"
)

// WebhookClients are what clients do that are slow, broken or mean.
func WebhookClients() []Client {
	return []Client{
		{name: "slow header", come: slowHeader},
		{name: "slow body", come: slowBody},
		{name: "garbage for TLS", come: garbageForTLS},
		{name: "hanging up in the body", come: hangUpInBody},
		{name: "huge body", come: hugeBody},
		{name: "large body that stalls", come: stallLarge},
		{name: "no JSON", come: notJSON},
		{name: "answers that nobody reads", come: neverReads},
	}
}

// plain connects without a word. The connection ends with ctx.
func plain(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// secure dials as kube-apiserver does.
func secure(ctx context.Context, address string) (*tls.Conn, error) {
	conn, err := plain(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: what it sends is garbage
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// statusFrom reads the status of an answer; 0 is for none.
func statusFrom(conn net.Conn) int {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = response.Body.Close() // the status is all that matters
	return response.StatusCode
}

// judgeStatus holds an answer to promise 7, if there is one.
func (v *visit) judgeStatus(code int, to string) {
	if code != 0 && code/100 != 4 {
		v.violated(7, "%s is answered with status %d", to, code)
	}
}

const (
	// dripped is how many bytes make a slow client.
	dripped  = 10
	slowHead = "POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
)

// drip writes a byte ten times a second.
func drip(ctx context.Context, conn net.Conn, text string, v *visit) error {
	answer := make(chan int, 1)
	go func() { answer <- statusFrom(conn) }()
	var err error
	for i := 0; err == nil && i < len(text); i++ {
		if _, err = io.WriteString(conn, text[i:i+1]); err != nil {
			break
		}
		v.struck = i+1 >= dripped
		if !await.Sleep(ctx, 100*time.Millisecond) {
			err = ctx.Err()
		}
	}
	_ = conn.Close() // the server may have done so
	v.judgeStatus(<-answer, "half a request")
	return err
}

// slowHeader is known as slowloris.
func slowHeader(ctx context.Context, address string, v *visit) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	return drip(ctx, conn, slowHead, v)
}

func slowBody(ctx context.Context, address string, v *visit) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(conn, slowHead); err != nil {
		return errors.Join(err, conn.Close())
	}
	return drip(ctx, conn, strings.Repeat("{", 1000), v)
}

// garbageForTLS looks like the record of a handshake, and what is in it does not. It is a
// whole record: half of one would be waited for.
func garbageForTLS(ctx context.Context, address string, v *visit) error {
	const handshake = 0x16 // RFC 8446, section 5.1
	conn, err := plain(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(bytes.Repeat([]byte{handshake, 0x03, 0xff}, 2000)); err != nil {
		return err
	}
	said, err := io.ReadAll(conn)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	v.struck = true // it was hung up on
	if len(said) > 0 && said[0] == handshake {
		v.violated(7, "garbage is answered with a handshake")
	}
	return err
}

// stallLarge holds all that the webhook has for bodies larger than most Pods' (docs/reliability.md,
// "Limits"), until it is hung up on.
func stallLarge(ctx context.Context, address string, v *visit) error {
	const size = 8 << 20
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the server may have done so
	answer := make(chan int, 1)
	go func() { answer <- statusFrom(conn) }()
	_, err = fmt.Fprintf(conn, "POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		size, bytes.Repeat([]byte(" "), size-1000))
	code := <-answer
	v.judgeStatus(code, "a body that stalls")
	v.struck = ctx.Err() == nil
	return err
}

func hangUpInBody(ctx context.Context, address string, v *visit) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	_, err = io.WriteString(conn, slowHead+`{"kind":"AdmissionReview"`)
	v.struck = err == nil
	return errors.Join(err, conn.Close())
}

func notJSON(ctx context.Context, address string, v *visit) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the server may have done so
	body := strings.Repeat(`{"a":[`, 1000)
	if _, err := io.WriteString(conn, strings.Replace(slowHead, "1000000", strconv.Itoa(len(body)), 1)+body); err != nil {
		return err
	}
	code := statusFrom(conn)
	v.judgeStatus(code, "what is no review")
	v.struck = code == http.StatusBadRequest
	return fmt.Errorf("answered with status %d", code)
}

const (
	// huge is what a client sends that does not stop by itself, in bytes. It is many times what the
	// webhook reads of a body (docs/reliability.md, "Limits") and what buffers hold of it.
	huge = 100 << 20
	// fewestHuge is what the webhook reads of any body, with room to spare: a client that was
	// stopped before has sent no huge one.
	fewestHuge = 64 << 10
)

// hugeBody sends 100 MB without a word about their number. No answer stops it: only hanging up
// does, which has to come much earlier.
func hugeBody(ctx context.Context, address string, v *visit) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	answer := make(chan int, 1)
	go func() { answer <- statusFrom(conn) }()
	_, err = io.WriteString(conn, strings.Replace(slowHead, "Content-Length: 1000000", "Transfer-Encoding: chunked", 1))
	const piece = 16 << 10
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", piece, make([]byte, piece))
	taken := 0
	for err == nil && taken < huge {
		if _, err = conn.Write(chunk); err == nil {
			taken += piece
		}
	}
	stopped := err != nil && ctx.Err() == nil
	_ = conn.Close() // the server may have done so
	code := <-answer
	v.judgeStatus(code, "a body without end")
	if err == nil {
		v.violated(8, "all %d bytes of a body were taken", taken)
	}
	v.struck = stopped && taken >= fewestHuge
	return errors.Join(err, fmt.Errorf("%d bytes were taken, and the answer is %d", taken, code))
}

// neverReads asks again and again and takes no answer. The kernel of the server holds them: it
// would take fifteen times as many until the server itself is stuck.
func neverReads(ctx context.Context, address string, v *visit) error {
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the server may have done so
	for range 1000 {
		if _, err := io.WriteString(conn, "GET /nothing HTTP/1.1\r\nHost: webhook\r\n\r\n"); err != nil {
			return err
		}
	}
	v.struck = true
	<-ctx.Done()
	return ctx.Err()
}
