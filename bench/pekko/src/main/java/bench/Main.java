package bench;

import com.typesafe.config.Config;
import com.typesafe.config.ConfigFactory;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pekko.actor.typed.ActorSystem;

/** Runs one workload for Pekko, warm, and prints one line of JSON: the twin of the Rust program engine-bench. */
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
            print(contender, workload, count, inFlight, idle, measure(workloads, workload));
        } finally {
            system.terminate();
        }
    }

    /** Warm-up rounds first: nothing that the compiler of the JVM still works on is timed. Then the round in the middle. */
    private static Map<String, Double> measure(Workloads workloads, String workload) throws Exception {
        int warmUp = workload.equals("a3-idle") || workload.equals("a5") ? 1 : 5;
        for (int round = 0; round < warmUp; round++) {
            workloads.run(workload);
        }
        boolean single = workload.equals("a3-idle") || workload.equals("a5");
        Map<String, double[]> all = new TreeMap<>();
        int rounds = single ? 1 : ROUNDS;
        for (int round = 0; round < rounds; round++) {
            int index = round;
            workloads.run(workload).forEach((name, value) -> all.computeIfAbsent(name, key -> new double[rounds])[index] = value);
        }
        Map<String, Double> median = new TreeMap<>();
        all.forEach((name, values) -> {
            Arrays.sort(values);
            median.put(name, values[values.length / 2]);
        });
        return median;
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

    private static void print(String contender, String workload, long count, int inFlight, int idle, Map<String, Double> figures) {
        StringBuilder text = new StringBuilder();
        figures.forEach((name, value) -> text.append(text.isEmpty() ? "" : ", ").append('"').append(name).append("\": ").append(value));
        System.out.printf(
            "{\"contender\": \"%s\", \"allocator\": \"jvm\", \"workload\": \"%s\", \"params\": {\"count\": %d, \"in_flight\": %d, \"idle\": %d}, \"figures\": {%s}}%n",
            contender, workload, count, inFlight, idle, text);
    }
}
