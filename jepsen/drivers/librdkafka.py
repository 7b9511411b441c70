"""A client with librdkafka (confluent-kafka) that does what lines of JSON on its input say; see docs/jepsen.md."""
import base64
import json
import sys
import threading

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, OFFSET_BEGINNING, Producer, TopicPartition

telling = threading.Lock()
common = {}
producer = None
consumer = None  # None: there is none
named = ("", -1)  # the member's id, and the generation that it came with


def say(**line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def failure(e, **more):
    if isinstance(e, KafkaException):
        e = e.args[0]
    if isinstance(e, KafkaError):
        return {"error": e.name(), "text": e.str(), **more}
    return {"error": type(e).__name__, "text": str(e), **more}


def encoded(b):
    return None if b is None else base64.b64encode(b).decode()


def identity(c, joined=False):
    """The member's id and generation; the library shows the latter only in what transactions are given.

    One that had to become another member has the former one's generation until it has joined: that is told as 0, not known.
    """
    global named
    data, magic = c.consumer_group_metadata() or b"", b"CGMDv2:"
    if not data.startswith(magic):
        return {}
    member, generation = c.memberid() or "", int.from_bytes(data[len(magic):len(magic) + 4], "little", signed=True)
    if member != named[0]:
        named = member, generation
    if joined or generation != named[1]:
        named = member, -1
    return {"member": member, "generation": 0 if generation == named[1] else max(0, generation)}


def tell(event):
    """A callback that returns when its partitions are known to have come or gone."""
    def callback(c, partitions):
        with telling:
            if c is consumer:
                say(event=event, partitions=[{"topic": p.topic, "partition": p.partition} for p in partitions],
                    **identity(c, event == "assigned"))
                sys.stdin.readline()
    return callback


def open_(q):
    global common, producer
    common = {"bootstrap.servers": q["bootstrap"], "client.id": "ponor-jepsen", "topic.metadata.refresh.interval.ms": 5000,
              "reconnect.backoff.max.ms": 1000, "socket.connection.setup.timeout.ms": 3000}
    # A batch is what is there when flush is called.
    producer = Producer({**common, "acks": "all", "enable.idempotence": q.get("idempotent", False), "compression.type": q["codec"],
                         "message.timeout.ms": q["timeout"], "request.timeout.ms": 5000, "linger.ms": min(1000, q["timeout"] // 4)})
    say(client=f"librdkafka {confluent_kafka.libversion()[0]}")


def send(q):
    answers = [{"error": "UNANSWERED", "text": "no report"} for _ in q["records"]]

    def report(i):
        def delivered(err, m):
            answers[i] = failure(err) if err else {"offset": m.offset()}
        return delivered
    for i, r in enumerate(q["records"]):
        try:
            producer.produce(r["topic"], partition=r["partition"], key=base64.b64decode(r["key"]), value=base64.b64decode(r["value"]),
                             headers=[(h["key"], base64.b64decode(h["value"])) for h in r["headers"]], timestamp=r["timestamp"],
                             on_delivery=report(i))
        except (BufferError, KafkaException) as e:
            answers[i] = failure(e, unsent=True)
    producer.flush()
    say(answers=answers)


def make(settings):
    global consumer, named
    named = ("", -1)
    consumer = Consumer({**common, "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 500, **settings})
    return consumer


def assign(q):
    make({"group.id": "ponor-jepsen-unused", "auto.offset.reset": "error"}).assign(
        [TopicPartition(p["topic"], p["partition"], OFFSET_BEGINNING if p["offset"] == -2 else p["offset"]) for p in q["partitions"]])
    say()


def subscribe(q):
    settings = {"group.id": q["group"], "auto.offset.reset": "earliest"}
    if q.get("instance"):
        settings["group.instance.id"] = q["instance"]
    if q.get("assignor") == "server":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
        if q.get("assignor"):
            settings["partition.assignment.strategy"] = q["assignor"]
    settings["max.poll.interval.ms"] = 15000
    make(settings).subscribe(q["topics"], on_assign=tell("assigned"), on_revoke=tell("revoked"), on_lost=tell("lost"))
    say()


def poll(q):
    records, errors, fatal = [], [], False
    first = consumer.poll(q.get("wait", 0) / 1000)
    got = [] if first is None else [first] + consumer.consume(q["most"] - 1, 0)
    for m in got:
        e = m.error()
        if e:
            errors.append(failure(e))
            fatal = fatal or e.fatal() or e.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._BAD_MSG)
            continue
        records.append({"topic": m.topic(), "partition": m.partition(), "offset": m.offset(), "key": encoded(m.key()), "value": encoded(m.value()),
                        "headers": [{"key": k, "value": encoded(v)} for k, v in m.headers() or []], "timestamp": m.timestamp()[1]})
    say(records=records, errors=errors, fatal=fatal, **identity(consumer))


def commit(q):
    offsets = [TopicPartition(p["topic"], p["partition"], p["offset"]) for p in q.get("partitions", [])]
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False) if offsets else consumer.commit(asynchronous=False)
        say(answers=[{"topic": p.topic, "partition": p.partition, **(failure(p.error) if p.error else {})} for p in done])
    except KafkaException as e:
        say(failed=failure(e))


def leave(q):
    global consumer
    if consumer:
        # It may take as long as its coordinator does not answer.
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(q["wait"] / 1000)
        with telling:
            consumer = None
    say()


requests = {"open": open_, "send": send, "assign": assign, "subscribe": subscribe, "poll": poll, "commit": commit, "leave": leave}
for line in sys.stdin:
    q = json.loads(line)
    requests[q["do"]](q)
