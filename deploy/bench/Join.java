import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What join.py does, with Java's consumer; its arguments without the client. */
public class Join {
    static Properties settings = new Properties();

    static KafkaConsumer<byte[], byte[]> member(String topic) {
        KafkaConsumer<byte[], byte[]> c = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        c.subscribe(List.of(topic));
        return c;
    }

    static void untilRecord(KafkaConsumer<byte[], byte[]> c) {
        long end = System.nanoTime() + 60_000_000_000L;
        while (c.poll(Duration.ofMillis(100)).isEmpty()) {
            if (System.nanoTime() > end) {
                System.err.println("no record in time");
                System.exit(1);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("auto.offset.reset", "earliest");
        for (int i = 6; i < args.length; i++) {
            String[] kv = args[i].split("=", 2);
            settings.put(kv[0], kv[1]);
        }
        KafkaConsumer<byte[], byte[]> one = member(args[1]);
        untilRecord(one);
        AtomicBoolean running = new AtomicBoolean(true);
        Thread reader = new Thread(() -> {
            while (running.get()) {
                one.poll(Duration.ofMillis(100));
            }
            one.close();
        });
        reader.start();
        double first = Double.parseDouble(args[4]);
        double more = Double.parseDouble(args[5]);
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            Thread.sleep((long) ((first + i * more) * 1000));
            long begun = System.nanoTime();
            KafkaConsumer<byte[], byte[]> two = member(args[1]);
            untilRecord(two);
            System.out.printf("%.6f%n", (System.nanoTime() - begun) / 1e9);
            two.close();
        }
        running.set(false);
        reader.join();
    }
}
