package proxy

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Dialler is the one of the processes that has the other end of a connection on
// this machine, 0 if none has. It costs the same however many connections there
// are: in a machine that is slow, those who dial give up and dial again.
func Dialler(c net.Conn, pids []int) int {
	remote, ok := c.RemoteAddr().(*net.TCPAddr)
	local, also := c.LocalAddr().(*net.TCPAddr)
	if !ok || !also || remote.IP.To4() == nil || local.IP.To4() == nil {
		return 0
	}
	inode, err := socketOf(remote, local)
	if err != nil || inode == 0 {
		return 0
	}
	socket := fmt.Sprintf("socket:[%d]", inode)
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range list {
			if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && to == socket {
				return pid
			}
		}
	}
	return 0
}

// The kernel's sock_diag(7): a question for one socket and the answer.
const (
	netlinkSockDiag  = 4
	sockDiagByFamily = 20
	diagRequest      = syscall.NLMSG_HDRLEN + 56 // inet_diag_req_v2
	diagSocket       = 8                         // of inet_diag_sockid in it
	diagInode        = syscall.NLMSG_HDRLEN + 68 // in inet_diag_msg
)

// socketOf is the inode of the TCP socket with two addresses, 0 if it is closed.
func socketOf(local, remote *net.TCPAddr) (uint32, error) {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, netlinkSockDiag)
	if err != nil {
		return 0, fmt.Errorf("ask for a socket: %w", err)
	}
	defer func() { _ = syscall.Close(fd) }()
	b := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(b, diagRequest)
	binary.NativeEndian.PutUint16(b[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(b[6:], syscall.NLM_F_REQUEST)
	req := b[syscall.NLMSG_HDRLEN:]
	req[0], req[1] = syscall.AF_INET, syscall.IPPROTO_TCP
	binary.NativeEndian.PutUint32(req[4:], 1<<32-1) // in any state
	id := req[diagSocket:]
	binary.BigEndian.PutUint16(id, uint16(local.Port))
	binary.BigEndian.PutUint16(id[2:], uint16(remote.Port))
	copy(id[4:], local.IP.To4())
	copy(id[20:], remote.IP.To4())
	binary.NativeEndian.PutUint64(id[40:], 1<<64-1) // no cookie
	if err := syscall.Sendto(fd, b, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("ask for a socket: %w", err)
	}
	answer := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, answer, 0)
	if err != nil {
		return 0, fmt.Errorf("ask for a socket: %w", err)
	}
	if n < diagInode+4 || binary.NativeEndian.Uint16(answer[4:]) != sockDiagByFamily {
		return 0, nil // an error: there is none
	}
	return binary.NativeEndian.Uint32(answer[diagInode:]), nil
}
