//go:build !linux

package proxy

import "net"

// Dialler is the one of the processes that has the other end of a connection: 0,
// not known here.
func Dialler(net.Conn, []int) int { return 0 }
