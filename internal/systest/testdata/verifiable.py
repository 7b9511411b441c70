"""A consumer that says what it does as kafka-verifiable-consumer does: verifiable.py CLIENT GROUP TOPIC KEY=VALUE...

CLIENT is librdkafka (confluent-kafka) or kafka-python; the rest is its configuration. Each poll is committed before the
next. SIGTERM ends it."""
import json
import signal
import sys
import threading
import time

client, group, topic, *settings = sys.argv[1:]
settings = dict(s.split("=", 1) for s in settings)
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())


def say(name, **fields):
    print(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **fields}), flush=True)


def partitions(tps):
    return [{"topic": t.topic, "partition": t.partition} for t in tps]


def consumed(offsets):
    """offsets maps partitions to what was read of each, in order."""
    say("records_consumed", partitions=[
        {"topic": topic, "partition": p, "count": len(o), "minOffset": o[0], "maxOffset": o[-1]} for p, o in offsets.items()])


def committed(offsets, error):
    say("offsets_committed", success=error is None, error=str(error), offsets=[
        {"topic": topic, "partition": p, "offset": o[-1] + 1} for p, o in offsets.items()])


def librdkafka():
    from confluent_kafka import Consumer, KafkaException, TopicPartition
    c = Consumer({**settings, "group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "earliest"})
    c.subscribe([topic], on_assign=lambda _, tps: say("partitions_assigned", partitions=partitions(tps)),
                on_revoke=lambda _, tps: say("partitions_revoked", partitions=partitions(tps)),
                on_lost=lambda _, tps: say("partitions_revoked", partitions=partitions(tps), lost=True))
    while not stop.is_set():
        offsets = {}
        for m in c.consume(500, 0.2):
            if m.error():
                say("error", error=str(m.error()))
            else:
                offsets.setdefault(m.partition(), []).append(m.offset())
        if offsets:
            consumed(offsets)
            try:
                done = c.commit(offsets=[TopicPartition(topic, p, o[-1] + 1) for p, o in offsets.items()], asynchronous=False)
                failed = [t.error for t in done if t.error]
                committed(offsets, failed[0] if failed else None)
            except KafkaException as e:
                committed(offsets, e)
    c.close()


def kafka_python():
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned):
            say("partitions_assigned", partitions=partitions(assigned))

        def on_partitions_revoked(self, revoked):
            say("partitions_revoked", partitions=partitions(revoked))

    # By default it waits up to 30 s, each time twice as long, before it tries a broker again that died, and learns of no
    # new leader meanwhile: how long a group stands still would be chance, and could be longer than its session.
    c = KafkaConsumer(group_id=group, enable_auto_commit=False, auto_offset_reset="earliest", heartbeat_interval_ms=500,
                      session_timeout_ms=30000, reconnect_backoff_max_ms=1000,
                      bootstrap_servers=settings["bootstrap.servers"].split(","))
    c.subscribe([topic], listener=Listener())
    while not stop.is_set():
        offsets = {t.partition: [m.offset for m in ms] for t, ms in c.poll(timeout_ms=200, max_records=500).items()}
        if offsets:
            consumed(offsets)
            try:
                c.commit({TopicPartition(topic, p): OffsetAndMetadata(o[-1] + 1, "", -1) for p, o in offsets.items()})
                committed(offsets, None)
            except KafkaError as e:
                committed(offsets, e)
    c.close()


say("startup_complete")
{"librdkafka": librdkafka, "kafka-python": kafka_python}[client]()
say("shutdown_complete")
