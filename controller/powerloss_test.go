package controller_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ponor/controller"
	"ponor/internal/powerloss"
	"ponor/metadata"
)

// powered is a quorum of one on files, which takes a snapshot and cuts its log
// every few entries.
func powered(t *testing.T, dir string) (*cluster, *node) {
	c := newCluster(t)
	c.tune = func(cfg *controller.Config) {
		cfg.DataDir = filepath.Join(dir, "node", "metadata")
		cfg.SnapshotEntries, cfg.TrailingLogs = 6, 3
	}
	c.voters(1)
	return c, c.leader()
}

// runNode is the process that loses power: it makes changes of several kinds and
// marks each once it was acknowledged. Arg makes its names its own.
func runNode(t *testing.T, p *powerloss.Process) {
	c, n := powered(t, p.Dir)
	register := func() { p.Mark("epoch %d", c.broker(n).Epoch) }
	register()
	p.Mark("cluster %s", n.Image().ClusterID())
	counter := "counter-" + p.Arg
	p.Mark("topic %s %s", counter, c.topic(n, counter, 1, 1))
	var before metadata.TopicID
	for i := range 30 {
		name := fmt.Sprintf("topic-%s-%d", p.Arg, i)
		id := c.topic(n, name, 2, 1)
		p.Mark("topic %s %s", name, id)
		value := strconv.Itoa(1000 + i)
		errs, err := n.AlterConfigs(c.context(), []controller.ConfigResource{{
			Kind: metadata.KindTopic, Name: counter, Changes: []controller.ConfigChange{{Name: "retention.ms", Value: value}},
		}}, false)
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		p.Mark("config %s %s", counter, value)
		r, err := n.SubmitOwn(c.context(), allocate())
		if err != nil || r.Err != nil {
			t.Fatal(err, r.Err)
		}
		p.Mark("allocated %d", r.First)
		if i%4 == 3 {
			p.Mark("deleting %s", before)
			if errs, err := n.DeleteTopics(c.context(), []metadata.TopicID{before}); err != nil || errs[0] != nil {
				t.Fatal(err, errs)
			}
			p.Mark("deleted %s", before)
		}
		before = id
		if i%5 == 2 {
			time.Sleep(5 * time.Minute) // virtual; Raft looks whether a snapshot is due
		}
		if i%12 == 11 {
			c.stop(n)
			n = c.start(1, true)
			register()
		}
	}
}

// promises is what marks say must be there.
type promises struct {
	cluster          string
	topics           map[string]string // name by id
	gone             map[string]bool   // deleted for sure; false if perhaps
	config           map[string]int
	epoch, allocated uint64 // the last epoch, and the next id to allocate
}

func (p *promises) add(t *testing.T, mark string) {
	f := strings.Fields(mark)
	number := func(s string) uint64 {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	switch f[0] {
	case "cluster":
		p.cluster = f[1]
	case "epoch":
		p.epoch = max(p.epoch, number(f[1]))
	case "allocated":
		p.allocated = max(p.allocated, number(f[1])+1)
	case "topic":
		p.topics[f[2]] = f[1]
	case "config":
		p.config[f[1]] = int(number(f[2]))
	case "deleting", "deleted":
		p.gone[f[1]] = f[0] == "deleted"
	default:
		t.Fatalf("unknown mark %q", mark)
	}
}

// check starts a node on a directory and looks for everything promised.
func (p *promises) check(t *testing.T, dir string) {
	c, n := powered(t, dir)
	img, err := n.Barrier(c.context())
	if err != nil {
		t.Fatal(err)
	}
	if p.cluster != "" && img.ClusterID() != p.cluster {
		t.Errorf("the cluster is %s, was %s", img.ClusterID(), p.cluster)
	}
	there := map[string]string{}
	for topic := range img.Topics() {
		if !topic.Deleting {
			there[topic.ID.String()] = topic.Name
		}
	}
	for id, name := range p.topics {
		sure, deleting := p.gone[id]
		if got, ok := there[id]; ok && (got != name || sure) || !ok && !deleting {
			t.Errorf("topic %s (%s): there %t as %q, deleted %t", name, id, ok, got, sure)
		}
	}
	for name, least := range p.config {
		got, err := strconv.Atoi(img.Configs(metadata.KindTopic, name)["retention.ms"])
		if err != nil || got < least {
			t.Errorf("retention of %s is %d, %v, want %d or more", name, got, err, least)
		}
	}
	if inc := c.broker(n); inc.Epoch <= p.epoch {
		t.Errorf("registered with epoch %d, had %d before", inc.Epoch, p.epoch)
	}
	r, err := n.SubmitOwn(c.context(), allocate())
	if err != nil || r.Err != nil || r.First < p.allocated {
		t.Errorf("allocated id %d, want %d or more: %v, %v", r.First, p.allocated, err, r.Err)
	}
}

// A voter that lost power starts again and has every change that it had
// acknowledged, however often that happens.
func TestNodeSurvivesPowerLoss(t *testing.T) {
	if p := powerloss.Child(t); p != nil {
		synctest.Test(t, func(t *testing.T) { runNode(t, p) })
		return
	}
	first, seeds := powerloss.Seeds(200)
	const generations = 3
	dir, crashes := powerloss.Scratch(t), 0
	var kept []string // marks that led to dir
	for generation := range generations {
		r := powerloss.Record(t, dir, strconv.Itoa(generation))
		n := seeds/generations + 1
		middle := n / 2
		var nextDir string
		var nextMarks []string
		for c, err := range r.Crashes(first+uint64(crashes), n) {
			if err != nil {
				t.Fatal(err)
			}
			p := &promises{topics: map[string]string{}, gone: map[string]bool{}, config: map[string]int{}}
			marks := append(kept[:len(kept):len(kept)], c.Marks...)
			for _, m := range marks {
				p.add(t, m)
			}
			left := powerloss.Scratch(t)
			if err := c.Write(left); err != nil {
				t.Fatal(err)
			}
			if middle--; middle == 0 {
				nextDir, nextMarks = powerloss.Scratch(t), marks
				if err := c.Write(nextDir); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("generation %d, %v", generation, c)
					}
				}()
				p.check(t, left)
			})
			if t.Failed() {
				return
			}
			crashes++
		}
		dir, kept = nextDir, nextMarks
	}
	t.Logf("%d power cuts under a voter", crashes)
}
