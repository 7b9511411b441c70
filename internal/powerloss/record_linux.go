//go:build linux && (amd64 || arm64)

package powerloss

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childLimit ends a child that hangs.
const childLimit = 2 * time.Minute

// Record starts the calling test again in a process of its own, where Child is
// not nil, and returns what that did below dir, which exists. arg is for the
// child. A child that fails fails the test; where ptrace(2) is forbidden the test
// is skipped.
func Record(t *testing.T, dir, arg string) *Recording {
	t.Helper()
	r, output, err := record(t, dir, arg)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("power loss under real files is not tested here: this machine forbids ptrace(2): %v", err)
	}
	if err != nil {
		t.Fatalf("record a process: %v\n%s", err, output)
	}
	return r
}

func record(t *testing.T, dir, arg string) (r *Recording, output []byte, err error) {
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, nil, err
	}
	r = &Recording{}
	if err := r.read(dir); err != nil {
		return nil, nil, fmt.Errorf("read the directory: %w", err)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	// Files, not pipes: nobody is there to empty them.
	out, err := os.CreateTemp(t.TempDir(), "output")
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(exe, "-test.run=^"+name+"$", "-test.count=1", "-test.timeout="+childLimit.String()) //nolint:noctx // a context's goroutine ends with Wait only; run has a limit of its own
	cmd.Env = append(os.Environ(), envDir+"="+dir, envArg+"="+arg)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.ExtraFiles = []*os.File{null} // markFD
	// A group of its own, so that waiting for it reaps nobody else's children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	tr := &tracer{root: dir, rec: r, open: map[int]bool{}, calls: map[int]*call{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the tracer is a thread, which ends with this goroutine
		err = tr.run(cmd)
	}()
	<-ended
	if err == nil {
		err = r.check(dir)
	}
	output, _ = os.ReadFile(out.Name())
	return r, output, err
}

// tracer follows one process.
type tracer struct {
	root  string
	rec   *Recording
	pid   int
	open  map[int]bool  // descriptors of files below root
	calls map[int]*call // by thread: the call it is in, nil outside
	syncs int
}

// run starts the process and returns when it has ended.
func (t *tracer) run(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the process: %w", err)
	}
	t.pid = cmd.Process.Pid
	defer func() { _ = cmd.Process.Release() }() // reaped here already
	var ws unix.WaitStatus
	if _, err := wait(t.pid, &ws); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(t.pid, options); err != nil {
		_ = unix.Kill(t.pid, unix.SIGKILL)
		_, _ = wait(t.pid, &ws)
		return fmt.Errorf("trace the process: %w", err)
	}
	limit := time.AfterFunc(childLimit, func() { _ = unix.Kill(t.pid, unix.SIGKILL) })
	defer limit.Stop()
	t.calls[t.pid] = nil
	if err := resume(t.pid, 0); err != nil {
		return err
	}
	var failed error
	for {
		tid, err := wait(-t.pid, &ws)
		if err != nil {
			return errors.Join(failed, err)
		}
		if ws.Exited() || ws.Signaled() {
			delete(t.calls, tid)
			if tid != t.pid {
				continue
			}
			if failed == nil && (ws.Signaled() || ws.ExitStatus() != 0) {
				failed = fmt.Errorf("the process ended with status %d, signal %v", ws.ExitStatus(), ws.Signal())
			}
			return failed
		}
		if err := t.stopped(tid, ws); err != nil && failed == nil {
			failed = err
			_ = unix.Kill(t.pid, unix.SIGKILL)
		}
	}
}

func wait(pid int, ws *unix.WaitStatus) (tid int, err error) {
	for {
		tid, err = unix.Wait4(pid, ws, unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("wait for the process: %w", err)
	}
	return tid, nil
}

// resume lets a thread run to its next call or signal. One that was killed
// meanwhile is no error.
func resume(tid, sig int) error {
	if err := unix.PtraceSyscall(tid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("resume thread %d: %w", tid, err)
	}
	return nil
}

// stopped handles a stop of one thread and lets it go on.
func (t *tracer) stopped(tid int, ws unix.WaitStatus) error {
	_, known := t.calls[tid]
	if !known {
		t.calls[tid] = nil
	}
	sig := ws.StopSignal()
	switch {
	case sig == unix.SIGTRAP|0x80:
		if err := t.call(tid); err != nil {
			return err
		}
		sig = 0
	case sig == unix.SIGTRAP, sig == unix.SIGSTOP && !known:
		sig = 0 // it has made a thread, or is one
	}
	return resume(tid, int(sig))
}

// syscallInfo is struct ptrace_syscall_info.
type syscallInfo struct {
	op     uint8
	_      [3]uint8
	_      uint32
	_, _   uint64
	number int64 // at exit the result
	args   [6]uint64
	_      uint64
}

// Values of syscallInfo.op.
const (
	infoEntry = 1
	infoExit  = 2
)

// call handles the beginning or end of a system call.
func (t *tracer) call(tid int) error {
	var i syscallInfo
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)), 0, 0)
	switch {
	case errno == unix.ESRCH:
		return nil // killed
	case errno != 0:
		return fmt.Errorf("read a system call of thread %d: %w", tid, errno)
	case i.op == infoEntry:
		c, err := t.enter(tid, i.number, i.args)
		t.calls[tid] = c
		return err
	case i.op == infoExit:
		c := t.calls[tid]
		t.calls[tid] = nil
		if c != nil && i.number >= 0 {
			return t.leave(tid, c, int(i.number))
		}
	}
	return nil
}
