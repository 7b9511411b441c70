package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"ponor/internal/seldom"
)

// ErrServerClosed is what Serve returns after Shutdown or Close.
var ErrServerClosed = errors.New("rpc: server closed")

// ServerConfig configures a Server. The zero value of every field but APIs is
// its default.
type ServerConfig struct {
	// APIs is the table of what is served.
	APIs []API
	// Logger receives one debug line per refused or broken connection and an
	// error line per panic; nil discards.
	Logger *slog.Logger
	// MaxConns bounds the open connections; default 65536. One more is accepted
	// and closed at once. Too low turns clients away, too high lets them use up
	// file descriptors.
	MaxConns int
	// IdleTimeout closes a connection without a request in flight; default
	// 10 min, as Kafka's connections.max.idle.ms. Below a client's
	// metadata.max.age (5 min) clients reconnect all the time.
	IdleTimeout time.Duration
	// HandshakeTimeout closes a new connection that sent no complete request;
	// default 30 s.
	HandshakeTimeout time.Duration
	// ReadStall closes a connection that began a frame and then sent less than
	// 64 KiB of it for so long; default 10 s. Its frame holds memory budget
	// meanwhile.
	ReadStall time.Duration
	// WriteStall closes a connection whose peer took less than 256 KiB of a
	// reply for so long; default 60 s. The reply holds memory meanwhile.
	WriteStall time.Duration
	// Linger is how long requests that were read may go on after the peer
	// closed its side, before their context ends; default 1 s. Too short drops
	// the last commit of a client that does not wait, too long keeps its long
	// polls.
	Linger time.Duration
	// MemoryBudget bounds the bytes of all request frames that were read and not
	// yet answered; default 256 MiB. A quarter of it is kept for frames of at
	// most 64 KiB, so that heartbeats get through while large ones wait for the
	// store or for a slow sender. It is raised to hold the largest API limit.
	MemoryBudget int64
	// DecodeBudget bounds the bytes of their decoded forms; default
	// MemoryBudget. It is raised to three times the largest limit of a decoded
	// API.
	DecodeBudget int64
	// ConnBudget bounds the frame bytes in flight on one connection; default
	// MemoryBudget/4. One request is let through whatever its size.
	ConnBudget int64
	// ConnInflight bounds the requests of one connection that were read and not
	// yet answered; default 64. One makes a connection as serial as in Kafka.
	ConnInflight int
	// AuthRequired holds every connection to DefaultFrameLimit until
	// Conn.SetAuthenticated.
	AuthRequired bool
	// OnOpen and OnClose, if set, see every connection once, on its reading
	// goroutine. An error from OnOpen closes the connection.
	OnOpen  func(*Conn) error
	OnClose func(*Conn)
	// OnReply, if set, sees every request after its reply was written (or
	// failed), on the ordered goroutine. It must not block.
	OnReply func(Served)
}

// Served describes one finished request for metrics.
type Served struct {
	Key, Version int16
	// RequestBytes and ResponseBytes are whole frames.
	RequestBytes, ResponseBytes int
	// Queued is the time from the complete frame until handling began, Handled
	// the time in the handler less Response.Held, Written the time to write.
	Queued, Handled, Written time.Duration
}

func (c ServerConfig) withDefaults() ServerConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.IdleTimeout, 10*time.Minute)
	def(&c.HandshakeTimeout, 30*time.Second)
	def(&c.ReadStall, 10*time.Second)
	def(&c.WriteStall, time.Minute)
	def(&c.Linger, time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxConns <= 0 {
		c.MaxConns = 65536
	}
	if c.MemoryBudget <= 0 {
		c.MemoryBudget = 256 << 20
	}
	c.MemoryBudget = max(c.MemoryBudget, 4*2*smallFrame) // room for one small frame
	if c.DecodeBudget <= 0 {
		c.DecodeBudget = c.MemoryBudget
	}
	if c.ConnInflight <= 0 {
		c.ConnInflight = 64
	}
	return c
}

// Server serves one table of APIs on any number of listeners. Its connection
// set is guarded by mu, which is never held across a wait; everything else is
// immutable or owned by a Conn.
type Server struct {
	cfg     ServerConfig
	log     *slog.Logger
	routes  map[int16]*route
	large   *semaphore.Weighted // three quarters of MemoryBudget
	small   *semaphore.Weighted // the rest
	decoded *semaphore.Weighted // DecodeBudget
	workers workers
	start   time.Time
	strange seldom.Log
	lastID  atomic.Uint64
	muted   atomic.Int64 // replies with a throttle

	draining  chan struct{} // closed when Shutdown or Close begins
	drainOnce sync.Once
	ended     chan struct{} // closed when the last connection is gone after that
	endOnce   sync.Once
	conns     sync.WaitGroup // every ServeConn
	reapers   sync.WaitGroup

	mu        sync.Mutex
	open      map[*Conn]struct{}
	listeners map[net.Listener]struct{}
	reaping   bool
	refused   uint64
}

// NewServer checks the table and returns a Server that serves nothing yet. An
// error names the row that contradicts itself or another.
func NewServer(cfg ServerConfig) (*Server, error) {
	cfg = cfg.withDefaults()
	s := &Server{
		log: cfg.Logger, routes: make(map[int16]*route, len(cfg.APIs)), start: time.Now(),
		draining: make(chan struct{}), ended: make(chan struct{}), open: map[*Conn]struct{}{}, listeners: map[net.Listener]struct{}{},
	}
	for _, a := range cfg.APIs {
		r, err := newRoute(a)
		if err != nil {
			return nil, fmt.Errorf("check API %d (%s): %w", a.Key, kmsg.NameForKey(a.Key), err)
		}
		if s.routes[a.Key] != nil {
			return nil, fmt.Errorf("check API %d (%s): listed twice", a.Key, kmsg.NameForKey(a.Key))
		}
		s.routes[a.Key] = r
		cfg.MemoryBudget = max(cfg.MemoryBudget, 2*frameCost(r.Limit))
		if !a.Raw {
			cfg.DecodeBudget = max(cfg.DecodeBudget, decodeLimit(r.Limit))
		}
	}
	if cfg.ConnBudget <= 0 {
		cfg.ConnBudget = cfg.MemoryBudget / 4
	}
	s.cfg = cfg
	s.small = semaphore.NewWeighted(cfg.MemoryBudget / 4)
	s.large = semaphore.NewWeighted(cfg.MemoryBudget - cfg.MemoryBudget/4)
	s.decoded = semaphore.NewWeighted(cfg.DecodeBudget)
	return s, nil
}

// Serve accepts connections until ctx ends, Shutdown, Close or an accept error
// that is not temporary. It returns when the connections it accepted have
// ended: ErrServerClosed after Shutdown or Close, else the cause. The
// listener is closed in any case. When ctx ends, so do the connections.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		l.Close()
		s.endServed(ctx)
	})
	defer stop()
	defer l.Close()
	if !s.addListener(l) {
		return ErrServerClosed
	}
	defer s.removeListener(l)
	var own sync.WaitGroup
	defer own.Wait()
	var pause time.Duration
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.isDraining() {
				return ErrServerClosed
			}
			if ctx.Err() != nil {
				return fmt.Errorf("accept on %s: %w", l.Addr(), context.Cause(ctx))
			}
			if errors.Is(err, net.ErrClosed) {
				cancel()
				return fmt.Errorf("accept on %s: %w", l.Addr(), err)
			}
			// Typically out of file descriptors: existing connections go on, new
			// ones wait in the backlog.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept failed", "err", err, "pause", pause)
			s.sleep(ctx, pause)
			continue
		}
		pause = 0
		own.Go(func() { s.serveConn(ctx, nc) })
	}
}

// ServeConn serves one connection that was accepted elsewhere, until it ends or
// ctx does, and closes it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) {
	// A context of its own, by which endServed knows this connection.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.endServed(ctx) })
	defer stop()
	s.serveConn(ctx, nc)
}

// serveConn serves a connection that endServed(ctx) ends.
func (s *Server) serveConn(ctx context.Context, nc net.Conn) {
	c := newConn(ctx, s, nc)
	if err := s.track(c); err != nil {
		c.cancel()
		nc.Close()
		s.log.Debug("connection refused", "remote", nc.RemoteAddr(), "err", err)
		return
	}
	defer s.untrack(c)
	if ctx.Err() != nil { // endServed may have looked before c was there
		c.fail(context.Cause(ctx))
	}
	c.serve()
}

// endServed ends the connections that are served under ctx, which ended. An
// AfterFunc per connection would cost each 250 bytes.
func (s *Server) endServed(ctx context.Context) {
	var conns []*Conn
	s.mu.Lock()
	for c := range s.open {
		if c.served == ctx {
			conns = append(conns, c)
		}
	}
	s.mu.Unlock()
	for _, c := range conns {
		c.fail(context.Cause(ctx))
	}
}

// Shutdown stops accepting and reading, lets requests that were read be
// answered, and closes. When ctx ends first, the rest is cut off as by Close
// and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.drain() {
		c.stopReading()
	}
	done := make(chan struct{})
	// The goroutine ends with the connections, which Close ends below.
	go func() { s.conns.Wait(); close(done) }()
	select {
	case <-done:
		s.stopReaper()
		return nil
	case <-ctx.Done():
		s.Close()
		<-done
		return ctx.Err()
	}
}

// Close ends every connection at once and waits for their goroutines.
func (s *Server) Close() {
	for _, c := range s.drain() {
		c.fail(ErrServerClosed)
	}
	s.conns.Wait()
	s.stopReaper()
}

func (s *Server) stopReaper() {
	s.endOnce.Do(func() { close(s.ended) })
	s.reapers.Wait()
	s.workers.close()
}

// Draining is closed when Shutdown or Close begins, so that handlers in a long
// poll may answer early.
func (s *Server) Draining() <-chan struct{} { return s.draining }

// Conns is the number of open connections.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// ServerStats are a server's numbers at one moment.
type ServerStats struct {
	Open, Opened, Refused int64 // connections: now, ever accepted, turned away
	Throttled             int64 // replies that muted their connection (KIP-219)
	InFlight              int64 // requests read and not answered
	MemoryUsed            int64 // bytes of their frames
	MemoryBudget          int64 // bytes
}

// Stats are the numbers now. It looks at every open connection.
func (s *Server) Stats() ServerStats {
	st := ServerStats{Opened: int64(s.lastID.Load()), Throttled: s.muted.Load(), MemoryBudget: s.cfg.MemoryBudget}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Open, st.Refused = int64(len(s.open)), int64(s.refused)
	for c := range s.open {
		st.InFlight += c.inflight.Load()
		st.MemoryUsed += c.bytes.Load()
	}
	return st
}

// APIs are the rows of the table, in no particular order.
func (s *Server) APIs() []API { return s.cfg.APIs }

// smallFrame is the largest frame that takes from the small budget.
const smallFrame = 64 << 10

// budget is what a frame of size bytes takes from.
func (s *Server) budget(size int) *semaphore.Weighted {
	if size <= smallFrame {
		return s.small
	}
	return s.large
}

func (s *Server) drain() []*Conn {
	s.drainOnce.Do(func() { close(s.draining) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.listeners {
		l.Close()
	}
	conns := make([]*Conn, 0, len(s.open))
	for c := range s.open {
		conns = append(conns, c)
	}
	return conns
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) removeListener(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
}

// track admits a connection. Adding to the WaitGroup under mu keeps it ordered
// with drain: a connection is either seen by drain or refused here.
func (s *Server) track(c *Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDraining() {
		return ErrServerClosed
	}
	if len(s.open) >= s.cfg.MaxConns {
		s.refused++
		if s.refused&(s.refused-1) == 0 { // 1, 2, 4, ...: a flood must not flood the log
			s.log.Warn("too many connections", "open", len(s.open), "refused", s.refused)
		}
		return fmt.Errorf("too many connections (%d)", len(s.open))
	}
	s.open[c] = struct{}{}
	s.conns.Add(1)
	if !s.reaping {
		s.reaping = true
		s.reapers.Go(s.reap)
	}
	return nil
}

func (s *Server) untrack(c *Conn) {
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	s.conns.Done()
}

// clock is a monotonic time in nanoseconds, never 0.
func (s *Server) clock() int64 { return int64(time.Since(s.start)) + 1 }

// sleep waits for d, less when ctx or the server ends.
func (s *Server) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.draining:
	}
}
