package rpc

import "slices"

// methods are how requests of HTTP begin.
var methods = []string{"GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "PRI "}

// stranger tells whoever reads the log what a peer most likely wants that begins with
// no request that is served here: a mistake in somebody's configuration, of which the
// peer only sees that the connection ends.
func (c *Conn) stranger(first []byte, h head) {
	speaks, hint := "", ""
	switch {
	case first[0] == 0x16 && first[1] == 0x03: // a handshake record
		speaks, hint = "TLS", "there is none here: set the client's security.protocol to PLAINTEXT, or put a proxy before this node that ends TLS"
	case slices.Contains(methods, string(first[:4])):
		speaks, hint = "HTTP", "metrics and health checks are at --metrics-listen"
	case h.key == KeyApiVersions && c.srv.routes[h.key] == nil:
		speaks, hint = "Kafka", "this listener is for the cluster's own nodes: clients ask --listen of a broker"
	}
	if speaks != "" && c.srv.strange.Allow(speaks) {
		c.srv.log.Warn("a peer speaks what this listener does not", "speaks", speaks, "remote", c.nc.RemoteAddr().String(), "listen", c.nc.LocalAddr().String(), "hint", hint)
	}
}
