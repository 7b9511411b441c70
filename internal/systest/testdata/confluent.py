"""confluent-kafka (librdkafka): every codec and acks, headers, null values, large and tiny batches."""
import os
import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition, OFFSET_BEGINNING
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

bootstrap = sys.argv[1]
admin = AdminClient({"bootstrap.servers": bootstrap})


def produce(topic, codec, acks, records):
    failed = []
    p = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "acks": acks,
                  "enable.idempotence": acks == "all", "message.timeout.ms": 180000})
    for i, (k, v, h) in enumerate(records):
        p.produce(topic, key=k, value=v, headers=h, partition=0, timestamp=1700000000000 + i,
                  on_delivery=lambda err, m: failed.append(err) if err else None)
        p.poll(0)
    assert p.flush(180) == 0, "not everything was delivered"
    assert not failed, failed[:3]


def await_leader(topic):
    """With acks=0 what comes before the leader serves is lost."""
    c, deadline = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"}), time.time() + 180
    while True:
        try:
            c.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
            break
        except KafkaException:
            if time.time() > deadline:
                raise
    c.close()


def consume(topic, count, start=OFFSET_BEGINNING):
    c = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    c.assign([TopicPartition(topic, 0, start)])
    got, deadline = [], time.time() + 180
    while len(got) < count:
        assert time.time() < deadline, f"{topic}: {len(got)} of {count} records"
        for m in c.consume(500, 1.0):
            if m.error():  # it looks for its group although partitions are assigned
                assert m.error().code() == KafkaError.UNSUPPORTED_VERSION, m.error()
                continue
            got.append(m)
    c.close()
    return got


for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
    for acks in ["0", "1", "all"]:
        topic = f"confluent-{codec}-{acks}"
        for f in admin.create_topics([NewTopic(topic, 1)]).values():
            f.result(180)
        await_leader(topic)
        records = []
        for i in range(1000):
            value = None if i % 11 == 0 else os.urandom(i % 300) + b"z" * (i % 100)
            records.append((None if i % 3 else b"key%d" % i, value, [("n", b"%d" % i)]))
        records.append((b"big", os.urandom(900_000), []))
        produce(topic, codec, acks, records)
        got = consume(topic, len(records))
        for i, (m, (k, v, h)) in enumerate(zip(got, records)):
            assert (m.offset(), m.key(), m.value(), m.headers() or []) == (i, k, v, h), f"{topic} record {i} differs"
            assert m.timestamp()[1] == 1700000000000 + i, m.timestamp()
        middle = consume(topic, 1, 500)
        assert middle[0].offset() == 500

c = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
at = c.offsets_for_times([TopicPartition("confluent-zstd-all", 0, 1700000000500)], timeout=180)
assert at[0].offset == 500, at
assert c.get_watermark_offsets(TopicPartition("confluent-zstd-all", 0), timeout=180) == (0, 1001)
c.close()
conf = list(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "confluent-zstd-all")]).values())[0].result(30)
assert conf["retention.ms"].value == "604800000", conf["retention.ms"]
for f in admin.delete_topics(["confluent-zstd-all"]).values():
    f.result(30)
print("all good")
