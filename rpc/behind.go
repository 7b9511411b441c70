package rpc

// Behind returns a channel that is closed when the connection's next request begins to
// arrive, or none can any more: the peer has closed it, it failed, or the server drains.
// Replies are in order, so a handler that puts off an answer which the client can do
// without for a while gives it then. It is for Handle, nil for a Request without a
// connection.
func (r *Request) Behind() <-chan struct{} {
	if r.call == nil {
		return nil
	}
	c := r.Conn
	ch := c.behind.Load()
	if ch == nil { // what an earlier request left was closed when this one arrived
		made := make(chan struct{})
		ch = &made
		c.behind.Store(ch)
	}
	if c.arrived.Load() != r.call.turn || c.ended.Load() {
		c.hurry()
	}
	return *ch
}

// Last says that nothing is read from the connection any more. It is told by the time
// that Behind is closed for it.
func (r *Request) Last() bool { return r.call != nil && r.Conn.ended.Load() }

// hurry closes what Behind returned. A Behind that comes at the same time sees what
// changed before hurry, or is seen by it.
func (c *Conn) hurry() {
	if c.behind.Load() == nil {
		return
	}
	if ch := c.behind.Swap(nil); ch != nil {
		close(*ch)
	}
}
