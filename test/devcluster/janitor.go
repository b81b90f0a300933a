// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// janitor removes a directory when this process ends, however it ends. It is
// also how Cluster.Stop removes it, so that there is one way and it is in use.
type janitor struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// janitorScript waits for the end of its standard input, which comes when the
// last process that holds the other end closes it or dies. Children of a killed
// parent may still write for a moment, hence several tries.
const janitorScript = `
trap '' HUP INT TERM
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10; do
	rm -rf -- "$1" 2>/dev/null && exit 0
	sleep 0.2
done
exit 1`

func hireJanitor(dir string) (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "janitor", dir)
	// A session of its own keeps it out of reach of the terminal's signals.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open the pipe to the janitor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the janitor of %s: %w", dir, err)
	}
	return &janitor{cmd: cmd, pipe: pipe}, nil
}

// clean removes the directory and waits until it is gone.
func (j *janitor) clean() error {
	if err := j.pipe.Close(); err != nil {
		return fmt.Errorf("close the pipe to the janitor: %w", err)
	}
	if err := j.cmd.Wait(); err != nil {
		return fmt.Errorf("remove %s: %w", j.cmd.Args[len(j.cmd.Args)-1], err)
	}
	return nil
}
