// The JVM's half of handing a state value to Python: Spark's own pickler, on the bytes of files.
// Prints for each file the CPU seconds of a round, in turns; the first rounds warm up.

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import net.razorvine.pickle.Pickler;

public class Pickled {
  public static void main(String[] files) throws Exception {
    var clock = ManagementFactory.getThreadMXBean();
    var seconds = new StringBuilder[files.length];
    for (int round = 0; round < 20; round++) {
      for (int number = 0; number < files.length; number++) {
        byte[] value = Files.readAllBytes(Path.of(files[number]));
        long began = clock.getCurrentThreadCpuTime();
        new Pickler(true, false).dumps(new Object[] {value});
        double spent = (clock.getCurrentThreadCpuTime() - began) / 1e9;
        if (round == 0) seconds[number] = new StringBuilder();
        if (round >= 9) seconds[number].append(spent).append(' ');
      }
    }
    for (var line : seconds) System.out.println(line);
  }
}
