package bench;

import com.typesafe.config.Config;
import com.typesafe.config.ConfigFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pekko.actor.typed.ActorSystem;

/** Runs one workload for Pekko, warm, and prints a line of JSON for each of its rounds: the twin of the Rust program engine-bench. */
public final class Main {
    private static final int ROUNDS = 3;
    private static final String TUNED = """
        pekko.actor.default-dispatcher {
          throughput = 100
          fork-join-executor { parallelism-min = 2, parallelism-max = 2 }
        }
        """;

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = parse(arguments);
        String contender = options.getOrDefault("--contender", "pekko");
        String workload = options.getOrDefault("--workload", "a1");
        long count = Long.parseLong(options.getOrDefault("--count", "1000000"));
        int inFlight = Integer.parseInt(options.getOrDefault("--in-flight", "1"));
        int idle = Integer.parseInt(options.getOrDefault("--idle", "0"));
        ActorSystem<Actors.Work> system = ActorSystem.create(Actors.guardian(), "bench", config(contender));
        try {
            Workloads workloads = new Workloads(system, count, inFlight, idle);
            String about = String.format(
                "\"contender\": \"%s\", \"allocator\": \"jvm\", \"workload\": \"%s\", "
                    + "\"params\": {\"count\": %d, \"in_flight\": %d, \"idle\": %d}",
                contender, workload, count, inFlight, idle);
            measure(workloads, workload, about);
        } finally {
            system.terminate();
        }
    }

    /** Warm-up rounds first: nothing that the compiler of the JVM still works on is timed. Then a line for each round. */
    private static void measure(Workloads workloads, String workload, String about) throws Exception {
        boolean slow = workload.equals("a3-idle") || workload.equals("a5");
        for (int round = 0; round < (slow ? 1 : 5); round++) {
            workloads.run(workload);
        }
        for (int round = 0; round < (slow ? 1 : ROUNDS); round++) {
            print(about, workloads.run(workload));
        }
    }

    private static Config config(String contender) {
        Config usual = ConfigFactory.load();
        return contender.equals("pekko-tuned") ? ConfigFactory.parseString(TUNED).withFallback(usual) : usual;
    }

    private static Map<String, String> parse(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            options.put(arguments[index], arguments[index + 1]);
        }
        return options;
    }

    private static void print(String about, Map<String, Double> figures) {
        StringBuilder text = new StringBuilder();
        new TreeMap<>(figures).forEach(
            (name, value) -> text.append(text.isEmpty() ? "" : ", ").append('"').append(name).append("\": ").append(value));
        System.out.printf("{%s, \"figures\": {%s}}%n", about, text);
    }
}
