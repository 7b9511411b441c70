"""Send records to partition 0 at a fixed rate with librdkafka, idempotently, and
print when each was due and when it was acknowledged, in microseconds of Unix time.
Ends on SIGTERM. Arguments: bootstrap servers, topic, records per second."""
import signal
import sys
import time

from confluent_kafka import Producer

bootstrap, topic, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
running = True


def end(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, end)
producer = Producer({
    "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0,
    "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 20,
    "reconnect.backoff.ms": 20, "queue.buffering.max.messages": 1000000,
})
out = []


def report(due):
    def done(err, _):
        out.append("failed: %s" % err if err else "%d %d" % (due, time.time() * 1e6))
    return done


begun, i = time.time(), 0
while running:
    due = begun + i / rate
    while running and time.time() < due:
        producer.poll(max(0, due - time.time()))
    producer.produce(topic, b"x" * 100, partition=0, on_delivery=report(int(due * 1e6)))
    i += 1
    if out and i % 10 == 0:
        print("\n".join(out), flush=True)
        out.clear()
producer.flush(30)
if out:
    print("\n".join(out), flush=True)
