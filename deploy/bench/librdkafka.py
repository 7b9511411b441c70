"""Send records to each partition of a topic at a fixed rate with librdkafka,
idempotently, and print of each its partition, when it was due and when it was
acknowledged, in microseconds of Unix time. Ends on SIGTERM. Arguments: bootstrap
servers, topic, partitions, records per second in each, settings NAME=VALUE."""
import collections
import signal
import sys
import threading
import time

from confluent_kafka import Producer

bootstrap, topic, partitions, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
running = True


def end(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, end)
producer = Producer({
    "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0,
    "queue.buffering.max.messages": 1000000, "log_level": 3,
} | dict(s.split("=", 1) for s in sys.argv[5:]))
out = collections.deque()  # what is to be printed


def report(partition, due):
    def done(err, _):
        out.append("failed: %s" % err if err else "%d %d %d" % (partition, due, time.time() * 1e6))
    return done


def show():
    print("\n".join(out.popleft() for _ in range(len(out))), flush=True)


def poll():
    while running:
        producer.poll(0.1)  # waits for reports; a wait below 1 ms would be none


poller = threading.Thread(target=poll)
poller.start()
begun, printed, i = time.time(), 0, 0
while running:
    due = begun + i / rate / partitions
    time.sleep(max(0, due - time.time()))
    # Not a record of failover_pace.go's, which are verified.
    producer.produce(topic, b"x" * 99, partition=i % partitions, on_delivery=report(i % partitions, int(due * 1e6)))
    i += 1
    if out and due > printed + 0.01:
        printed = due
        show()
poller.join()
producer.flush(30)
if out:
    show()
