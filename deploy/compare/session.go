package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/rpc"
)

// answerTimeout is how long an answer may take. The longest that a script has others
// wait is a rebalance timeout of 10 s.
const answerTimeout = 15 * time.Second

// clientID is what the scripts call themselves.
const clientID = "compare"

// session is a script on one of the clusters: some connections, and what was answered
// so far.
type session struct {
	ctx     context.Context
	addr    string
	name    string // of the script
	conns   map[string]*rpc.Client
	names   names
	answers []answer
}

// stopped is what a session panics with when the script cannot go on.
type stopped struct{ err error }

// runScript returns what was answered, also beside an error.
func runScript(ctx context.Context, addr string, s script) (answers []answer, err error) {
	x := &session{ctx: ctx, addr: addr, name: s.name, conns: map[string]*rpc.Client{}}
	defer func() {
		for _, c := range x.conns {
			_ = c.Close()
		}
		answers = x.answers
		if p := recover(); p != nil {
			end, ok := p.(stopped)
			if !ok {
				panic(p)
			}
			err = end.err
		}
	}()
	if err := x.learnTopics(); err != nil {
		return nil, err
	}
	s.run(x)
	return x.answers, nil
}

// learnTopics has the ids of topics shown as their names.
func (s *session) learnTopics() error {
	req := kmsg.NewPtrMetadataRequest()
	resp, err := once[*kmsg.MetadataResponse](s.ctx, s.addr, 12, req)
	if err != nil {
		return err
	}
	s.names.topics = map[[16]byte]string{{}: "none"}
	for _, t := range resp.Topics {
		if t.Topic != nil {
			s.names.topics[t.TopicID] = *t.Topic
		}
	}
	return nil
}

// topic is the id of a topic.
func (s *session) topic(name string) [16]byte {
	for id, n := range s.names.topics {
		if n == name {
			return id
		}
	}
	panic(stopped{fmt.Errorf("there is no topic %s", name)})
}

// run is in the names of all groups, for a cluster that runs may have those of another
// comparison; it is not shown.
var run = fmt.Sprintf("-%x", time.Now().UnixNano())

// group is the name of a group of this script.
func (s *session) group(name string) string { return s.name + run + "-" + name }

// conn is the connection of one client of the script.
func (s *session) conn(client string) *rpc.Client {
	if c := s.conns[client]; c != nil && c.Err() == nil {
		return c
	}
	c, err := rpc.Dial(s.ctx, new(net.Dialer).DialContext, s.addr, rpc.ClientConfig{ClientID: clientID})
	if err != nil {
		panic(stopped{err})
	}
	s.conns[client] = c
	return c
}

// waiting is a request that has no answer yet.
type waiting struct {
	s    *session
	what string
	done chan struct{}
	resp kmsg.Response
	err  error
}

// send sends a request as a client, and goes on.
func (s *session) send(client, what string, version int16, req kmsg.Request) *waiting {
	req.SetVersion(version)
	w := &waiting{s: s, what: fmt.Sprintf("%s (%s v%d)", what, kmsg.NameForKey(req.Key()), version), done: make(chan struct{})}
	c := s.conn(client)
	go func() {
		defer close(w.done)
		ctx, cancel := context.WithTimeout(s.ctx, answerTimeout)
		defer cancel()
		if w.resp, w.err = c.Do(ctx, req); w.err != nil {
			_ = c.Close() // what comes after it would wait, too
		}
	}()
	return w
}

// keep waits for the answer and has it compared. That there is none is an answer, too.
func (w *waiting) keep() kmsg.Response {
	<-w.done
	none := func(why string) kmsg.Response {
		w.s.answers = append(w.s.answers, answer{what: w.what, fields: []field{{"", why}}})
		return nil
	}
	switch {
	case w.s.ctx.Err() != nil:
		panic(stopped{fmt.Errorf("%s is not answered", w.what)})
	case errors.Is(w.err, rpc.ErrDisconnected):
		return none("the connection is closed")
	case errors.Is(w.err, context.DeadlineExceeded):
		return none("no answer")
	case w.err != nil:
		panic(stopped{fmt.Errorf("%s: %w", w.what, w.err)})
	}
	w.s.answers = append(w.s.answers, answer{what: w.what, fields: w.s.names.show(w.resp)})
	return w.resp
}

// ask is send and keep, by the script's first client.
func ask[R kmsg.Response](s *session, what string, version int16, req kmsg.Request) R {
	return as[R](s, "main", what, version, req)
}

// as is ask by another client. Without an answer it returns an empty one.
func as[R kmsg.Response](s *session, client, what string, version int16, req kmsg.Request) R {
	if r, ok := s.send(client, what, version, req).keep().(R); ok {
		return r
	}
	none, _ := req.ResponseKind().(R)
	return none
}

// quiet asks without having the answer compared.
func quiet[R kmsg.Response](s *session, version int16, req kmsg.Request) R {
	req.SetVersion(version)
	resp, err := s.conn("quiet").Do(s.ctx, req)
	if err != nil {
		panic(stopped{err})
	}
	r, ok := resp.(R)
	if !ok {
		panic(stopped{fmt.Errorf("answered with %T", resp)})
	}
	return r
}

// until waits until a group is as wanted.
func (s *session) until(group string, want func(kmsg.DescribeGroupsResponseGroup) bool) {
	for {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{group}
		got := quiet[*kmsg.DescribeGroupsResponse](s, 5, req)
		if want(got.Groups[0]) {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-s.ctx.Done():
			panic(stopped{fmt.Errorf("group %s is %s with %d members", group, got.Groups[0].State, len(got.Groups[0].Members))})
		}
	}
}

// untilState waits for a state and a number of members.
func (s *session) untilState(group, state string, members int) {
	s.until(group, func(g kmsg.DescribeGroupsResponseGroup) bool { return g.State == state && len(g.Members) == members })
}
