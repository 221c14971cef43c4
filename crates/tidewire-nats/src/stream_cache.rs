//! Cache of streams: their subjects and their configuration, queried once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tidewire_backend::home::{Durability, HomeError, HomeErrorKind, HomeResult};
use tidewire_proto::subject::Pattern;

use crate::connection::{Connection, Failure};
use crate::names;

/// A stream as its server has it, as far as publishing and reading need it.
#[derive(Debug)]
pub(crate) struct CachedStream {
    /// Subjects that users may publish to.
    pub subjects: Vec<Pattern>,
    /// True if message ids are deduplicated.
    pub dedupe: bool,
    pub durability: Durability,
    pub batches: bool,
    pub delays: bool,
    pub schedules: bool,
    /// The oldest go, or newer ones are refused, when there are too many.
    pub limited: bool,
    pub ttls: bool,
    pub again: bool,
    /// Only the newest of each subject stays.
    pub compact: bool,
}

/// Streams that were looked up.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    known: Mutex<HashMap<String, Arc<CachedStream>>>,
}

impl Streams {
    pub fn get(&self, stream: &str) -> Option<Arc<CachedStream>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(stream).cloned()
    }

    pub fn forget(&self, stream: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(stream);
    }

    /// Stores the server's description of a stream.
    pub fn learn(&self, connection: &Connection, stream: &str, info: &Value) -> Arc<CachedStream> {
        let known = Arc::new(CachedStream::read(connection, stream, &info["config"]));
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(stream.to_owned(), Arc::clone(&known));
        known
    }

    /// The cached state of a stream; queries the server on a miss.
    pub async fn find(&self, connection: &Connection, stream: &str) -> HomeResult<Arc<CachedStream>> {
        match self.get(stream) {
            Some(known) => Ok(known),
            None => self.refresh(connection, stream).await,
        }
    }

    /// Queries the server for a stream, and caches the answer.
    pub async fn refresh(&self, connection: &Connection, stream: &str) -> HomeResult<Arc<CachedStream>> {
        let found = connection.api(&format!("STREAM.INFO.{stream}"), &Value::Null).await;
        match found {
            Ok(info) => Ok(self.learn(connection, stream, &info)),
            Err(failure) => {
                let error = failure.of_stream(connection, stream);
                if error.kind() == HomeErrorKind::NotFound {
                    self.forget(stream);
                }
                Err(error)
            }
        }
    }
}

impl CachedStream {
    pub fn read(connection: &Connection, stream: &str, config: &Value) -> Self {
        let texts = config["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let all: Vec<_> = texts.collect();
        let durability = match config["num_replicas"].as_u64() {
            Some(2..) => Durability::Replicated,
            _ if connection.settings.synced && config["storage"] == "file" => Durability::Disk,
            _ => Durability::Memory,
        };
        Self {
            // A stream of others may take subjects that are none of ours.
            subjects: all
                .iter()
                .filter(|text| !names::is_ours(text))
                .filter_map(|text| Pattern::new(text).ok())
                .collect(),
            dedupe: config["metadata"][names::DEDUPE] != "0",
            durability,
            batches: config["allow_atomic"] == true,
            delays: config["allow_msg_schedules"] == true && all.contains(&names::delayed(stream, ">").as_str()),
            schedules: config["allow_msg_schedules"] == true
                && config["allow_msg_ttl"] == true
                && all.contains(&names::schedule(stream, "*").as_str()),
            limited: ["max_msgs", "max_bytes"].iter().any(|limit| config[*limit].as_i64().is_some_and(|most| most > 0)),
            ttls: config["allow_msg_ttl"] == true,
            again: [names::again(stream, "*"), names::again_each(stream, "*", "*")]
                .iter()
                .any(|again| all.contains(&again.as_str())),
            compact: config["max_msgs_per_subject"] == 1,
        }
    }

    /// The subject of events to be redelivered to one consumer, or to all with `*`.
    pub fn again_of(&self, stream: &str, consumer: &str) -> String {
        if self.compact { names::again_each(stream, consumer, "*") } else { names::again(stream, consumer) }
    }

    /// The error of a message that the stream does not take.
    pub fn takes_not(&self, connection: &Connection, stream: &str, subject: &str) -> HomeError {
        let subjects: Vec<_> = self.subjects.iter().map(|pattern| pattern.as_str()).collect();
        let takes = subjects.join(", ");
        let words = format!("subject: {subject:?} is none of stream {stream:?}: it takes {takes}");
        connection.error(HomeErrorKind::Invalid, &words)
    }

    pub fn takes(&self, subject: &str) -> bool {
        self.subjects.iter().any(|pattern| pattern.matches_str(subject))
    }
}

impl Failure {
    /// The error of a call that names a stream.
    pub fn of_stream(self, connection: &Connection, stream: &str) -> HomeError {
        match self {
            Self::Refused { code: 10_059, .. } => {
                let words = format!("stream: there is no {stream:?}: create it, or check its name");
                connection.error(HomeErrorKind::NotFound, &words)
            }
            other => other.plain(connection, stream),
        }
    }

    /// The error of a refusal that nothing special is known of.
    pub fn plain(self, connection: &Connection, what: &str) -> HomeError {
        match self {
            Self::Away(error) => error,
            Self::Refused { code, words } => connection.error(kind(code), &format!("{what}: {words} ({code})")),
        }
    }
}

/// The error kind of an error number of JetStream.
pub(crate) const fn kind(code: u64) -> HomeErrorKind {
    match code {
        10_014 | 10_037 | 10_059 => HomeErrorKind::NotFound,
        10_008 | 10_009 => HomeErrorKind::Unreachable,
        10_002 | 10_023 | 10_028 | 10_047 | 10_077 | 10_122 => HomeErrorKind::Full,
        // The number of consumers is at its limit, and those of reads end by themselves.
        10_026 | 10_167 => HomeErrorKind::Busy,
        10_071 | 10_164 => HomeErrorKind::Revision,
        10_035 | 10_039 | 10_076 => HomeErrorKind::Unsupported,
        _ => HomeErrorKind::Invalid,
    }
}
