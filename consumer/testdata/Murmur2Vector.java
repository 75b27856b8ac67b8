// Makes murmur2.txt: where Kafka's own client puts keys. Each line has the key in hex, its partition among 12, and its murmur2 hash.
//
// Run it with the libraries of a Kafka distribution, version 4.1.2 in what is here:
//
//	java -cp "libs/*" Murmur2Vector.java > murmur2.txt
//
// The keys come from a fixed seed, so that another run makes the same file.
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public class Murmur2Vector {
    static final int PARTITIONS = 12;
    static final int KEYS = 1000;

    public static void main(String[] args) {
        List<byte[]> keys = new ArrayList<>();
        keys.add(new byte[0]);
        for (String s : new String[] {
            "a", "ab", "abc", "abcd", "order-4711", "\u00e4\u00f6\u00fc\u00df", "\u65e5\u672c\u8a9e", "\ud83d\ude80", "\u0000", "\u0000\u0000\u0000\u0000", " ",
            "00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479"}) {
            keys.add(s.getBytes(StandardCharsets.UTF_8));
        }
        for (int b = 0; b < 256; b++) { // Java's bytes have a sign, Go's have none
            keys.add(new byte[] {(byte) b});
        }
        Random random = new Random(35);
        for (int length = 0; length < 200; length++) { // all lengths modulo four, with bytes of all kinds
            keys.add(bytes(random, length));
        }
        for (int length : new int[] {255, 256, 257, 1023, 1024, 1025, 4096}) {
            keys.add(bytes(random, length));
        }
        for (int i = 0; i < 150; i++) {
            keys.add(text(random).getBytes(StandardCharsets.UTF_8));
        }
        while (keys.size() < KEYS) {
            keys.add(("customer-" + random.nextInt(1_000_000_000)).getBytes(StandardCharsets.UTF_8));
        }
        StringBuilder out = new StringBuilder();
        for (byte[] key : keys) {
            out.append(HexFormat.of().formatHex(key)).append(' ')
                .append(BuiltInPartitioner.partitionForKey(key, PARTITIONS)).append(' ')
                .append(Utils.murmur2(key)).append('\n');
        }
        System.out.print(out);
    }

    static byte[] bytes(Random random, int length) {
        byte[] b = new byte[length];
        random.nextBytes(b);
        return b;
    }

    static String text(Random random) {
        StringBuilder s = new StringBuilder();
        for (int i = random.nextInt(20); i >= 0; i--) {
            s.appendCodePoint(0xa0 + random.nextInt(0xd000)); // below the surrogates
        }
        return s.toString();
    }
}
