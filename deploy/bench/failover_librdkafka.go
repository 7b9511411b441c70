package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

//go:embed librdkafka.py
var librdkafkaScript string

// librdkafka is an idempotent producer of Python's confluent-kafka, which is
// librdkafka: every partition of a topic at a fixed rate, as pace.
type librdkafka struct {
	ackLog
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // once ended
}

// impatientLibrdkafka are settings as impatient as pace's; 1 s is the shortest
// time that a connection may take.
var impatientLibrdkafka = []string{
	"socket.timeout.ms=500", "socket.connection.setup.timeout.ms=1000", "topic.metadata.refresh.interval.ms=250",
	"retry.backoff.ms=20", "retry.backoff.max.ms=100", "reconnect.backoff.ms=20", "reconnect.backoff.max.ms=100",
}

func haveLibrdkafka() bool { return os.Getenv("PYTHON_CLIENTS") != "" }

// newLibrdkafka starts records at a rate in each partition, with settings NAME=VALUE;
// it sends until stop.
func (f *failover) newLibrdkafka(topic string, partitions int, rate float64, settings ...string) (*librdkafka, error) {
	ctx, cancel := context.WithCancel(f.ctx)
	args := append([]string{"-c", librdkafkaScript, f.bootstrap, topic, fmt.Sprint(partitions), fmt.Sprint(rate)}, settings...)
	cmd := exec.CommandContext(ctx, os.Getenv("PYTHON_CLIENTS"), args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("run librdkafka: %w", err)
	}
	l := &librdkafka{ackLog: ackLog{partitions: partitions}, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var partition int32
			var due, at int64
			if _, err := fmt.Sscan(scan.Text(), &partition, &due, &at); err != nil {
				l.err = errors.Join(l.err, errors.New(scan.Text()))
				continue
			}
			l.mu.Lock()
			l.acks = append(l.acks, ack{partition, time.UnixMicro(due), time.UnixMicro(at)})
			l.mu.Unlock()
		}
		_ = cmd.Wait() // it was told to end
	}()
	return l, nil
}

// stop ends it. It returns what failed.
func (l *librdkafka) stop() error {
	l.cancel()
	<-l.ended
	if l.err != nil {
		return fmt.Errorf("librdkafka failed: %w", l.err)
	}
	return nil
}
