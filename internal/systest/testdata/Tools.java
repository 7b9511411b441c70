import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import org.apache.kafka.common.utils.internals.Exit;

/** Runs many of Kafka's tools in one process: a line of stdin is a class and its arguments, separated by tabs. */
public class Tools {
    static class Ended extends RuntimeException {
    }

    public static void main(String[] unused) throws Exception {
        PrintStream out = System.out;
        Exit.Procedure end = (code, message) -> {
            if (message != null) {
                System.out.println(message);
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t");
            String[] args = java.util.Arrays.copyOfRange(words, 1, words.length);
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream to = new PrintStream(said);
            System.setOut(to);
            System.setErr(to);
            try {
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) args);
            } catch (InvocationTargetException e) {
                if (!(e.getCause() instanceof Ended)) {
                    to.println(e.getCause());
                }
            }
            to.flush();
            out.print(said);
            out.println("----");
            out.flush();
        }
    }
}
