package workload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ponor/jepsen/history"
)

// driver is a client in a process of its own, in any language. It reads requests
// and writes answers, each a line of JSON, one for one, and ends when its input
// does. In between it may tell of a rebalance, from within the callback that the
// library made; it must not return from there before it has read that this was
// noted, because then another member may be given the partitions.
//
// What a driver says is believed, but not awaited for ever. One that is late, or
// says what makes no sense, is killed; whatever it was doing has an unknown effect.
type driver struct {
	command string
	setup   request
	log     string // file for what it prints on its standard error; empty: nowhere
	// patience is what an answer may take beside what it waits for itself.
	patience time.Duration
	closing  *sync.WaitGroup

	cmd  *exec.Cmd
	in   io.WriteCloser
	pipe io.ReadCloser
	out  *bufio.Reader // of pipe
	told rebalanced    // of the member
	id   string        // of the member, as it said last
	gen  int32
	dead error // why it is not asked any more
}

var _ client = (*driver)(nil)

// request is a line for a driver. Times are in ms.
type request struct {
	Do string `json:"do"` // open, send, assign, subscribe, poll, commit, leave; noted

	// open: make a producer. Bootstrap, codec and timeout are of all that follows.
	Bootstrap  string `json:"bootstrap,omitempty"`
	Idempotent bool   `json:"idempotent,omitempty"`
	Codec      string `json:"codec,omitempty"`
	Timeout    int64  `json:"timeout,omitempty"` // of a record

	Records    []driverRecord    `json:"records,omitempty"`    // send
	Partitions []driverPartition `json:"partitions,omitempty"` // assign; commit: none means all that was polled

	Group    string   `json:"group,omitempty"` // subscribe
	Topics   []string `json:"topics,omitempty"`
	Assignor string   `json:"assignor,omitempty"`
	Instance string   `json:"instance,omitempty"`

	Wait int64 `json:"wait,omitempty"` // poll, commit
	Most int   `json:"most,omitempty"` // poll
}

// reply is a line of a driver: an answer, or an event.
type reply struct {
	Client string `json:"client"` // open: the library and its version
	// Failed: the whole request did.
	Failed *driverError `json:"failed"`
	// Answers are those for the records of a send in their order, or for the
	// partitions of a commit.
	Answers []driverAnswer `json:"answers"`
	Records []driverRecord `json:"records"` // poll
	Errors  []driverError  `json:"errors"`  // poll: what the library said
	Fatal   bool           `json:"fatal"`   // poll: the consumer does not go on reading a partition

	Event      string            `json:"event"` // assigned, revoked, lost
	Partitions []driverPartition `json:"partitions"`

	// Member and generation (or epoch) of a consumer that subscribed.
	Member     string `json:"member"`
	Generation int32  `json:"generation"`
}

// driverPartition is a partition; offset: where to begin, startOfLog, or the
// position to commit.
type driverPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// driverRecord is a record; bytes are base64, the time ms.
type driverRecord struct {
	driverPartition                // the offset of one that was polled
	Key             []byte         `json:"key"`
	Value           []byte         `json:"value"`
	Headers         []driverHeader `json:"headers"`
	Timestamp       int64          `json:"timestamp"`
}

type driverHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// driverAnswer is the offset of a record, or the partition of a commit, or why not.
type driverAnswer struct {
	driverPartition
	driverError
}

// driverError has Kafka's name of the error, or the library's if it is its own.
type driverError struct {
	Name string `json:"error"`
	Text string `json:"text"`
	// Unsent: the library refused the record before a broker could hear of it.
	Unsent bool `json:"unsent"`
}

func (e *driverError) err() error {
	if e == nil || e.Name == "" {
		return nil
	}
	err := namedError(e.Name, e.Text)
	if e.Unsent {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	return err
}

// errDead: the process of a client has ended, or is not answering.
var errDead = errors.New("the client has died")

const (
	// startWait is how long a driver may take to start and open; a virtual machine
	// on a busy computer takes seconds.
	startWait  = 40 * time.Second
	answerWait = 10 * time.Second
)

// newDriver is not started yet.
func (e *Env) newDriver(seeds []string, codec string) *driver {
	return &driver{
		command: e.Driver, log: e.DriverLog, patience: answerWait, closing: &e.closing,
		setup: request{Do: "open", Bootstrap: strings.Join(seeds, ","), Idempotent: e.Idempotent, Codec: codec, Timeout: e.OpTimeout.Milliseconds()},
	}
}

// TryDriver starts a driver once, and returns what client it says it is. It is killed
// when the context ends.
func TryDriver(ctx context.Context, command, log string) (string, error) {
	var closing sync.WaitGroup
	defer closing.Wait()
	d := &driver{command: command, log: log, closing: &closing, setup: request{Do: "open", Bootstrap: "127.0.0.1:1", Idempotent: true, Codec: codecs[0], Timeout: 1000}}
	defer d.crash()
	if err := d.start(); err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, d.kill)()
	r, err := d.ask(d.setup, startWait)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return r.Client, err
}

// start runs the process in a group of its own, so that Ctrl-C does not reach it
// and a shell ends with what it started.
func (d *driver) start() error {
	d.cmd = exec.CommandContext(context.Background(), "sh", "-c", d.command)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.log != "" {
		log, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("open the log of clients: %w", err)
		}
		defer log.Close()
		d.cmd.Stderr = log
	}
	var err error
	if d.pipe, err = d.cmd.StdoutPipe(); err == nil {
		d.in, err = d.cmd.StdinPipe()
	}
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		d.cmd = nil
		return fmt.Errorf("%w: start it: %w", errDead, err)
	}
	d.out = bufio.NewReader(d.pipe)
	return nil
}

// open starts the driver the first time.
func (d *driver) open() error {
	if d.cmd != nil || d.dead != nil {
		return d.dead
	}
	if d.dead = d.start(); d.dead != nil {
		return d.dead
	}
	_, err := d.ask(d.setup, startWait)
	return err
}

// ask waits for the answer to a request; events come before it. An error that is no
// answer's is errDead.
func (d *driver) ask(q request, within time.Duration) (reply, error) {
	if d.dead != nil {
		return reply{}, d.dead
	}
	late := time.AfterFunc(within, d.kill)
	r, err := d.exchange(q)
	if !late.Stop() && err != nil {
		err = fmt.Errorf("no answer to %s within %v", q.Do, within)
	}
	if err != nil {
		d.dead = fmt.Errorf("%w: %w", errDead, err)
		d.kill()
		return reply{}, d.dead
	}
	return r, r.Failed.err()
}

func (d *driver) exchange(q request) (reply, error) {
	if err := d.write(q); err != nil {
		return reply{}, err
	}
	for {
		line, err := d.out.ReadBytes('\n')
		if err != nil {
			return reply{}, fmt.Errorf("read the answer to %s: %w", q.Do, err)
		}
		var r reply
		if err := json.Unmarshal(line, &r); err != nil {
			return reply{}, fmt.Errorf("read the answer to %s: %w", q.Do, err)
		}
		if r.Member != "" || r.Generation != 0 {
			d.id, d.gen = r.Member, r.Generation
		}
		switch r.Event {
		case "":
			return r, nil
		case "assigned", "revoked", "lost":
			if d.told != nil {
				d.told(r.Event, partitionsOf(r.Partitions), r.Member, r.Generation)
			}
		default:
			return reply{}, fmt.Errorf("it tells of %q", r.Event)
		}
		if err := d.write(request{Do: "noted"}); err != nil {
			return reply{}, err
		}
	}
}

func partitionsOf(list []driverPartition) []history.Partition {
	parts := make([]history.Partition, len(list))
	for i, p := range list {
		parts[i] = history.Partition{Topic: p.Topic, Partition: p.Partition}
	}
	return parts
}

func (d *driver) write(q request) error {
	b, err := json.Marshal(q)
	if err == nil {
		_, err = d.in.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ask it to %s: %w", q.Do, err)
	}
	return nil
}

// kill ends the process and all that it started, stopped or not, and whoever waits
// for it.
func (d *driver) kill() {
	if d.cmd == nil {
		return
	}
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
	_, _ = d.in.Close(), d.pipe.Close()
}

func (d *driver) send(records []*kgo.Record) ([]answer, int32) {
	q := request{Do: "send"}
	for _, r := range records {
		rec := driverRecord{driverPartition: driverPartition{Topic: r.Topic, Partition: r.Partition}, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli()}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, driverHeader(h))
		}
		q.Records = append(q.Records, rec)
	}
	r, err := d.ask(q, time.Duration(d.setup.Timeout)*time.Millisecond+d.patience)
	answers := make([]answer, len(records))
	for i := range answers {
		switch {
		case err != nil:
			answers[i].err = err
		case i >= len(r.Answers):
			answers[i].err = errUnanswered
		default:
			a := r.Answers[i]
			answers[i] = answer{a.Offset, a.err()}
		}
	}
	return answers, 0
}

// repeats: libraries repeat requests until a time has passed, and do not tell.
func (*driver) repeats() bool { return true }

func (d *driver) assign(from map[history.Partition]int64) error {
	if err := d.open(); err != nil {
		return err
	}
	_, err := d.ask(request{Do: "assign", Partitions: partitionsFor(from)}, d.patience)
	return err
}

func partitionsFor(offsets map[history.Partition]int64) []driverPartition {
	var list []driverPartition
	for p, offset := range offsets {
		list = append(list, driverPartition{p.Topic, p.Partition, offset})
	}
	return list
}

func (d *driver) subscribe(m member, told rebalanced) error {
	if err := d.open(); err != nil {
		return err
	}
	d.told, d.id, d.gen = told, "", 0
	_, err := d.ask(request{Do: "subscribe", Group: m.group, Topics: m.topics, Assignor: m.assignor, Instance: m.instance}, d.patience)
	return err
}

func (d *driver) poll(wait time.Duration, most int) polled {
	r, err := d.ask(request{Do: "poll", Wait: wait.Milliseconds(), Most: most}, wait+d.patience)
	if err != nil {
		return polled{notes: []string{err.Error()}, fatal: true}
	}
	got := polled{fatal: r.Fatal}
	for _, e := range r.Errors {
		got.notes = append(got.notes, e.err().Error())
	}
	for _, rec := range r.Records {
		k := &kgo.Record{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Key: rec.Key, Value: rec.Value, Timestamp: time.UnixMilli(rec.Timestamp)}
		for _, h := range rec.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader(h))
		}
		got.records = append(got.records, k)
	}
	return got
}

func (*driver) proceed() {} // callbacks are made in polls

func (d *driver) commit(upTo map[history.Partition]int64, within time.Duration) (map[history.Partition]error, error) {
	r, err := d.ask(request{Do: "commit", Partitions: partitionsFor(upTo), Wait: within.Milliseconds()}, within+d.patience)
	if err != nil {
		return nil, err
	}
	answers := make(map[history.Partition]error)
	for _, a := range r.Answers {
		answers[history.Partition{Topic: a.Topic, Partition: a.Partition}] = a.err()
	}
	if len(answers) < len(upTo) {
		return nil, errUnanswered
	}
	return answers, nil
}

func (d *driver) identity() (string, int32) { return d.id, d.gen }

func (d *driver) leave() {
	_, _ = d.ask(request{Do: "leave", Wait: leaveWait.Milliseconds()}, leaveWait+d.patience) // it may as well be gone
	d.told = nil
}

// stall stops the process.
func (d *driver) stall() (func(), bool) {
	if d.cmd == nil {
		return func() {}, false
	}
	pid := d.cmd.Process.Pid
	_ = syscall.Kill(-pid, syscall.SIGSTOP)
	return func() { _ = syscall.Kill(-pid, syscall.SIGCONT) }, false
}

func (d *driver) crash() {
	d.kill()
	if d.cmd != nil {
		d.closing.Go(func() { _ = d.cmd.Wait() }) // it was killed
	}
	d.dead = fmt.Errorf("%w: it was to", errDead)
}
