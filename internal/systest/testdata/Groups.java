import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Groups of the Java consumer: patterns, racks, members that do not poll, commits for deleted topics. */
public class Groups {
    static String bootstrap;

    /** A consumer that remembers what it has and what it lost. */
    static class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final Set<String> has = new TreeSet<>();
        int lost;

        Member(String group, String protocol, String... settings) {
            Properties p = new Properties();
            p.put("bootstrap.servers", bootstrap);
            p.put("group.id", group);
            p.put("group.protocol", protocol);
            p.put("enable.auto.commit", "false");
            p.put("auto.offset.reset", "earliest");
            p.put("metadata.max.age.ms", "1000");
            if (protocol.equals("classic")) {
                p.put("heartbeat.interval.ms", "300");
            }
            for (int i = 0; i < settings.length; i += 2) {
                p.put(settings[i], settings[i + 1]);
            }
            consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(p -> has.add(p.toString()));
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(p -> has.remove(p.toString()));
        }

        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            lost += partitions.size();
            onPartitionsRevoked(partitions);
        }

        public void close() {
            consumer.close();
        }
    }

    interface Condition {
        boolean holds();
    }

    /** Polls members until a condition holds. */
    static void await(String what, Condition c, Member... members) {
        long end = System.currentTimeMillis() + 180_000;
        while (!c.holds()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError(what + ": not in three minutes; members have "
                    + List.of(members).stream().map(m -> m.has.toString()).collect(Collectors.joining(" ")));
            }
            for (Member m : members) {
                m.consumer.poll(Duration.ofMillis(50));
            }
        }
        System.out.println("ok: " + what);
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
        System.out.println("ok: " + what);
    }

    static Set<String> set(String... names) {
        return new TreeSet<>(List.of(names));
    }

    static void patterns(Admin admin) throws Exception {
        create(admin, 1, "pattern-a", "pattern-b", "my-pattern-a", "pattern");
        try (Member m = new Member("patterns", "consumer")) {
            m.consumer.subscribe(new SubscriptionPattern("pattern-[a-y]+"), m);
            await("a pattern matches whole names", () -> m.has.equals(set("pattern-a-0", "pattern-b-0")), m);
            create(admin, 1, "pattern-c", "pattern-z");
            await("a topic made later", () -> m.has.equals(set("pattern-a-0", "pattern-b-0", "pattern-c-0")), m);
            m.consumer.subscribe(new SubscriptionPattern("(?i)PATTERN"), m);
            await("another pattern", () -> m.has.equals(set("pattern-0")), m);
            m.consumer.subscribe(new SubscriptionPattern("pattern-[a-y]"), m);
            await("the first again", () -> m.has.equals(set("pattern-a-0", "pattern-b-0", "pattern-c-0")), m);
            // The last, for the consumer is of no use when it sees that a topic is gone, with Kafka's brokers, too: it
            // throws IllegalStateException because Metadata by id has no name of it.
            admin.deleteTopics(List.of("pattern-a")).all().get();
            await("a topic that is deleted", () -> m.has.equals(set("pattern-b-0", "pattern-c-0")), m);
        }
        try (Member m = new Member("patterns", "consumer")) {
            m.consumer.subscribe(new SubscriptionPattern("pattern(?=-a)"), m); // Java has it, RE2 does not
            boolean refused = false;
            for (int i = 0; i < 3000 && !refused; i++) {
                try {
                    m.consumer.poll(Duration.ofMillis(50));
                } catch (InvalidRegularExpression e) {
                    refused = true;
                }
            }
            check(refused, "what is no RE2 expression is refused");
        }
        try (Member m = new Member("patterns-classic", "classic")) {
            m.consumer.subscribe(java.util.regex.Pattern.compile("^pattern-.*"), m);
            await("a pattern of the classic protocol", () -> m.has.equals(set("pattern-b-0", "pattern-c-0", "pattern-z-0")), m);
        }
    }

    /** Each partition has one replica, so that its rack is that broker's zone. */
    static void racks(Admin admin) throws Exception {
        List<NewTopic> topics = List.of(new NewTopic("racked", Map.of(0, List.of(3), 1, List.of(1), 2, List.of(2), 3, List.of(2), 4, List.of(3), 5, List.of(1))));
        admin.createTopics(topics).all().get();
        for (String protocol : List.of("classic", "consumer")) {
            String[] more = protocol.equals("classic")
                ? new String[] {"partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"}
                : new String[] {"group.remote.assignor", "uniform"};
            Member[] members = new Member[3];
            for (int i = 0; i < 3; i++) {
                String[] settings = {"client.rack", "zone-" + (i + 1), more[0], more[1]};
                members[i] = new Member("racks-" + protocol, protocol, settings);
                members[i].consumer.subscribe(List.of("racked"), members[i]);
            }
            await("each member has the partitions in its zone, " + protocol, () -> members[0].has.equals(set("racked-1", "racked-5"))
                && members[1].has.equals(set("racked-2", "racked-3")) && members[2].has.equals(set("racked-0", "racked-4")), members);
            for (Member m : members) {
                m.close();
            }
        }
    }

    /** A member that does not poll loses its partitions, and gets some again when it does. */
    static void stuck(Admin admin, String protocol) throws Exception {
        String topic = "stuck-" + protocol;
        create(admin, 2, topic);
        try (Member stuck = new Member(topic, protocol, "max.poll.interval.ms", "3000"); Member other = new Member(topic, protocol)) {
            stuck.consumer.subscribe(List.of(topic), stuck);
            other.consumer.subscribe(List.of(topic), other);
            await("both have one, " + protocol, () -> stuck.has.size() == 1 && other.has.size() == 1, stuck, other);
            TopicPartition had = stuck.consumer.assignment().iterator().next();
            await("the other has both, " + protocol, () -> other.has.size() == 2, other);
            boolean refused = false;
            try {
                stuck.consumer.commitSync(Map.of(had, new OffsetAndMetadata(0)));
            } catch (CommitFailedException e) {
                refused = true;
            }
            check(refused, "its commit is refused, " + protocol);
            await("it is back, " + protocol, () -> stuck.has.size() == 1 && other.has.size() == 1, stuck, other);
            check(stuck.lost > 0, "it was told that it lost them, " + protocol);
        }
    }

    /** Offsets of a topic that is deleted go, and commits for it fail. */
    static void deleted(Admin admin, String protocol) throws Exception {
        String topic = "deleted-" + protocol;
        create(admin, 1, topic);
        TopicPartition p = new TopicPartition(topic, 0);
        try (Member m = new Member(topic, protocol)) {
            m.consumer.subscribe(List.of(topic), m);
            await("it has the topic, " + protocol, () -> m.has.size() == 1, m);
            m.consumer.commitSync(Map.of(p, new OffsetAndMetadata(5, "note")));
            check(admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(p).metadata().equals("note"), "a note of a commit, " + protocol);
            admin.deleteTopics(List.of(topic)).all().get();
            boolean failed = false;
            try {
                m.consumer.commitSync(Map.of(p, new OffsetAndMetadata(6)), Duration.ofSeconds(3));
            } catch (org.apache.kafka.common.KafkaException e) {
                failed = true;
                System.out.println("a commit for a deleted topic, " + protocol + ": " + e);
            }
            check(failed, "a commit for a deleted topic fails, " + protocol);
        }
        create(admin, 1, topic);
        long end = System.currentTimeMillis() + 180_000;
        while (admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(p) != null) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("offsets of the deleted topic stay, " + protocol);
            }
        }
        System.out.println("ok: offsets of a deleted topic go, " + protocol);
    }

    static void create(Admin admin, int partitions, String... names) throws InterruptedException, ExecutionException {
        List<NewTopic> topics = new ArrayList<>();
        for (String n : names) {
            topics.add(new NewTopic(n, partitions, (short) 1));
        }
        admin.createTopics(topics).all().get();
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            patterns(admin);
            racks(admin);
            for (String protocol : List.of("classic", "consumer")) {
                stuck(admin, protocol);
                deleted(admin, protocol);
            }
        }
        System.out.println("all good");
    }
}
