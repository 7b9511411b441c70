package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceFlags are the choices of a producer that 'produce' and 'bench' share.
type produceFlags struct {
	acks        string
	compression string
	linger      time.Duration
}

func (f *produceFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.acks, "acks", "all", "wait for: all, 1 (leader) or 0 (nothing)")
	cmd.Flags().StringVar(&f.compression, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	cmd.Flags().DurationVar(&f.linger, "linger", 0, "how long to wait for more records to batch")
}

// options translates the flags for the client.
func (f *produceFlags) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.ProducerLinger(f.linger)}
	switch f.acks {
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, usagef("--acks %q: all, 1 or 0", f.acks)
	}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[f.compression]
	if !ok {
		return nil, usagef("--compression %q: none, gzip, snappy, lz4 or zstd", f.compression)
	}
	return append(opts, kgo.ProducerBatchCompression(codec)), nil
}

func newProduce() *cobra.Command {
	var f clientFlags
	var pf produceFlags
	var separator string
	var headers []string
	var partition int32
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Produce lines of standard input",
		Example: `  echo hello | ponor produce greetings
  printf 'k1:v1\nk2:v2\n' | ponor produce greetings --key-separator :`,
		Args: takes(1, 1), ValidArgsFunction: f.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts, err := pf.options()
			if err != nil {
				return err
			}
			if partition >= 0 {
				opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			}
			template := kgo.Record{Topic: args[0], Partition: partition}
			for _, h := range headers {
				k, v, ok := strings.Cut(h, "=")
				if !ok {
					return usagef("--header %q: write name=value", h)
				}
				template.Headers = append(template.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
			}
			limit, err := f.recordLimit(cmd, args[0])
			if err != nil {
				return fmt.Errorf("produce to %s: %w", args[0], err)
			}
			cl, err := f.connect(cmd.Context(), append(opts, kgo.RecordDeliveryTimeout(f.timeout), kgo.ProducerBatchMaxBytes(limit),
				kgo.AllowIdempotentProduceCancellation(), kgo.UnknownTopicRetries(1))...)
			if err != nil {
				return err
			}
			defer cl.Close()
			n, err := produceLines(cmd.Context(), cl, cmd.InOrStdin(), template, separator)
			cmd.PrintErrf("produced %s to %s\n", count(n, "record"), args[0])
			switch {
			case errors.Is(err, kerr.UnknownTopicOrPartition): // deleted just now
				return fmt.Errorf("produce to %s: %w", args[0], unknownTopic(cmd.Context(), kadm.NewClient(cl), args[0], err))
			case errors.Is(err, errTooLarge):
				return fmt.Errorf("produce to %s: %w, and max.message.bytes of the topic, for a batch with what frames it, is %d; 'ponor topic alter %s --config max.message.bytes=BYTES' changes that", args[0], err, limit, args[0])
			case err != nil:
				return fmt.Errorf("produce to %s: %w", args[0], brokerError(err, ""))
			}
			return nil
		},
	}
	f.register(cmd)
	pf.register(cmd)
	cmd.Flags().StringVar(&separator, "key-separator", "", "split each line into key and value at this text")
	cmd.Flags().StringArrayVarP(&headers, "header", "H", nil, "a header for every record, name=value; may be repeated")
	cmd.Flags().Int32Var(&partition, "partition", -1, "partition to produce to; -1 lets the client choose")
	return cmd
}

var errTooLarge = errors.New("a record is too large")

// unknownTopic says that a topic is not there, and how to make it.
func unknownTopic(ctx context.Context, adm *kadm.Client, name string, err error) error {
	return fmt.Errorf("%w; 'ponor topic create %s' makes it", topicError(ctx, adm, name, err, ""), name)
}

// Bounds of a batch. What no cluster says otherwise is Kafka's default; one request may
// have 100 MiB, and a batch is in one.
const (
	defaultBatch = 1 << 20
	maxBatch     = 96 << 20
)

// recordLimit is max.message.bytes of a topic, which must be there.
func (f *clientFlags) recordLimit(cmd *cobra.Command, topic string) (limit int32, err error) {
	limit = defaultBatch
	err = f.withAdmin(cmd, func(ctx context.Context, adm *kadm.Client) error {
		topics, err := adm.ListTopicsWithInternal(ctx, topic)
		if err != nil {
			return fmt.Errorf("look for the topic: %w", err)
		}
		if err := topics[topic].Err; err != nil {
			return unknownTopic(ctx, adm, topic, err)
		}
		configs, err := adm.DescribeTopicConfigs(ctx, topic)
		if err != nil || len(configs) == 0 {
			return nil //nolint:nilerr // who may not read configs may still produce
		}
		for _, c := range configs[0].Configs {
			if n, err := strconv.ParseInt(c.MaybeValue(), 10, 32); c.Key == "max.message.bytes" && err == nil {
				limit = int32(min(max(n, 1<<10), maxBatch))
			}
		}
		return nil
	})
	return limit, err
}

// produceLines sends each line as one record and returns how many were
// acknowledged.
func produceLines(ctx context.Context, cl *kgo.Client, in io.Reader, template kgo.Record, separator string) (int, error) {
	var mu sync.Mutex
	var acked int
	var first error
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, readErr := lines.ReadBytes('\n')
		if len(line) > 0 {
			r := template
			r.Value = bytes.TrimSuffix(line, []byte("\n"))
			if separator != "" {
				k, v, ok := strings.Cut(string(r.Value), separator)
				if ok {
					r.Key, r.Value = []byte(k), []byte(v)
				}
			}
			cl.Produce(ctx, &r, func(r *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, kerr.MessageTooLarge) {
					err = fmt.Errorf("%w: it has %d bytes", errTooLarge, len(r.Key)+len(r.Value))
				}
				if err == nil {
					acked++
				} else if first == nil {
					first = err
				}
			})
		}
		mu.Lock()
		failed := first
		mu.Unlock()
		if readErr != nil || failed != nil {
			if readErr != nil && !errors.Is(readErr, io.EOF) {
				return acked, fmt.Errorf("read standard input: %w", readErr)
			}
			break
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return acked, fmt.Errorf("wait for acknowledgements: %w", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if first != nil {
		return acked, first
	}
	return acked, nil
}
