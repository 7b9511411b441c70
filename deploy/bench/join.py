"""Time members that join a running group of one. Arguments: client (librdkafka or
kafka-python), bootstrap servers, topic, group, joins, seconds before the first, seconds by
which each wait is longer than the last, settings NAME=VALUE. The topic gets records all the
time. Prints the seconds from each member's start to its first record."""
import sys
import threading
import time

client, bootstrap, topic, group = sys.argv[1:5]
joins, first, more = int(sys.argv[5]), float(sys.argv[6]), float(sys.argv[7])
settings = dict(s.split("=", 1) for s in sys.argv[8:])


class Librdkafka:
    def __init__(self):
        from confluent_kafka import Consumer
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"} | settings)
        self.consumer.subscribe([topic])

    def poll(self):
        m = self.consumer.poll(0.1)
        return m is not None and m.error() is None

    def close(self):
        self.consumer.close()


class KafkaPython:
    def __init__(self):
        from kafka import KafkaConsumer
        self.consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap.split(","), group_id=group, auto_offset_reset="earliest",
                                      **{k.replace(".", "_"): {"true": True, "false": False}.get(v, v) for k, v in settings.items()})

    def poll(self):
        return bool(self.consumer.poll(timeout_ms=100))

    def close(self):
        self.consumer.close()


Member = Librdkafka if client == "librdkafka" else KafkaPython


def until_record(member, patience=60):
    end = time.monotonic() + patience
    while not member.poll():
        if time.monotonic() > end:
            sys.exit("no record in time")


one = Member()
until_record(one)
running = True


def read():
    while running:
        one.poll()


reader = threading.Thread(target=read)
reader.start()
try:
    for i in range(joins):
        time.sleep(first + i * more)
        begun = time.monotonic()
        two = Member()
        until_record(two)
        print("%.6f" % (time.monotonic() - begun), flush=True)
        two.close()
finally:
    running = False
    reader.join()
one.close()
