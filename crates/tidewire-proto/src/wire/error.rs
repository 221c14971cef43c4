//! Errors of the wire protocol: the broken rule, the value and the fix.

use alloc::string::String;
use core::fmt;

use super::Kind;
use crate::generated::errors::ErrorCode;

/// A rule of the wire that bytes break.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// A frame is longer than this side accepts.
    FrameTooLong {
        /// The value of its length field.
        bytes: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// A frame is too short for its fixed part or its head.
    FrameTooShort {
        /// The value of its length field.
        bytes: u64,
    },
    /// A kind that is not in the table.
    UnknownKind(u8),
    /// Flags that must be 0.
    UnknownFlags(u8),
    /// The form of a kind is not all there.
    Short {
        /// The kind of the frame.
        kind: &'static str,
        /// The part within which the bytes end.
        field: &'static str,
    },
    /// Bytes are left over behind the form of a kind.
    Long {
        /// The kind of the frame.
        kind: &'static str,
        /// How many.
        bytes: u64,
    },
    /// Text that is not UTF-8.
    NotUtf8 {
        /// The kind of the frame.
        kind: &'static str,
        /// The part that is meant to be text.
        field: &'static str,
    },
    /// A value that a part of a frame can't have.
    NotAllowed {
        /// The kind of the frame.
        kind: &'static str,
        /// The part.
        field: &'static str,
        /// The value of the field.
        value: u64,
        /// The fix, for the sender.
        fix: &'static str,
    },
    /// The head or the payload is not of the form that the kind asks for.
    Malformed {
        /// The kind of the frame.
        kind: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// A subject or pattern that breaks the rules.
    Subject(String),
    /// The first frame does not begin as it must.
    NotTidewire,
    /// A frame at a time or from a side where it can't be.
    Unexpected {
        /// The kind of the frame.
        kind: &'static str,
        /// Why it can't be.
        problem: &'static str,
    },
    /// A limit that the frame exceeds.
    Limit {
        /// The name of the limit.
        name: &'static str,
        /// Its value.
        max: u64,
    },
}

impl WireError {
    /// The error code for the other side.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::FrameTooLong { .. } | Self::Limit { .. } => ErrorCode::LimitExceeded,
            _ => ErrorCode::WireError,
        }
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameTooLong { bytes, max } => {
                write!(f, "length={bytes} is not allowed, link_frame_bytes={max} is the most: ")?;
                f.write_str("send a long payload in chunks, and check that both sides speak the protocol of Tidewire")
            }
            Self::FrameTooShort { bytes } => {
                write!(f, "length={bytes} is too short: count the 12 fixed bytes behind it, the head and the payload")
            }
            Self::UnknownKind(kind) => {
                write!(f, "kind={kind} is not in the table of frames: send one from 1 to {}", Kind::ALL.len())
            }
            Self::UnknownFlags(flags) => write!(f, "flags={flags:#010b} is not allowed: clear bit 7"),
            Self::Short { kind, field } => write!(f, "{kind}: ends within {field}: send all parts of its form"),
            Self::Long { kind, bytes } => write!(f, "{kind}: {bytes} bytes follow the end of its form: leave them out"),
            Self::NotUtf8 { kind, field } => write!(f, "{kind}: {field} is not UTF-8: send text in UTF-8"),
            Self::NotAllowed { kind, field, value, fix } => {
                write!(f, "{kind}: {field}={value} is not allowed: {fix}")
            }
            Self::Malformed { kind, problem } | Self::Unexpected { kind, problem } => write!(f, "{kind}: {problem}"),
            Self::Subject(problem) => f.write_str(problem),
            Self::NotTidewire => f.write_str("the first frame is not a HELLO: join with a client of Tidewire"),
            Self::Limit { name, max } => write!(f, "{name}={max} is exceeded: {}", mend_of(name)),
        }
    }
}

impl core::error::Error for WireError {}

fn mend_of(limit: &str) -> &'static str {
    match limit {
        "link_fields" => "send fewer fields",
        "link_head_bytes" => "send shorter fields, or put them into the payload",
        "link_hello_bytes" => {
            "send no more than HELLO before WELCOME, and check that both sides speak the protocol of Tidewire"
        }
        "stream_credit" => "send an item only when there is credit for it",
        _ => "send less",
    }
}
