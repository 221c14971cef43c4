package bench;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.ActorSystem;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.ActorContext;
import org.apache.pekko.actor.typed.javadsl.AskPattern;

/** The workloads by name; each gives named figures. */
final class Workloads {
    private static final int ACTORS = 50;

    private final ActorSystem<Actors.Work> system;
    private final long count;
    private final int inFlight;
    private final int idle;

    Workloads(ActorSystem<Actors.Work> system, long count, int inFlight, int idle) {
        this.system = system;
        this.count = count;
        this.inFlight = inFlight;
        this.idle = idle;
    }

    Map<String, Double> run(String workload) throws Exception {
        return switch (workload) {
            case "a1" -> storm();
            case "a2" -> exchange();
            case "a3-hot" -> pingPong();
            case "a3-idle" -> wakeUps();
            case "a4" -> ask();
            case "a5" -> spawn();
            default -> throw new IllegalArgumentException("--workload " + workload + ": not one that Pekko runs here");
        };
    }

    private Map<String, Double> storm() throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        List<ActorRef<Actors.Word>> others = idleActors(idle);
        ActorRef<Actors.Word> actor = start(Actors.counter(count, done));
        long start = System.nanoTime();
        for (long word = 0; word < count; word++) {
            actor.tell(new Actors.Word(word));
        }
        done.await();
        Map<String, Double> figures = rate(count, start);
        others.add(actor);
        stop(others);
        return figures;
    }

    private Map<String, Double> exchange() throws Exception {
        CountDownLatch done = new CountDownLatch(ACTORS);
        List<ActorRef<Object>> actors = new ArrayList<>();
        for (int own = 0; own < ACTORS; own++) {
            actors.add(start(Actors.peer(own, count, done)));
        }
        actors.forEach(actor -> actor.tell(new Actors.Peers(actors)));
        Thread.sleep(20);
        long start = System.nanoTime();
        actors.forEach(actor -> actor.tell(Actors.START));
        done.await();
        Map<String, Double> figures = rate(count * ACTORS, start);
        stop(actors);
        return figures;
    }

    private Map<String, Double> pingPong() throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        long[] samples = new long[(int) count];
        ActorRef<Object> pong = start(Actors.pong());
        ActorRef<Actors.Word> ping = start(Actors.ping(pong, samples, done));
        pong.tell(ping);
        pong.tell(new Actors.Word(System.nanoTime()));
        done.await();
        stop(List.of(ping, pong));
        return percentiles(samples);
    }

    private Map<String, Double> wakeUps() throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        long[] samples = new long[(int) count];
        ActorRef<Actors.Word> actor = start(Actors.latency(samples, done));
        for (long message = 0; message < count; message++) {
            Thread.sleep(1);
            actor.tell(new Actors.Word(System.nanoTime()));
        }
        done.await();
        stop(List.of(actor));
        return percentiles(samples);
    }

    /** Asked from outside of the actor system, as a program asks; each chain sends its next request when it has its answer. */
    private Map<String, Double> ask() throws Exception {
        ActorRef<Actors.Request> echo = start(Actors.echo());
        long share = count / inFlight;
        long start = System.nanoTime();
        if (inFlight == 1) {
            for (long word = 0; word < share; word++) {
                request(echo, word).get();
            }
        } else {
            CountDownLatch done = new CountDownLatch(inFlight);
            for (int chain = 0; chain < inFlight; chain++) {
                next(echo, share, done);
            }
            done.await();
        }
        Map<String, Double> figures = rate(share * inFlight, start);
        stop(List.of(echo));
        return figures;
    }

    /** Answers that are there already are taken in a loop: a callback for each would nest as deep as there are requests. */
    private void next(ActorRef<Actors.Request> echo, long left, CountDownLatch done) {
        for (long ahead = left; ahead > 0; ahead--) {
            CompletableFuture<Actors.Word> answer = request(echo, ahead);
            if (!answer.isDone()) {
                long rest = ahead - 1;
                // Named executor: otherwise this stage would start a thread for each answer on a machine of two cores.
                answer.thenAcceptAsync(word -> next(echo, rest, done), Runnable::run);
                return;
            }
        }
        done.countDown();
    }

    private CompletableFuture<Actors.Word> request(ActorRef<Actors.Request> echo, long word) {
        return AskPattern.<Actors.Request, Actors.Word>ask(
            echo, replyTo -> new Actors.Request(word, replyTo), Duration.ofSeconds(30), system.scheduler()).toCompletableFuture();
    }

    private Map<String, Double> spawn() throws Exception {
        long before = usedBytes();
        long start = System.nanoTime();
        List<ActorRef<Actors.Word>> actors = idleActors((int) count);
        Map<String, Double> figures = new java.util.HashMap<>(rate(count, start));
        figures.put("bytes_each", (usedBytes() - before) / (double) count);
        stop(actors);
        return figures;
    }

    /** Spawned by the guardian in one go; waits until it has done so. */
    private List<ActorRef<Actors.Word>> idleActors(int howMany) throws Exception {
        CountDownLatch spawned = new CountDownLatch(1);
        List<ActorRef<Actors.Word>> actors = new ArrayList<>(howMany + 1);
        system.tell(context -> {
            for (int index = 0; index < howMany; index++) {
                actors.add(context.spawnAnonymous(Actors.counter(1, spawned)));
            }
            spawned.countDown();
        });
        spawned.await();
        return actors;
    }

    private <M> ActorRef<M> start(Behavior<M> behavior) throws Exception {
        CompletableFuture<ActorRef<M>> started = new CompletableFuture<>();
        system.tell(context -> started.complete(context.spawnAnonymous(behavior)));
        return started.get();
    }

    private void stop(List<? extends ActorRef<?>> actors) throws Exception {
        CompletableFuture<Void> asked = new CompletableFuture<>();
        system.tell((ActorContext<Actors.Work> context) -> {
            actors.forEach(context::stop);
            asked.complete(null);
        });
        asked.get();
    }

    private static Map<String, Double> rate(long count, long start) {
        double seconds = (System.nanoTime() - start) / 1e9;
        return Map.of("seconds", seconds, "rate", count / seconds);
    }

    private static Map<String, Double> percentiles(long[] samples) {
        Arrays.sort(samples);
        return Map.of("samples", (double) samples.length, "p50_us", at(samples, 0.5), "p99_us", at(samples, 0.99),
            "p999_us", at(samples, 0.999), "max_us", at(samples, 1.0));
    }

    private static double at(long[] sorted, double share) {
        int rank = (int) Math.ceil(share * sorted.length);
        return sorted[Math.max(1, rank) - 1] / 1e3;
    }

    private static long usedBytes() throws InterruptedException {
        for (int round = 0; round < 3; round++) {
            System.gc();
            Thread.sleep(50);
        }
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }
}
