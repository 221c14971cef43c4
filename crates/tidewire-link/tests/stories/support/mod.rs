//! A hub, nodes and handlers for tests with real sockets.

pub mod certificates;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tidewire_link::{
    Address, Call, Exchange, Failure, Greeting, Handler, HubHandle, HubOptions, JoinError, Link, Listening, Message,
    OutgoingPayload, Published, ReplyWaiter, Runtime, Subscription,
};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{CallHead, Flags};
use tidewire_sync::Mutex;

/// Far longer than anything here takes.
pub const SOON: Duration = Duration::from_secs(30);

/// A heartbeat that a story waits for. A link ends after two of silence, which a busy machine must
/// not bring about.
pub const HEARTBEAT_MS: u64 = 500;

/// A hub that listens at one place, and the lines that it logs.
pub struct Place {
    pub hub: HubHandle,
    _runtime: Runtime,
    pub lines: Receiver<String>,
    pub address: Address,
    _listening: Listening,
}

impl Place {
    pub fn open(address: &Address) -> Self {
        Self::open_with(address, |_| {})
    }

    pub fn open_with(address: &Address, set: impl FnOnce(&mut HubOptions)) -> Self {
        let runtime = Runtime::start("hub").expect("a thread can be started");
        let (send, lines) = sync_channel(10_000);
        let mut options = HubOptions::new("hub");
        set(&mut options);
        let hub = HubHandle::new(&runtime, options, move |line| drop(send.try_send(line.to_owned())));
        let listening = hub.listen(address).unwrap_or_else(|error| panic!("{error}"));
        let address = listening.address.clone();
        Self { hub, _runtime: runtime, lines, address, _listening: listening }
    }

    /// The address, with what a node trusts.
    pub fn seen_with(&self, tls: &tidewire_link::Tls) -> Address {
        self.address.clone().with_tls(tls.clone()).expect("it has TLS")
    }

    pub fn port(&self) -> u16 {
        match &self.address {
            Address::Tcp { port, .. } | Address::Tls { port, .. } | Address::Ws { port, .. } => *port,
            Address::Unix(_) => panic!("a Unix socket has no port"),
        }
    }

    /// Waits for a line with this text.
    pub fn logs(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(SOON).unwrap_or_else(|_| panic!("no line says {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }
}

/// A node.
pub struct Node {
    pub link: Link,
    _runtime: Runtime,
}

impl Node {
    pub fn join(address: &Address, name: &str) -> Self {
        Self::try_join(address, name).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_join(address: &Address, name: &str) -> Result<Self, JoinError> {
        Self::try_join_with(address, Greeting::new(name))
    }

    pub fn join_with(address: &Address, greeting: Greeting) -> Self {
        Self::try_join_with(address, greeting).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_join_with(address: &Address, greeting: Greeting) -> Result<Self, JoinError> {
        let runtime = Runtime::start(&greeting.name).expect("a thread can be started");
        Ok(Self { link: Link::join(&runtime, address, greeting, |_| {})?, _runtime: runtime })
    }

    /// Subscribes, and waits until the hub has it.
    pub fn subscribe(&self, pattern: &str, handler: impl Handler + 'static) -> Subscription {
        let (answers, answered) = Answers::new();
        let pattern = Pattern::new(pattern).expect("it is a pattern");
        let subscription = self.link.subscribe(&pattern, "", &[], Arc::new(handler), answers).expect("there is room");
        assert_eq!(next(&answered), Answer::Over);
        subscription
    }

    pub fn call(&self, subject: &str, payload: &[u8], credit: u32, answers: &Arc<Answers>) {
        let head = CallHead { deadline_ms: 30_000, subject, credit, ..CallHead::default() };
        let waiting = Arc::clone(answers) as Arc<dyn ReplyWaiter>;
        self.link.call(&head, Flags::NORMAL, OutgoingPayload::from(payload), waiting).expect("there is room");
        self.link.flush();
    }

    /// Calls, and waits for the answer.
    pub fn ask(&self, subject: &str, payload: &[u8]) -> Answer {
        let (answers, answered) = Answers::new();
        self.call(subject, payload, 0, &answers);
        next(&answered)
    }
}

/// Outcome of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Reply(Vec<u8>),
    Item(Vec<u8>),
    Failed(u16),
    Over,
}

pub struct Answers(SyncSender<Answer>);

impl Answers {
    pub fn new() -> (Arc<Self>, Receiver<Answer>) {
        let (send, receive) = sync_channel(100_000);
        (Arc::new(Self(send)), receive)
    }

    fn say(&self, answer: Answer) {
        self.0.try_send(answer).expect("the test listens, and there is room");
    }
}

pub fn next<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(SOON).expect("it comes soon")
}

impl ReplyWaiter for Answers {
    fn replied(&self, reply: Message) {
        self.say(Answer::Reply(reply.payload().to_vec()));
    }

    fn failed(&self, failure: Failure) {
        // A test that has received enough has dropped its receiver: the failure to send is ignored.
        let _ = self.0.try_send(Answer::Failed(failure.number));
    }

    fn item(&self, item: Message) {
        self.say(Answer::Item(item.payload().to_vec()));
    }

    fn over(&self) {
        self.say(Answer::Over);
    }

    fn credited(&self, _: u32) {}
}

/// Hears nothing.
pub struct Deaf;

impl ReplyWaiter for Deaf {
    fn replied(&self, _: Message) {}
    fn failed(&self, _: Failure) {}
    fn item(&self, _: Message) {}
    fn over(&self) {}
    fn credited(&self, _: u32) {}
}

/// Answers with what it was sent.
pub struct Echo;

impl Handler for Echo {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        let flusher = call.flusher();
        let payload = call.message.payload().to_vec();
        call.reply(OutgoingPayload::Long(Box::new(payload))).expect("there is room");
        flusher.flush();
        None
    }

    fn published(&self, _: Published) {}
}

/// Answers with numbers, as many as there is credit for.
pub struct Count;

impl Handler for Count {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        let flusher = call.flusher();
        for number in 0..call.head().credit {
            call.item(OutgoingPayload::Short(&number.to_le_bytes())).expect("there is credit");
        }
        call.over();
        flusher.flush();
        None
    }

    fn published(&self, _: Published) {}
}

/// Tells what was published.
pub struct Listen(pub SyncSender<Vec<u8>>);

impl Handler for Listen {
    fn called(&self, _: Call) -> Option<Arc<dyn Exchange>> {
        None
    }

    fn published(&self, published: Published) {
        self.0.try_send(published.message.payload().to_vec()).expect("the test listens, and there is room");
    }
}

/// Keeps calls, and tells of those that nobody waits for any more.
pub struct Keep {
    pub called: SyncSender<()>,
    pub cancelled: SyncSender<()>,
    pub calls: Arc<Mutex<Vec<Call>>>,
}

/// An exchange that signals its cancellation.
pub struct CancelSignal(pub SyncSender<()>);

impl Handler for Keep {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        self.calls.lock().push(call);
        self.called.try_send(()).expect("the test listens");
        Some(Arc::new(CancelSignal(self.cancelled.clone())))
    }

    fn published(&self, _: Published) {}
}

impl Exchange for CancelSignal {
    fn cancelled(&self) {
        let _ = self.0.try_send(());
    }

    fn input(&self, _: Message) {}

    fn input_over(&self) {}

    fn wanted(&self, _: u32) {}
}
