//! Names on the server: streams for dead letters, subjects for delayed and redelivered messages.

use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};

/// Headers of a message that are Tidewire's.
pub(crate) const KEY: &str = "Tidewire-Key";
pub(crate) const ID: &str = "Tidewire-Id";
/// The names of the other headers in their order, with colons between them, if it is not that of
/// the alphabet.
pub(crate) const ORDER: &str = "Tidewire-Order";
pub(crate) const ORIGIN: &str = "Tidewire-Origin";
/// A schedule's expression, as it was written.
pub(crate) const WHEN: &str = "Tidewire-When";
pub(crate) const MSG_ID: &str = "Nats-Msg-Id";
pub(crate) const TTL: &str = "Nats-TTL";

/// Metadata key of the requested deduplication window.
pub(crate) const DEDUPE: &str = "tidewire.dedupe_us";

/// The bucket of leases.
pub(crate) const LEASES: &str = "TIDEWIRE_LEASES";

const NAME_MAX: usize = 64;

/// Checks the name of a stream, consumer or bucket.
pub(crate) fn check(what: &str, name: &str) -> HomeResult<()> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    let fix = format!("write letters, digits, _ and -, 1 to {NAME_MAX} characters");
    Err(HomeError::new(HomeErrorKind::Invalid, format!("{what}: {name:?} is no name: {fix}")))
}

pub(crate) fn check_consumer(stream: &str, consumer: &str) -> HomeResult<()> {
    check("stream", stream).and_then(|()| check("consumer", consumer))
}

/// True for streams of users: neither buckets nor private streams of another stream.
pub(crate) fn is_stream(name: &str) -> bool {
    check("stream", name).is_ok() && !name.starts_with("KV_") && !name.starts_with("OBJ_")
}

/// The stream of a stream's dead letters. Its name is none that a user may give.
pub(crate) fn dead(stream: &str) -> String {
    format!("{stream}@dead")
}

/// Where the dead letters of a consumer are, or those of all with `*`.
pub(crate) fn dead_subject(stream: &str, consumer: &str) -> String {
    format!("$TW.dead.{stream}.{consumer}")
}

/// The subject on which a server reports that it has given up an event.
pub(crate) fn given_up(stream: &str, consumer: &str) -> String {
    format!("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.{consumer}")
}

/// The subject of a delayed message, until the server publishes it.
pub(crate) fn delayed(stream: &str, number: impl std::fmt::Display) -> String {
    format!("$TW.delay.{stream}.{number}")
}

/// Where a schedule is, or all of a stream with `*`.
pub(crate) fn schedule(stream: &str, name: &str) -> String {
    format!("$TW.schedule.{stream}.{name}")
}

/// The subject of events to be redelivered to one consumer.
pub(crate) fn again(stream: &str, consumer: &str) -> String {
    format!("$TW.again.{stream}.{consumer}")
}

/// The same for a stream that stores only the newest message of each subject: each redelivery has a
/// separate subject.
pub(crate) fn again_each(stream: &str, consumer: &str, number: impl std::fmt::Display) -> String {
    format!("$TW.again.{stream}.{consumer}.{number}")
}

/// True for subjects of ours in a user's stream.
pub(crate) fn is_ours(subject: &str) -> bool {
    subject.starts_with("$TW.")
}

/// The stream behind a bucket.
pub(crate) fn bucket(bucket: &str) -> String {
    format!("KV_{bucket}")
}
