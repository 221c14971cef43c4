//! The port of streams: durable ordered logs of messages, and the consumers that read them.

use tidewire_proto::subject::Pattern;

use super::{
    Ack, Answer, Change, ConsumerInfo, ConsumerSettings, DeadLetter, Delivery, Event, Fetch, HomeResult, NewMessage,
    ScheduleInfo, ScheduleSettings, Settle, Start,
};

/// Settings of a stream. Two settings are the same if all fields are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Letters, digits, `_` and `-`, 1 to 64 characters.
    pub name: String,
    /// Subjects of its messages: at least one pattern.
    pub subjects: Vec<Pattern>,
    /// Events older than this are forgotten.
    pub max_age_us: Option<u64>,
    /// The bytes that its events may take on disk. A storage backend may delete up to an eighth
    /// more than necessary.
    pub max_bytes: Option<u64>,
    /// How many events it may have.
    pub max_messages: Option<u64>,
    /// The policy at `max_bytes` and `max_messages`.
    pub full: Full,
    /// For how long an id is remembered. 0: ids are not looked at.
    pub dedupe_us: u64,
    /// How many servers keep it.
    pub replicas: u32,
    /// Only the newest event of each stays; those that it replaces are shown to nobody any more.
    pub compact: Option<Compact>,
}

/// The identity of events in a compacted stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compact {
    /// Their keys. Each must have one.
    Key,
    /// Their subjects.
    Subject,
}

impl Compact {
    /// The name in Python: `key`, `subject`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Subject => "subject",
        }
    }
}

impl StreamSettings {
    /// A stream without limits, with ids remembered for two minutes.
    pub fn new(name: &str, subjects: Vec<Pattern>) -> Self {
        Self {
            name: name.to_owned(),
            subjects,
            max_age_us: None,
            max_bytes: None,
            max_messages: None,
            full: Full::Refuse,
            dedupe_us: 120_000_000,
            replicas: 1,
            compact: None,
        }
    }
}

/// The policy of a stream at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Publishing fails with [`Full`](super::HomeErrorKind::Full).
    Refuse,
    /// The oldest events go.
    DropOld,
}

/// State of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The settings that it was created with.
    pub settings: StreamSettings,
    /// How many events it has.
    pub messages: u64,
    /// Bytes of its events on disk.
    pub bytes: u64,
    /// The oldest event; one more than `last` if there is none.
    pub first: u64,
    /// The newest event that was ever there; 0 if there was none.
    pub last: u64,
    /// When the oldest event was stored.
    pub first_time_us: Option<u64>,
    /// When the newest was.
    pub last_time_us: Option<u64>,
    /// How many messages wait for their time.
    pub delayed: u64,
    /// How many dead letters its consumers have.
    pub dead: u64,
    /// How many consumers it has.
    pub consumers: u32,
}

/// A piece of a stream to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The start. `New` selects events after the call.
    pub start: Start,
    /// The last sequence to be read.
    pub stop: Option<u64>,
    /// Which subjects; empty for all.
    pub filter: Vec<Pattern>,
    /// At most so many events. At least 1.
    pub max_messages: u32,
    /// At most so many bytes of payload, but at least one event.
    pub max_bytes: u32,
    /// How long to wait if there is nothing to be read yet.
    pub wait_us: u64,
}

/// A page of events that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In order of sequence.
    pub events: Vec<Event>,
    /// Where to go on.
    pub next: u64,
    /// The newest event when it was read. With `next` above it everything was read.
    pub last: u64,
}

/// Selection of a purge: every event that all given fields select.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// Events before this sequence.
    pub before: Option<u64>,
    /// Keeps the newest so many events, and purges the others. Not together with `before`.
    pub keep: Option<u64>,
    /// Events of these subjects.
    pub filter: Option<Pattern>,
}

/// Streams and their consumers. All names are checked: a wrong one is
/// [`Invalid`](super::HomeErrorKind::Invalid), one that does not exist
/// [`NotFound`](super::HomeErrorKind::NotFound).
pub trait Streams: Send + Sync {
    /// Creates a stream, or returns the existing one with the same settings.
    ///
    /// # Errors
    ///
    /// [`Differs`](super::HomeErrorKind::Differs) if it has other settings: the message names
    /// all fields that differ, with both values.
    /// [`Unsupported`](super::HomeErrorKind::Unsupported) if a setting needs a missing capability.
    fn create_stream(&self, settings: StreamSettings) -> Answer<StreamInfo>;

    /// The state of a stream.
    fn stream_info(&self, stream: &str) -> Answer<StreamInfo>;

    /// Every stream, in order of name.
    fn list_streams(&self) -> Answer<Vec<StreamInfo>>;

    /// Deletes a stream with its consumers and dead letters.
    fn delete_stream(&self, stream: &str) -> Answer<()>;

    /// Removes events. Gives how many. Sequences are never used again.
    fn purge(&self, stream: &str, purge: Purge) -> Answer<u64>;

    /// Stores messages, in their order. Calls of one thread are stored in the order of the calls,
    /// whether or not their answers were waited for. With `whole` either all are stored or none
    /// ([`Capability::Batch`](super::Capability)).
    ///
    /// # Errors
    ///
    /// The answer as a whole fails if nothing of it was looked at: no such stream, or
    /// [`Busy`](super::HomeErrorKind::Busy). Else each message has its own result:
    /// [`Full`](super::HomeErrorKind::Full), or [`Invalid`](super::HomeErrorKind::Invalid) for a
    /// subject that the stream does not take or a payload that is too long. After a disk or
    /// connection error it is not known whether the message was stored: publish it again with the
    /// same id.
    fn publish(&self, stream: &str, messages: Vec<NewMessage>, whole: bool) -> Answer<Vec<HomeResult<Ack>>>;

    /// Reads events; keeps no state. Never gives what might yet be lost: an event is read once it
    /// is as durable as its ack says.
    fn read(&self, stream: &str, read: Read) -> Answer<Page>;

    /// Creates a schedule, or replaces one of this name with other settings; one with the same
    /// settings continues. The storage backend publishes its message at each beat, with the header
    /// [`SCHEDULE_HEADER`](super::SCHEDULE_HEADER).
    ///
    /// # Errors
    ///
    /// [`Invalid`](super::HomeErrorKind::Invalid) for a message that the stream would not take, and
    /// [`Limit`](super::HomeErrorKind::Limit) for too many schedules.
    /// [`Unsupported`](super::HomeErrorKind::Unsupported) for a stream that might have no capacity
    /// for a beat, and for missing capabilities.
    fn create_schedule(&self, stream: &str, settings: ScheduleSettings) -> Answer<(ScheduleInfo, Change)>;

    /// Every schedule of a stream, in order of name.
    fn list_schedules(&self, stream: &str) -> Answer<Vec<ScheduleInfo>>;

    /// Ends a schedule. False: there was none of this name.
    fn cancel_schedule(&self, stream: &str, schedule: &str) -> Answer<bool>;

    /// Creates a consumer, or returns the existing one with the same settings (`start` is not
    /// compared: the consumer continues at its position). A consumer with `Start::New` gets the
    /// messages that are published after the answer.
    ///
    /// # Errors
    ///
    /// [`Differs`](super::HomeErrorKind::Differs), as of streams.
    fn create_consumer(&self, stream: &str, settings: ConsumerSettings) -> Answer<ConsumerInfo>;

    /// The state of a consumer.
    fn consumer_info(&self, stream: &str, consumer: &str) -> Answer<ConsumerInfo>;

    /// Every consumer of a stream, in order of name.
    fn list_consumers(&self, stream: &str) -> Answer<Vec<ConsumerInfo>>;

    /// Deletes a consumer with its dead letters. Calls of `fetch` that wait fail with `NotFound`.
    fn delete_consumer(&self, stream: &str, consumer: &str) -> Answer<()>;

    /// Takes deliveries, as many as are ready: the answer comes with the first, or empty when
    /// `wait_us` is over. This is the credit: what nobody fetches stays in the stream. Several may
    /// fetch from one consumer; each event goes to one of them.
    fn fetch(&self, stream: &str, consumer: &str, fetch: Fetch) -> Answer<Vec<Delivery>>;

    /// Settles deliveries. Each has a result of its own.
    ///
    /// # Errors
    ///
    /// [`Stale`](super::HomeErrorKind::Stale) for a delivery that was settled before, or whose
    /// event was redelivered since. A late ack counts as long as its event was not redelivered.
    fn settle(&self, stream: &str, consumer: &str, settled: Vec<Settle>) -> Answer<Vec<HomeResult<()>>>;

    /// Delivers nothing more until `until_us` or `resume`; deliveries that are out may be settled.
    fn pause(&self, stream: &str, consumer: &str, until_us: Option<u64>) -> Answer<()>;

    /// Goes on with delivering.
    fn resume(&self, stream: &str, consumer: &str) -> Answer<()>;

    /// Moves a consumer to another place, forward or back. Deliveries that are out are stale from
    /// then on.
    fn seek(&self, stream: &str, consumer: &str, start: Start) -> Answer<()>;

    /// Dead letters of a consumer, in order of sequence, from one on.
    fn dead_letters(&self, stream: &str, consumer: &str, from: u64, max: u32) -> Answer<Vec<DeadLetter>>;

    /// Delivers dead letters anew, counted from 1, in their order behind the ready events. Returns
    /// their number.
    fn requeue(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64>;

    /// Forgets dead letters. Gives how many of them there were.
    fn drop_dead(&self, stream: &str, consumer: &str, sequences: Vec<u64>) -> Answer<u64>;
}
