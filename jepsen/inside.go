package jepsen

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"ponor/controller"
	"ponor/jepsen/check"
	"ponor/jepsen/cluster"
	"ponor/metadata"
	"ponor/partition"
	"ponor/rpc"
	"ponor/sharedlog/verify"
)

// statuses collects what the voters of the run's own cluster say about the
// quorum and the metadata.
type statuses struct {
	addresses []string
	mu        struct {
		sync.Mutex
		asking  map[string]bool
		leaders map[check.Leader]bool
		hashes  map[check.Hash]bool
	}
}

func newStatuses(own *cluster.Processes) *statuses {
	s := &statuses{}
	if own != nil {
		s.addresses = own.Controllers()
	}
	s.mu.asking, s.mu.leaders, s.mu.hashes = make(map[string]bool), make(map[check.Leader]bool), make(map[check.Hash]bool)
	return s
}

// statusTimeout bounds one question; a paused node does not answer.
const statusTimeout = 2 * time.Second

// ask asks every voter that answered the last question, without waiting.
func (s *statuses) ask() {
	for _, a := range s.addresses {
		s.mu.Lock()
		busy := s.mu.asking[a]
		s.mu.asking[a] = true
		s.mu.Unlock()
		if !busy {
			go s.one(a)
		}
	}
}

func (s *statuses) one(address string) {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	st, err := controller.AskStatus(ctx, address)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.asking[address] = false
	if err != nil {
		return
	}
	if st.State == "Leader" {
		s.mu.leaders[check.Leader{Term: st.Term, Node: int32(st.NodeID)}] = true
	}
	if st.Index > 0 {
		s.mu.hashes[check.Hash{Node: int32(st.NodeID), Index: uint64(st.Index), Hash: hex.EncodeToString(st.Hash[:16])}] = true
	}
}

// fill gives what was collected. Hashes of an index that one node alone had are
// of no use.
func (s *statuses) fill(w *check.White) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.mu.leaders {
		w.Leaders = append(w.Leaders, l)
	}
	nodes := make(map[uint64]int)
	for h := range s.mu.hashes {
		nodes[h.Index]++
	}
	for h := range s.mu.hashes {
		if nodes[h.Index] > 1 {
			w.Hashes = append(w.Hashes, h)
		}
	}
}

// maxBatches bounds the batches whose headers are looked at, and with them
// the file that keeps them.
const maxBatches = 100_000

// lookInside fills what only the owner of a cluster can see.
func (r *run) lookInside(ctx context.Context) {
	r.results = r.work.Results()
	if r.own == nil {
		return
	}
	for range 5 { // the load has ended, so that all soon have the same index
		r.status.ask()
		time.Sleep(200 * time.Millisecond)
	}
	r.status.fill(&r.white)
	r.results = append(r.results, r.crashes(), r.alarms())
	if batches, err := r.env.Batches(ctx, maxBatches); err != nil {
		r.say.line("headers of batches were not looked at: %v", err)
	} else {
		r.white.Batches = batches
	}
	if r.o.OpenStore == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	rep, err := r.verifyStore(ctx)
	if err != nil {
		r.why = append(r.why, fmt.Sprintf("the store could not be verified: %v", err))
		return
	}
	r.white.Store = rep
	r.say.line("verified the store: %d records of %d streams, %d problems", rep.Records, rep.Streams, rep.Problems)
}

// verifyStore reads the whole store and compares it with the metadata.
func (r *run) verifyStore(ctx context.Context) (*verify.Report, error) {
	b, err := r.o.OpenStore(ctx, r.own.Store())
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return verify.Run(ctx, verify.Config{
		Bucket: b, Image: r.image,
		Checkpoint: func(b []byte) error { _, err := partition.DecodeState(b); return err },
	})
}

// image is the metadata of the running cluster.
func (r *run) image(ctx context.Context) (*metadata.Image, error) {
	var errs []error
	for _, a := range r.own.Bootstrap() {
		c, err := rpc.Dial(ctx, new(net.Dialer).DialContext, a, rpc.ClientConfig{ClientID: "ponor-jepsen"})
		if err == nil {
			var img *metadata.Image
			img, err = controller.AskImage(ctx, c)
			_ = c.Close()
			if err == nil {
				return img, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// fatal is what a Go program prints when it ends by its own fault.
var fatal = regexp.MustCompile(`(?m)^(panic: |fatal error: |WARNING: DATA RACE).*$`)

// failedDisk is said by one that ends because its disk failed, or had no room: it
// cannot vote any more, and another must start it again.
var failedDisk = regexp.MustCompile(`input/output error|no space left on device`)

// crashes looks for nodes that ended though nobody told them to.
func (r *run) crashes() check.Result {
	res := check.Result{ID: "V7", Name: "node-crash", Verdict: check.Valid, Checked: int64(len(r.own.Nodes()))}
	exited := r.own.Exited()
	for _, n := range r.own.Nodes() {
		b, err := os.ReadFile(r.own.Log(n))
		if err != nil {
			res.Verdict, res.Note = check.Unknown, err.Error()
			continue
		}
		text, disk := lastWords(b, slices.ContainsFunc(r.o.Nemesis, func(s string) bool { return strings.HasPrefix(s, "disk-") }))
		if disk {
			res.Note = "nodes ended as their disk failed"
			continue
		}
		if how, ok := exited[n]; ok || text != "" {
			res.Count++
			res.Worst = append(res.Worst, check.Anomaly{
				Text: strings.TrimSpace(fmt.Sprintf("node %d %s %s: see %s", n, how, text, r.own.Log(n))), Key: -1, At: r.env.Now(),
			})
		}
	}
	if res.Count > 0 {
		res.Verdict = check.Invalid
	}
	return res
}

// alarms looks for what a node of the cluster, or a guest, thought must not be.
func (r *run) alarms() check.Result {
	logs, err := filepath.Glob(filepath.Join(r.own.Logs(), "node*.log"))
	res := check.Result{ID: "V9", Name: "alarms", Verdict: check.Valid, Checked: int64(len(logs))}
	for _, name := range logs {
		var b []byte
		if b, err = os.ReadFile(name); err != nil {
			break
		}
		for _, line := range alarming(string(b)) {
			if res.Count++; res.Count <= check.MaxWorst {
				res.Worst = append(res.Worst, check.Anomaly{Text: fmt.Sprintf("%s: %s", filepath.Base(name), line), Key: -1, At: r.env.Now()})
			}
		}
	}
	switch {
	case res.Count > 0:
		res.Verdict = check.Invalid
	case err != nil:
		res.Verdict, res.Note = check.Unknown, err.Error()
	}
	return res
}

// alarming are a log's lines of level error. No fault is a reason for one, but for
// those that say that others took over, and Raft's own.
func alarming(log string) (list []string) {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, " is fenced") && !strings.Contains(line, "msg=raft ") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}

// lastWords is the first line in a node's output with which it ended, empty if
// there is none. Disk: all such lines are of a disk that failed, which may.
func lastWords(output []byte, may bool) (line string, disk bool) {
	all := fatal.FindAll(output, -1)
	if len(all) == 0 {
		return "", false
	}
	disk = may && !slices.ContainsFunc(all, func(b []byte) bool { return !failedDisk.Match(b) })
	return strings.TrimSpace(string(all[0])), disk
}
