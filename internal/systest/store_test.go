package systest_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ponor/internal/kbatch"
	"ponor/internal/systest"
)

// produceRaw sends one batch to partition 0 without the retries that a client
// library would make, and returns the broker's answer.
func produceRaw(t *testing.T, cl *kgo.Client, topic string, timeout time.Duration, value []byte) (offset int64, err error, message string) {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(timeout.Milliseconds())
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	adm := kadm.NewClient(cl)
	ctx, cancel := context.WithTimeout(t.Context(), timeout+time.Minute)
	defer cancel()
	topics, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return 0, err, ""
	}
	rt.TopicID = topics[topic].ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = kbatch.New(kbatch.Record{Value: value}).Bytes()
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := cl.Broker(int(topics[topic].Partitions[0].Leader)).Request(ctx, req)
	if err != nil {
		return 0, err, ""
	}
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if p.ErrorMessage != nil {
		message = *p.ErrorMessage
	}
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode), message
}

func TestFullStorePushesBackAndResumes(t *testing.T) {
	mnt := t.TempDir()
	if err := syscall.Mount("tmpfs", mnt, "tmpfs", 0, "size=48m"); err != nil {
		t.Skipf("needs the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(mnt, syscall.MNT_DETACH) })
	c := systest.Start(t, systest.Options{Nodes: 1, Store: "dir://" + filepath.Join(mnt, "store")})
	cl := c.Client()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, -1, nil, "full"); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(mnt, "filler")
	if err := os.WriteFile(filler, make([]byte, 36<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	acked := map[int64]byte{}
	var err error
	var message string
	systest.Eventually(t, "an error that says the store is full", func() error {
		var offset int64
		n := byte(len(acked))
		if offset, err, message = produceRaw(t, cl, "full", 5*time.Second, bytes.Repeat([]byte{n}, 256<<10)); err == nil {
			acked[offset] = n
		}
		if err == nil || !strings.Contains(message, "full") && !strings.Contains(message, "no space") {
			return fmt.Errorf("%d acknowledged, then %v: %q", len(acked), err, message)
		}
		return nil
	})
	t.Logf("%d acknowledged, then %v: %s", len(acked), err, message)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	systest.Eventually(t, "produce works again", func() error {
		_, err, message = produceRaw(t, cl, "full", 5*time.Second, []byte("after"))
		if err != nil {
			return fmt.Errorf("%w: %s", err, message)
		}
		return nil
	})
	got := readAllRecords(t, c, "full")
	for o, b := range acked {
		if r, ok := got[o]; !ok || len(r) != 256<<10 || r[0] != b {
			t.Errorf("record acknowledged at offset %d is lost or changed", o)
		}
	}
}

// readAllRecords reads partition 0 up to its end.
func readAllRecords(t *testing.T, c *systest.Cluster, topic string) map[int64][]byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
	defer cancel()
	ends, err := kadm.NewClient(c.Client()).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	cl := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := map[int64][]byte{}
	for int64(len(got)) < end.Offset {
		f := cl.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			t.Fatalf("consume: %v", err)
		}
		f.EachRecord(func(r *kgo.Record) { got[r.Offset] = r.Value })
	}
	return got
}

func TestDamagedObjectIsNamedAndNeverServed(t *testing.T) {
	for _, damage := range []string{"flipped", "truncated"} {
		t.Run(damage, func(t *testing.T) {
			c := systest.Start(t, systest.Options{Nodes: 1})
			marker := []byte("a value to be found in the object that holds it, and damaged there")
			cl := c.Client(kgo.DefaultProduceTopic("damaged"))
			if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, -1, nil, "damaged"); err != nil {
				t.Fatal(err)
			}
			for range 50 {
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: marker}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			c.Nodes[0].Kill()
			object := damageObject(t, filepath.Join(c.Dir, "store"), marker, damage)
			c.Nodes[0].Start()
			ctx, cancel := context.WithTimeout(t.Context(), systest.Patience)
			defer cancel()
			consumer := c.Client(kgo.ConsumeTopics("damaged"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepRetryableFetchErrors())
			for ctx.Err() == nil {
				f := consumer.PollFetches(ctx)
				f.EachRecord(func(r *kgo.Record) {
					if !bytes.Equal(r.Value, marker) {
						t.Fatalf("offset %d was served damaged: %q", r.Offset, r.Value)
					}
				})
				if log, _ := os.ReadFile(c.Nodes[0].Log); bytes.Contains(log, []byte(filepath.Base(object))) {
					return
				}
			}
			t.Errorf("the log does not name the damaged object %s", object)
		})
	}
}

// damageObject finds an object with the marker, damages it and returns its name.
// The temporary name of one may outlive a killed node and is not what a log names.
func damageObject(t *testing.T, store string, marker []byte, how string) string {
	t.Helper()
	var victim string
	err := filepath.WalkDir(store, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			return err
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		at := bytes.Index(b, marker)
		if at < 0 {
			return nil
		}
		victim = name
		if how == "truncated" {
			err = os.Truncate(name, int64(at+len(marker)/2))
		} else {
			b[at+len(marker)/2] ^= 0x20
			err = os.WriteFile(name, b, 0o644)
		}
		return cmp.Or(err, fs.SkipAll)
	})
	if err != nil || victim == "" {
		t.Fatalf("find an object with the record: %q, %v", victim, err)
	}
	return victim
}
