// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
)

const (
	// huge is what a client sends that does not stop by itself, in bytes.
	huge = 100 << 20
	// largestReview is what the webhook reads of a body at most (docs/operations.md), and
	// largestRest what net/http still reads when it has answered, to keep the connection.
	largestReview = 8 << 20
	largestRest   = 256 << 10
	// fewestHuge is what the webhook reads of any body, with room to spare: who was stopped
	// before has sent no huge one.
	fewestHuge = 64 << 10
)

// hugeBody sends 100 MB without a word about their number. No answer stops it: that only
// hanging up does, which has to come much earlier.
func hugeBody(ctx context.Context, address string, v *visit) error {
	most, err := takenAtMost()
	if err != nil {
		return err
	}
	conn, err := secure(ctx, address)
	if err != nil {
		return err
	}
	answer := make(chan int, 1)
	go func() { answer <- statusFrom(conn) }()
	taken, err := pour(conn)
	stopped := err != nil && ctx.Err() == nil
	_ = conn.Close() // the server may have done so
	code := <-answer
	v.judgeStatus(code, "a body without end")
	v.judgeTaken(taken, most)
	v.struck = stopped && taken >= fewestHuge
	return errors.Join(err, fmt.Errorf("%d bytes were taken, and the answer is %d", taken, code))
}

// judgeTaken holds a server to the bound of what it reads.
func (v *visit) judgeTaken(taken, most int) {
	if taken > most {
		v.violated(8, "%d bytes of a body were taken, want %d at most with all that buffers hold", taken, most)
	}
}

// pour sends a request with a huge body, in chunks, and returns how much of it was taken.
func pour(conn net.Conn) (taken int, err error) {
	const piece = 16 << 10
	if _, err := io.WriteString(conn, "POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		return 0, err
	}
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", piece, make([]byte, piece))
	for taken < huge {
		if _, err := conn.Write(chunk); err != nil {
			return taken, err
		}
		taken += piece
	}
	return taken, nil
}

// takenAtMost is how much of a body can be gone before the client learns that it is too
// large: what the server reads, and what the kernel may hold of it on its way. It is an
// error if a kernel's buffers could hold all.
func takenAtMost() (int, error) {
	most := largestReview + largestRest
	for _, side := range []string{"tcp_wmem", "tcp_rmem"} {
		content, err := os.ReadFile("/proc/sys/net/ipv4/" + side)
		if err != nil {
			return 0, err
		}
		buffer, err := largestBuffer(string(content))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", side, err)
		}
		most += buffer
	}
	if most >= huge {
		return 0, fmt.Errorf("the kernel's buffers may hold %d bytes, and %d would tell nothing", most, huge)
	}
	return most, nil
}

// largestBuffer is the last of three numbers (tcp(7), tcp_rmem).
func largestBuffer(setting string) (int, error) {
	numbers := strings.Fields(setting)
	if len(numbers) != 3 {
		return 0, fmt.Errorf("found %q, want three numbers", setting)
	}
	return strconv.Atoi(numbers[2])
}
