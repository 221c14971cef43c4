//! The reply of a server to a published message.

use std::borrow::Cow;

use serde::Deserialize;
use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};

use crate::connection::Connection;
use crate::stream_cache::kind;

/// Reply of a server to a message.
#[derive(Deserialize)]
pub(super) struct AckReply<'a> {
    #[serde(borrow, default)]
    stream: Cow<'a, str>,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    pub duplicate: bool,
    pub error: Option<Refusal>,
}

#[derive(Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub err_code: u64,
    #[serde(default)]
    pub description: String,
}

impl<'a> AckReply<'a> {
    pub fn read(connection: &Connection, payload: &'a [u8]) -> HomeResult<Self> {
        serde_json::from_slice(payload).map_err(|_| {
            let words = "what it answers to a message can't be read: look whether a service takes the same subject";
            connection.error(HomeErrorKind::Foreign, words)
        })
    }

    /// The sequence, if the message went into this stream.
    pub fn of_stream(&self, connection: &Connection, stream: &str, subject: &str) -> HomeResult<u64> {
        if self.stream == stream {
            return Ok(self.seq);
        }
        let words = format!(
            "subject: {subject:?} went into stream {:?}: stream {stream:?} does not take it any more; check both",
            self.stream
        );
        Err(connection.error(HomeErrorKind::NotFound, &words))
    }
}

impl Refusal {
    pub fn error(&self, connection: &Connection, stream: &str) -> HomeError {
        let words = format!("stream {stream:?}: {} ({})", self.description, self.err_code);
        connection.error(kind(self.err_code), &words)
    }
}
