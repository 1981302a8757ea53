# needs: java javac jar
# Compiled here, run from classes and from a jar: streams, channels, locks, trees.
cd "$D" || exit 1
cat > Main.java <<'END'
import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*; import java.util.*; import java.util.concurrent.*; import java.util.stream.*; import java.util.zip.*;
public class Main {
    record Pair(int a, int b) { int sum() { return a + b; } }
    public static void main(String[] args) throws Exception {
        Path tree = Files.createDirectories(Path.of("tree/a/b"));
        for (int n = 0; n < 100; n++) Files.writeString(tree.resolve("f" + n), "line\n".repeat(n));
        try (Stream<Path> all = Files.walk(Path.of("tree"))) { System.out.println(all.filter(Files::isRegularFile).mapToLong(p -> p.toFile().length()).sum()); }
        Files.createSymbolicLink(Path.of("link"), Path.of("tree/a/b/f3")); Files.createLink(Path.of("hard"), tree.resolve("f4"));
        System.out.println(Files.readAllLines(Path.of("link")).size() + " " + Files.getAttribute(Path.of("hard"), "unix:nlink"));
        Files.move(tree.resolve("f5"), Path.of("moved"), StandardCopyOption.ATOMIC_MOVE); Files.copy(Path.of("moved"), Path.of("copied"));
        System.out.println(Files.mismatch(Path.of("moved"), Path.of("copied")));
        try (RandomAccessFile file = new RandomAccessFile("rw", "rw"); FileChannel channel = file.getChannel()) {
            file.setLength(1 << 20); file.seek(1000); file.writeUTF("text"); channel.force(true);
            try (FileLock lock = channel.lock()) { System.out.println(lock.isValid() + " " + new ProcessBuilder("flock", "-n", "rw", "true").start().waitFor()); }
            file.seek(1000); System.out.println(file.readUTF());
            ByteBuffer[] parts = { ByteBuffer.wrap("ab".getBytes()), ByteBuffer.wrap("cd".getBytes()) };
            channel.position(0); channel.write(parts); ByteBuffer four = ByteBuffer.allocateDirect(4); channel.read(four, 0); four.flip();
            System.out.println((char) four.get(3));
        }
        try (FileChannel from = FileChannel.open(Path.of("rw")); FileChannel to = FileChannel.open(Path.of("sent"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) { System.out.println(from.transferTo(0, 1 << 20, to)); }
        try (ZipOutputStream zip = new ZipOutputStream(new FileOutputStream("z.zip"))) { zip.putNextEntry(new ZipEntry("e")); zip.write(new byte[100000]); }
        try (ZipFile zip = new ZipFile("z.zip")) { System.out.println(zip.getEntry("e").getSize()); }
        ExecutorService pool = Executors.newFixedThreadPool(8); List<Future<Long>> sizes = new ArrayList<>();
        for (int n = 0; n < 64; n++) { Path p = Path.of("t" + n); sizes.add(pool.submit(() -> Files.size(Files.write(p, new byte[10000])))); }
        long sum = 0; for (Future<Long> f : sizes) sum += f.get(); pool.shutdown(); System.out.println(sum);
        File temp = File.createTempFile("temporary", ".y", new File(".")); System.out.println(temp.delete() + " " + new File("tree").delete());
        System.out.println(new Pair(20, 22).sum() + " " + Path.of("").toAbsolutePath().endsWith("d") + " " + Path.of("x").toRealPath(LinkOption.NOFOLLOW_LINKS));
    }
}
END
touch x; javac -d classes Main.java; echo "javac: $?"; ls classes | wc -l
java -XX:-UsePerfData -cp classes Main || exit 1; jar cfe m.jar Main -C classes .; rm -r tree link hard moved copied
java -XX:-UsePerfData -jar m.jar > out && tail -n 1 out
