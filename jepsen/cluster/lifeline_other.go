//go:build unix && !linux

package cluster

import (
	"os/exec"
	"syscall"
)

// lifeline starts processes that a terminal's signals do not reach.
type lifeline struct{}

func (*lifeline) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

func (*lifeline) end() {}
