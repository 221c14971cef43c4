package bench;

import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import org.apache.pekko.actor.typed.ActorRef;
import org.apache.pekko.actor.typed.Behavior;
import org.apache.pekko.actor.typed.javadsl.AbstractBehavior;
import org.apache.pekko.actor.typed.javadsl.ActorContext;
import org.apache.pekko.actor.typed.javadsl.Behaviors;
import org.apache.pekko.actor.typed.javadsl.Receive;

/** The actors of the workloads; what they do with a message is what every other contender does. */
final class Actors {
    private Actors() {}

    /** A message of one machine word. */
    record Word(long value) {}

    /** The word that starts an exchange. */
    static final Word START = new Word(-1);

    record Request(long value, ActorRef<Word> replyTo) {}

    record Peers(List<ActorRef<Object>> all) {}

    /** Something for the guardian to do, as only it may spawn top-level actors. */
    interface Work extends Consumer<ActorContext<Work>> {}

    static Behavior<Work> guardian() {
        return Behaviors.receive((context, work) -> {
            work.accept(context);
            return Behaviors.same();
        });
    }

    static Behavior<Word> counter(long goal, CountDownLatch done) {
        return Behaviors.setup(context -> new Counter(context, goal, done));
    }

    static Behavior<Request> echo() {
        return Behaviors.receiveMessage(request -> {
            request.replyTo().tell(new Word(request.value()));
            return Behaviors.same();
        });
    }

    static Behavior<Word> latency(long[] samples, CountDownLatch done) {
        return Behaviors.setup(context -> new Latency(context, samples, done, null));
    }

    /** Sends the time to pong after each answer. */
    static Behavior<Word> ping(ActorRef<Object> pong, long[] samples, CountDownLatch done) {
        return Behaviors.setup(context -> new Latency(context, samples, done, pong));
    }

    /** Sends back what it receives, to the actor that it was told of first. */
    static Behavior<Object> pong() {
        return Behaviors.receiveMessage(first -> {
            @SuppressWarnings("unchecked")
            ActorRef<Word> ping = (ActorRef<Word>) first;
            return Behaviors.receiveMessage(word -> {
                ping.tell((Word) word);
                return Behaviors.same();
            });
        });
    }

    static Behavior<Object> peer(int own, long count, CountDownLatch done) {
        return Behaviors.setup(context -> new Peer(context, own, count, done));
    }

    private static final class Counter extends AbstractBehavior<Word> {
        private final CountDownLatch done;
        private long left;
        private long sum;

        Counter(ActorContext<Word> context, long goal, CountDownLatch done) {
            super(context);
            this.left = goal;
            this.done = done;
        }

        @Override
        public Receive<Word> createReceive() {
            return newReceiveBuilder().onAnyMessage(this::take).build();
        }

        private Behavior<Word> take(Word word) {
            sum += word.value();
            if (--left == 0) {
                done.countDown();
            }
            return this;
        }
    }

    private static final class Latency extends AbstractBehavior<Word> {
        private final long[] samples;
        private final CountDownLatch done;
        private final ActorRef<Object> pong;
        private int seen;

        Latency(ActorContext<Word> context, long[] samples, CountDownLatch done, ActorRef<Object> pong) {
            super(context);
            this.samples = samples;
            this.done = done;
            this.pong = pong;
        }

        @Override
        public Receive<Word> createReceive() {
            return newReceiveBuilder().onAnyMessage(this::take).build();
        }

        private Behavior<Word> take(Word word) {
            samples[seen++] = System.nanoTime() - word.value();
            if (seen == samples.length) {
                done.countDown();
            } else if (pong != null) {
                pong.tell(new Word(System.nanoTime()));
            }
            return this;
        }
    }

    private static final class Peer extends AbstractBehavior<Object> {
        private final int own;
        private final long count;
        private final CountDownLatch done;
        private List<ActorRef<Object>> peers;
        private long left;

        Peer(ActorContext<Object> context, int own, long count, CountDownLatch done) {
            super(context);
            this.own = own;
            this.count = count;
            this.left = count;
            this.done = done;
        }

        @Override
        public Receive<Object> createReceive() {
            return newReceiveBuilder().onAnyMessage(this::take).build();
        }

        private Behavior<Object> take(Object message) {
            if (message instanceof Peers known) {
                peers = known.all();
            } else if (message == START) {
                exchange();
            } else if (--left == 0) {
                done.countDown();
            }
            return this;
        }

        private void exchange() {
            int next = own;
            for (long word = 0; word < count; word++) {
                next = next + 1 == peers.size() ? 0 : next + 1;
                if (next == own) {
                    next = next + 1 == peers.size() ? 0 : next + 1;
                }
                peers.get(next).tell(new Word(word));
            }
        }
    }
}
