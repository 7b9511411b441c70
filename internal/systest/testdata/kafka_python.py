"""kafka-python (pure Python): codecs it ships, acks, headers, null values, offsets by time."""
import os
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

bootstrap = sys.argv[1].split(",")
admin = KafkaAdminClient(bootstrap_servers=bootstrap)


def await_leader(topic):
    """With acks=0 what comes before the leader serves is lost."""
    c = KafkaConsumer(bootstrap_servers=bootstrap)
    c.end_offsets([TopicPartition(topic, 0)])
    c.close()


def consume(topic, count, offset=0):
    c = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=180000)
    tp = TopicPartition(topic, 0)
    c.assign([tp])
    c.seek(tp, offset)
    got = []
    for m in c:
        got.append(m)
        if len(got) == count:
            break
    c.close()
    assert len(got) == count, f"{topic}: {len(got)} of {count} records"
    return got


for codec in [None, "gzip"]:
    for acks in [0, 1, "all"]:
        topic = f"python-{codec}-{acks}"
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3)])
        await_leader(topic)
        p = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks=acks, enable_idempotence=acks == "all")
        records = []
        for i in range(500):
            value = None if i % 11 == 0 else os.urandom(i % 300)
            records.append((None if i % 3 and value is not None else b"key%d" % i, value, [("n", b"%d" % i)]))
        sent = [p.send(topic, key=k, value=v, headers=h, partition=0, timestamp_ms=1700000000000 + i) for i, (k, v, h) in enumerate(records)]
        p.flush(180)
        for f in sent:
            f.get(180)
        p.close()
        for i, (m, (k, v, h)) in enumerate(zip(consume(topic, len(records)), records)):
            assert (m.offset, m.key, m.value, list(m.headers)) == (i, k, v, h), f"{topic} record {i} differs"

c = KafkaConsumer(bootstrap_servers=bootstrap)
tp = TopicPartition("python-None-all", 0)
assert c.offsets_for_times({tp: 1700000000250})[tp].offset == 250
assert c.beginning_offsets([tp])[tp] == 0 and c.end_offsets([tp])[tp] == 500
c.close()
admin.delete_topics(["python-None-all"])
print("all good")
