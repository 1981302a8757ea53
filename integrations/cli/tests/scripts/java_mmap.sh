# needs: java javac
# A file mapped for writing, forced, and read by another process.
cd "$D" || exit 1
cat > Maps.java <<'END'
import java.nio.*; import java.nio.channels.*; import java.nio.file.*;
public class Maps {
    public static void main(String[] args) throws Exception {
        try (FileChannel channel = FileChannel.open(Path.of("f"), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer map = channel.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);
            for (int n = 0; n < 1 << 20; n += 4) map.putInt(n, n);
            map.force();
            ByteBuffer four = ByteBuffer.allocate(4); channel.read(four, 4000); four.flip(); System.out.println(four.getInt());
            channel.write(ByteBuffer.wrap("seen".getBytes()), 8000); System.out.println((char) map.get(8001));
        }
    }
}
END
javac Maps.java && java -XX:-UsePerfData Maps && sha256sum < f
