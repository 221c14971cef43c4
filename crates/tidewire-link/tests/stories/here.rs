//! A link whose socket is read by the async runtime that waits for its answers.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, Thread};
use std::time::Duration;

use tidewire_link::{CallKey, Failure, Greeting, Link, Message, OutgoingPayload, ReplyWaiter, Subscription};
use tidewire_proto::wire::{CallHead, Flags, PublishHead};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;

use crate::support::{Answer, Answers, Count, Echo, HEARTBEAT_MS, Keep, Listen, Node, Place, SOON, next};

/// Longer than any test takes: nothing is read with a heartbeat.
const NEVER_MS: u64 = 60_000;
/// Before the deadline of a call, with which the thread of the links would look.
const HANGS: Duration = Duration::from_secs(10);
const WORKER: &str = "worker";
const PLACES: [&str; 2] = ["tide://127.0.0.1:0", "tide+unix://"];

/// A hub, a node that answers, and a node whose socket `runtime` reads.
struct Scene {
    runtime: Runtime,
    node: Node,
    server: Node,
    place: Place,
    _kept: [Subscription; 2],
}

fn scene(runtime: Runtime, url: &str, heartbeat_ms: u64) -> Scene {
    let scene = scene_before(runtime, url, heartbeat_ms);
    scene.read_there();
    scene
}

/// The thread of the links still reads.
fn scene_before(runtime: Runtime, url: &str, heartbeat_ms: u64) -> Scene {
    let here = format!("tidewire-here-{}-{:?}.sock", std::process::id(), thread::current().id());
    let path = std::env::temp_dir().join(here);
    let url = if url.ends_with("unix://") { format!("{url}{}", path.display()) } else { url.to_owned() };
    let address = url.parse().expect("it is an address");
    let place = Place::open_with(&address, |options| options.heartbeat_ms = heartbeat_ms);
    let server = Node::join_with(&place.address, Greeting { heartbeat_ms, ..Greeting::new("server") });
    let kept = [server.subscribe("svc.echo", Echo), server.subscribe("svc.count", Count)];
    let node = Node::join_with(&place.address, Greeting { heartbeat_ms, ..Greeting::new("node") });
    Scene { runtime, node, server, place, _kept: kept }
}

impl Scene {
    fn read_there(&self) {
        self.runtime.block_on(async {
            self.node.link.read_here().expect("this is a runtime");
            is_read_here(&self.node.link).await;
        });
    }
}

/// Returns once answers come on a thread of this runtime.
async fn is_read_here(link: &Link) {
    for _ in 0..10_000 {
        let (_, thread) = Asked::of(link, "svc.nobody", b"", 0).next().await;
        if is_of_runtime(&thread) {
            return;
        }
    }
    panic!("the runtime does not read");
}

/// True for a worker of a runtime, and for the test thread, which drives the runtime of one thread.
fn is_of_runtime(thread: &Thread) -> bool {
    thread.name() == Some(WORKER) || thread.id() == thread::current().id()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime")
}

fn threads() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(3)
        .thread_name(WORKER)
        .enable_io()
        .enable_time()
        .build()
        .expect("a runtime")
}

/// Collects the outcome of a call, and the thread that received it.
struct Heard(Sender<(Answer, Thread)>);

impl Heard {
    fn say(&self, answer: Answer) {
        // A task that was dropped does not listen any more.
        let _ = self.0.try_send((answer, thread::current()));
    }
}

impl ReplyWaiter for Heard {
    fn replied(&self, reply: Message) {
        self.say(Answer::Reply(reply.payload().to_vec()));
    }
    fn failed(&self, failure: Failure) {
        self.say(Answer::Failed(failure.number));
    }
    fn item(&self, item: Message) {
        self.say(Answer::Item(item.payload().to_vec()));
    }
    fn over(&self) {
        self.say(Answer::Over);
    }
    fn credited(&self, _: u32) {}
}

/// A call whose answer can be awaited.
struct Asked {
    key: CallKey,
    heard: Receiver<(Answer, Thread)>,
}

impl Asked {
    fn of(link: &Link, subject: &str, payload: &[u8], credit: u32) -> Self {
        let (send, heard) = channel(1_000);
        let head = CallHead { deadline_ms: 30_000, subject, credit, ..CallHead::default() };
        let key = link.call(&head, Flags::NORMAL, OutgoingPayload::from(payload), Arc::new(Heard(send)));
        link.flush();
        Self { key: key.expect("there is room"), heard }
    }

    async fn next(&mut self) -> (Answer, Thread) {
        let heard = tokio::time::timeout(HANGS, self.heard.recv()).await;
        heard.expect("it comes soon").expect("the link says what becomes of a call")
    }
}

/// The thread on which the answer came.
async fn ask(link: &Link, payload: &[u8]) -> Thread {
    let (answer, thread) = Asked::of(link, "svc.echo", payload, 0).next().await;
    assert_eq!(answer, Answer::Reply(payload.to_vec()));
    thread
}

/// As [`ask`], on a thread that blocks.
fn ask_blocking(node: &Node, payload: &[u8]) {
    let (answers, answered) = Answers::new();
    node.call("svc.echo", payload, 0, &answers);
    assert_eq!(answered.recv_timeout(HANGS), Ok(Answer::Reply(payload.to_vec())));
}

#[test]
fn answers_come_on_the_thread_that_awaits_them() {
    for url in PLACES {
        let scene = scene(one_thread(), url, NEVER_MS);
        let heard_on = scene.runtime.block_on(ask(&scene.node.link, b"hi"));
        assert_eq!(heard_on.id(), thread::current().id(), "{url}");
    }
}

#[test]
fn answers_come_on_the_threads_of_a_runtime_that_has_several() {
    for url in PLACES {
        let scene = scene(threads(), url, NEVER_MS);
        scene.runtime.block_on(async {
            for number in 0..200_u32 {
                let heard_on = ask(&scene.node.link, &number.to_le_bytes()).await;
                assert_eq!(heard_on.name(), Some(WORKER), "{url}");
            }
        });
    }
}

/// Each of many tasks calls one after another, with payloads from nothing to several chunks.
async fn ask_all_at_once(link: Link) {
    let mut tasks = JoinSet::<()>::new();
    for task in 0..32_usize {
        let link = link.clone();
        tasks.spawn(async move {
            for number in 0..40_usize {
                let bytes = if number % 10 == 9 { 300_000 } else { task * number };
                ask(&link, &vec![task as u8; bytes]).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("every call is answered");
    }
}

#[test]
fn each_of_many_tasks_gets_its_answers() {
    for runtime in [one_thread, threads] {
        for url in PLACES {
            let scene = scene(runtime(), url, NEVER_MS);
            scene.runtime.block_on(ask_all_at_once(scene.node.link.clone()));
        }
    }
}

#[test]
fn items_come_in_order_beside_other_calls() {
    for runtime in [one_thread, threads] {
        let scene = scene(runtime(), PLACES[0], NEVER_MS);
        let link = &scene.node.link;
        scene.runtime.block_on(async {
            let mut items = Asked::of(link, "svc.count", b"", 500);
            for number in 0..500_u32 {
                assert_eq!(items.next().await.0, Answer::Item(number.to_le_bytes().to_vec()));
                if number % 100 == 0 {
                    ask(link, b"beside").await;
                }
            }
            assert_eq!(items.next().await.0, Answer::Over);
        });
    }
}

#[test]
fn a_call_that_is_cancelled_or_forgotten_holds_up_no_other() {
    let scene = scene(one_thread(), PLACES[0], NEVER_MS);
    let (called, were_called) = sync_channel(10);
    let (cancelled, were_cancelled) = sync_channel(10);
    let kept = Keep { called, cancelled, calls: Arc::default() };
    let _subscription = scene.server.subscribe("svc.keep", kept);
    let link = &scene.node.link;
    scene.runtime.block_on(async {
        let dropped = Asked::of(link, "svc.keep", b"", 0);
        let _forgotten = Asked::of(link, "svc.keep", b"", 0);
        ask(link, b"beside").await;
        next(&were_called);
        next(&were_called);
        link.cancel(dropped.key);
        next(&were_cancelled);
        ask(link, b"after").await;
    });
    assert!(were_cancelled.try_recv().is_err(), "the other one is still waited for");
}

#[test]
fn a_task_that_waits_and_is_dropped_does_not_take_the_reading_with_it() {
    for runtime in [one_thread, threads] {
        let scene = scene(runtime(), PLACES[0], NEVER_MS);
        let link = scene.node.link.clone();
        scene.runtime.block_on(async {
            for _ in 0..50 {
                let link = link.clone();
                let task = tokio::spawn(async move { ask(&link, b"given up").await });
                tokio::task::yield_now().await;
                task.abort();
            }
            ask(&link, b"hi").await;
        });
    }
}

#[test]
fn a_call_that_blocks_a_thread_of_the_runtime_is_answered() {
    for runtime in [one_thread, threads] {
        let scene = scene(runtime(), PLACES[0], NEVER_MS);
        let node = &scene.node;
        scene.runtime.block_on(async {
            let off_loop = node.link.wait_off_loop(true).expect("this thread blocks");
            ask_blocking(node, b"blocking");
            drop(off_loop);
            ask(&node.link, b"awaiting").await;
        });
    }
}

#[test]
fn a_wait_outside_of_a_runtime_that_stands_still_is_answered() {
    let scene = scene(one_thread(), PLACES[0], NEVER_MS);
    let _off_loop = scene.node.link.wait_off_loop(false).expect("this is no task of the runtime");
    ask_blocking(&scene.node, b"hi");
}

#[test]
fn plain_threads_and_tasks_wait_at_once_and_none_is_left_behind() {
    // The reading is offered anew with each heartbeat. A shorter one would find a busy machine
    // silent.
    let scene = scene(threads(), PLACES[0], 1_000);
    let node = &scene.node;
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for number in 0..200_u32 {
                    let _off_loop = node.link.wait_off_loop(true).expect("this thread blocks");
                    let payload = number.to_le_bytes();
                    ask_blocking(node, &payload);
                }
            });
        }
        scene.runtime.block_on(ask_all_at_once(node.link.clone()));
    });
}

#[test]
fn tasks_are_at_home_and_threads_are_elsewhere() {
    let scene = scene(threads(), PLACES[0], NEVER_MS);
    let link = scene.node.link.clone();
    assert!(link.wait_off_loop(false).is_some(), "this is no task of the runtime");
    let other = one_thread();
    assert!(other.block_on(async { link.wait_off_loop(false).is_some() }), "this is another runtime");
    let task = scene.runtime.spawn(async move { link.wait_off_loop(false).is_none() });
    assert!(scene.runtime.block_on(task).expect("it does not panic"), "this is the runtime that reads");
}

#[test]
fn frames_left_by_a_runtime_that_stands_still_are_read_with_the_heartbeat() {
    let scene = scene_before(one_thread(), PLACES[0], HEARTBEAT_MS);
    let (send, heard) = sync_channel(100);
    let _kept = scene.node.subscribe("news", Listen(send));
    scene.read_there();
    for number in 0..6_u8 {
        let head = PublishHead { subject: "news", ..PublishHead::default() };
        scene.server.link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(&[number])).expect("there is room");
        scene.server.link.flush();
        assert_eq!(next(&heard), [number]);
    }
    assert!(scene.node.link.joined().is_some(), "the hub takes it for lost");
}

#[test]
fn a_runtime_that_ends_gives_the_reading_back() {
    for runtime in [one_thread, threads] {
        let Scene { runtime, node, place, server, _kept } = scene(runtime(), PLACES[0], NEVER_MS);
        runtime.shutdown_timeout(Duration::from_secs(30));
        ask_blocking(&node, b"hi");
        drop((server, place));
    }
}

#[test]
fn the_next_connection_is_read_there_too() {
    let scene = scene(one_thread(), PLACES[0], NEVER_MS);
    let link = &scene.node.link;
    let (rejoined, mut joined_again) = channel(1);
    link.on_joined_again(move || rejoined.try_send(()).expect("it joins again once"));
    scene.runtime.block_on(async {
        scene.place.hub.close();
        let again = tokio::time::timeout(SOON, joined_again.recv()).await;
        again.expect("it comes soon").expect("the link lasts");
        is_read_here(link).await;
    });
}

#[test]
fn a_node_that_is_behind_takes_nothing_in() {
    let scene = scene_before(one_thread(), PLACES[0], NEVER_MS);
    let (send, heard) = sync_channel(100);
    let _kept = scene.node.subscribe("news", Listen(send));
    scene.read_there();
    let link = &scene.node.link;
    scene.runtime.block_on(async {
        link.flusher().pause();
        let head = PublishHead { subject: "news", ..PublishHead::default() };
        scene.server.link.publish(&head, Flags::NORMAL, OutgoingPayload::Short(b"1")).expect("there is room");
        // The hub has passed it on once it answers who published it, and the runtime goes round
        // until then.
        ask(&scene.server.link, b"round").await;
        assert!(heard.try_recv().is_err(), "it takes a message in although it is behind");
        link.flusher().listen_again();
        ask(link, b"hi").await;
        assert_eq!(heard.try_recv().as_deref(), Ok(&b"1"[..]));
    });
}

#[test]
fn another_runtime_takes_over_from_one_that_stands_still() {
    let scene = scene(one_thread(), PLACES[0], NEVER_MS);
    let link = &scene.node.link;
    one_thread().block_on(async {
        link.read_here().expect("this is a runtime");
        ask(link, b"hi").await;
    });
}

#[test]
fn a_link_is_not_read_outside_of_a_runtime() {
    let scene = scene(one_thread(), PLACES[0], NEVER_MS);
    assert!(scene.node.link.read_here().is_err());
    drop(scene.runtime);
    ask_blocking(&scene.node, b"hi");
}
