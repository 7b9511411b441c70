import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A client with Kafka's Java library, whose name and version are the arguments, that does what lines of JSON on its input say; see docs/jepsen.md. */
public class Driver implements ConsumerRebalanceListener {
    static final ObjectMapper json = new ObjectMapper();
    final BufferedReader in;
    final PrintStream out;
    final String version;
    String bootstrap;
    KafkaProducer<byte[], byte[]> producer;
    KafkaConsumer<byte[], byte[]> consumer; // null: there is none
    boolean member;

    Driver(BufferedReader in, PrintStream out, String version) {
        this.in = in;
        this.out = out;
        this.version = version;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // whatever a library prints
        Driver d = new Driver(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)), out, String.join(" ", args));
        for (String line; (line = d.in.readLine()) != null; ) {
            d.say(d.answer(json.readTree(line)));
        }
        Runtime.getRuntime().halt(0); // without a goodbye
    }

    void say(ObjectNode line) throws IOException {
        out.write((json.writeValueAsString(line) + "\n").getBytes(StandardCharsets.UTF_8));
        out.flush();
    }

    ObjectNode answer(JsonNode q) throws InterruptedException {
        switch (q.get("do").asText()) {
            case "open":
                return open(q);
            case "send":
                return send(q);
            case "assign":
                return assign(q);
            case "subscribe":
                return subscribe(q);
            case "poll":
                return poll(q);
            case "commit":
                return commit(q);
            case "leave":
                return leave(q);
            default:
                throw new IllegalArgumentException(q.toString());
        }
    }

    Properties common() {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("client.id", "ponor-jepsen");
        p.put("metadata.max.age.ms", "5000");
        p.put("enable.metrics.push", "false");
        p.put("socket.connection.setup.timeout.ms", "3000");
        return p;
    }

    ObjectNode open(JsonNode q) {
        bootstrap = q.get("bootstrap").asText();
        long timeout = q.get("timeout").asLong();
        Properties p = common();
        p.put("acks", "all");
        p.put("enable.idempotence", q.path("idempotent").asText("false"));
        p.put("compression.type", q.get("codec").asText());
        p.put("delivery.timeout.ms", "" + timeout);
        p.put("max.block.ms", "" + timeout);
        p.put("request.timeout.ms", "" + Math.min(5000, timeout / 2));
        p.put("linger.ms", "" + Math.min(1000, timeout / 4)); // a batch is what is there when flush is called
        p.put("batch.size", "1000000");
        producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
        return json.createObjectNode().put("client", version);
    }

    static ObjectNode failure(ObjectNode to, Throwable e) {
        if (e instanceof ExecutionException) {
            e = e.getCause();
        }
        Errors code = Errors.forException(e);
        return to.put("error", code == Errors.UNKNOWN_SERVER_ERROR ? e.getClass().getSimpleName() : code.name()).put("text", "" + e.getMessage());
    }

    ObjectNode send(JsonNode q) throws InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<Exception> refused = new ArrayList<>();
        for (JsonNode r : q.get("records")) {
            Future<RecordMetadata> f = null;
            Exception why = null;
            try {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(r.get("topic").asText(), r.get("partition").asInt(),
                    r.get("timestamp").asLong(), r.get("key").binaryValue(), r.get("value").binaryValue());
                for (JsonNode h : r.get("headers")) {
                    record.headers().add(h.get("key").asText(), h.get("value").binaryValue());
                }
                f = producer.send(record);
            } catch (KafkaException | IllegalStateException e) {
                why = e;
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
            sent.add(f);
            refused.add(why);
        }
        producer.flush();
        ObjectNode a = json.createObjectNode();
        ArrayNode answers = a.putArray("answers");
        for (int i = 0; i < sent.size(); i++) {
            ObjectNode one = answers.addObject();
            if (sent.get(i) == null) {
                failure(one, refused.get(i)).put("unsent", true);
                continue;
            }
            try {
                RecordMetadata m = sent.get(i).get();
                if (m.hasOffset()) {
                    one.put("offset", m.offset());
                } else {
                    one.put("error", "NO_OFFSET").put("text", "acknowledged without an offset");
                }
            } catch (ExecutionException e) {
                failure(one, e);
            }
        }
        return a;
    }

    void make(Properties p) {
        p.put("enable.auto.commit", "false");
        p.put("check.crcs", "true");
        p.put("max.poll.records", "1000");
        p.put("fetch.max.wait.ms", "500");
        p.put("request.timeout.ms", "5000");
        p.put("default.api.timeout.ms", "5000");
        consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    ObjectNode assign(JsonNode q) {
        Properties p = common();
        p.put("auto.offset.reset", "none");
        make(p);
        member = false;
        Map<TopicPartition, Long> from = new LinkedHashMap<>();
        List<TopicPartition> starts = new ArrayList<>();
        for (JsonNode n : q.get("partitions")) {
            TopicPartition tp = new TopicPartition(n.get("topic").asText(), n.get("partition").asInt());
            from.put(tp, n.get("offset").asLong());
            if (n.get("offset").asLong() == -2) {
                starts.add(tp);
            }
        }
        consumer.assign(from.keySet());
        if (!starts.isEmpty()) {
            consumer.seekToBeginning(starts);
        }
        from.forEach((tp, offset) -> {
            if (offset >= 0) {
                consumer.seek(tp, offset);
            }
        });
        return json.createObjectNode();
    }

    ObjectNode subscribe(JsonNode q) {
        Properties p = common();
        p.put("group.id", q.get("group").asText());
        p.put("auto.offset.reset", "earliest");
        p.put("max.poll.interval.ms", "15000");
        if (q.has("instance")) {
            p.put("group.instance.id", q.get("instance").asText());
        }
        String assignor = q.path("assignor").asText("");
        if (assignor.equals("server")) {
            p.put("group.protocol", "consumer");
        } else {
            p.put("group.protocol", "classic");
            p.put("session.timeout.ms", "6000");
            p.put("heartbeat.interval.ms", "1000");
            if (assignor.equals("range")) {
                p.put("partition.assignment.strategy", RangeAssignor.class.getName());
            } else if (!assignor.isEmpty()) {
                p.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
            }
        }
        make(p);
        member = true;
        List<String> topics = new ArrayList<>();
        q.get("topics").forEach(t -> topics.add(t.asText()));
        consumer.subscribe(topics, this);
        return json.createObjectNode();
    }

    ObjectNode identity(ObjectNode to) {
        if (member) {
            to.put("member", consumer.groupMetadata().memberId()).put("generation", Math.max(0, consumer.groupMetadata().generationId()));
        }
        return to;
    }

    /** Tells that partitions come or go, and returns when that is known. */
    void tell(String event, Collection<TopicPartition> partitions) {
        ObjectNode e = identity(json.createObjectNode().put("event", event));
        ArrayNode list = e.putArray("partitions");
        partitions.forEach(tp -> list.addObject().put("topic", tp.topic()).put("partition", tp.partition()));
        try {
            say(e);
            in.readLine();
        } catch (IOException x) {
            throw new UncheckedIOException(x);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        tell("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        tell("lost", partitions);
    }

    ObjectNode poll(JsonNode q) {
        ObjectNode a = json.createObjectNode();
        ArrayNode records = a.putArray("records");
        try {
            for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(q.path("wait").asLong()))) {
                ObjectNode o = records.addObject().put("topic", r.topic()).put("partition", r.partition()).put("offset", r.offset())
                    .put("key", r.key()).put("value", r.value()).put("timestamp", r.timestamp());
                ArrayNode headers = o.putArray("headers");
                for (Header h : r.headers()) {
                    headers.addObject().put("key", h.key()).put("value", h.value());
                }
            }
        } catch (KafkaException e) {
            failure(a.putArray("errors").addObject(), e);
            a.put("fatal", true);
        }
        return identity(a);
    }

    ObjectNode commit(JsonNode q) {
        ObjectNode a = json.createObjectNode();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode n : q.path("partitions")) {
            offsets.put(new TopicPartition(n.get("topic").asText(), n.get("partition").asInt()), new OffsetAndMetadata(n.get("offset").asLong()));
        }
        Duration wait = Duration.ofMillis(q.get("wait").asLong());
        try {
            if (offsets.isEmpty()) {
                consumer.commitSync(wait);
            } else {
                consumer.commitSync(offsets, wait);
            }
            ArrayNode answers = a.putArray("answers");
            offsets.keySet().forEach(tp -> answers.addObject().put("topic", tp.topic()).put("partition", tp.partition()));
        } catch (KafkaException e) {
            failure(a.putObject("failed"), e);
        }
        return a;
    }

    ObjectNode leave(JsonNode q) {
        if (consumer != null) {
            try {
                consumer.close(CloseOptions.timeout(Duration.ofMillis(q.get("wait").asLong())));
            } catch (KafkaException e) {
                System.err.println("leave: " + e);
            }
            consumer = null;
        }
        return json.createObjectNode();
    }
}
