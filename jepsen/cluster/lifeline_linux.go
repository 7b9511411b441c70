package cluster

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// lifeline starts processes that do not outlive this one, also if it is killed,
// and that a terminal's signals do not reach: Ctrl-C is for the harness, which
// undoes its faults first.
//
// The kernel ends a child when the thread that started it ends, so that one
// thread starts them all and stays.
type lifeline struct {
	once sync.Once
	todo chan func()
}

func (l *lifeline) start(cmd *exec.Cmd) error {
	l.once.Do(func() {
		l.todo = make(chan func())
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this
			for do := range l.todo {
				do()
			}
		}()
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err := make(chan error)
	l.todo <- func() { err <- cmd.Start() }
	return <-err
}

// end is called when no process is left.
func (l *lifeline) end() {
	l.once.Do(func() {})
	if l.todo != nil {
		close(l.todo)
		l.todo = nil
	}
}
