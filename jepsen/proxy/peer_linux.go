package proxy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Dialler is the one of the processes that has the other end of a connection on
// this machine, 0 if none has.
func Dialler(c net.Conn, pids []int) int {
	remote, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok || remote.IP.To4() == nil {
		return 0
	}
	inode := socketOf(fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(remote.IP.To4()), remote.Port))
	if inode == "" {
		return 0
	}
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range list {
			if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && to == "socket:["+inode+"]" {
				return pid
			}
		}
	}
	return 0
}

// socketOf is the inode of the socket with a local address of /proc/net/tcp.
func socketOf(local string) string {
	for _, table := range []struct{ file, prefix string }{
		{"/proc/self/net/tcp", ""},
		{"/proc/self/net/tcp6", "0000000000000000FFFF0000"}, // IPv4 in an IPv6 socket
	} {
		f, err := os.Open(table.file)
		if err != nil {
			continue
		}
		inode := find(bufio.NewScanner(f), table.prefix+local)
		_ = f.Close()
		if inode != "" {
			return inode
		}
	}
	return ""
}

func find(lines *bufio.Scanner, local string) string {
	for lines.Scan() {
		// sl local remote st queues timer retransmits uid timeout inode
		f := strings.Fields(lines.Text())
		if len(f) > 9 && f[1] == local && f[9] != "0" {
			return f[9]
		}
	}
	return ""
}
