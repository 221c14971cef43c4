//! Errors of values that are encoded or decoded, with the path to the faulty part.

use std::fmt;

use tidewire_proto::generated::errors::ErrorCode;

/// Prefix of an error text with its own error code: serde passes on texts alone.
const CODED: &str = "\0tidewire:code:";

/// Error of a value that is encoded or decoded, with its position.
#[derive(Debug)]
pub(crate) struct DecodeError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    text: String,
    /// The path to the faulty part, the innermost step first.
    path: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The bytes are no value.
    Malformed,
    /// The value is not one that is allowed here.
    Unfit,
    /// The value is longer than the limit.
    TooLong,
    /// A reference that cannot be resolved, with its own error code.
    Coded(ErrorCode),
}

impl DecodeError {
    #[cold]
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, text: text.into(), path: Vec::new() }))
    }

    /// Bytes that break a rule, and at which byte of the head.
    #[cold]
    pub fn malformed(problem: &str, at: usize) -> Self {
        Self::new(Kind::Malformed, format!("{problem} (at byte {at})"))
    }

    /// A value that is not allowed here.
    #[cold]
    pub fn unfit(text: impl Into<String>) -> Self {
        Self::new(Kind::Unfit, text)
    }

    #[cold]
    pub fn inside_of(mut self, step: impl fmt::Display) -> Self {
        self.0.path.push(step.to_string());
        self
    }

    pub fn has_path(&self) -> bool {
        !self.0.path.is_empty()
    }

    pub fn kind(&self) -> Kind {
        self.0.kind
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.path.iter().rev().enumerate() {
            let dot = if at == 0 || step.starts_with('[') { "" } else { "." };
            write!(f, "{dot}{step}")?;
        }
        let colon = if self.0.path.is_empty() { "" } else { ": " };
        write!(f, "{colon}{}", self.0.text)
    }
}

impl std::error::Error for DecodeError {}

/// An error as a text that carries its code through serde.
pub(crate) fn coded(code: ErrorCode, text: &str) -> String {
    format!("{CODED}{}:{text}", code.number())
}

fn custom(text: impl fmt::Display) -> DecodeError {
    let text = text.to_string();
    let parts = text.strip_prefix(CODED).and_then(|rest| rest.split_once(':'));
    let found = parts.and_then(|(number, text)| Some((ErrorCode::from_number(number.parse().ok()?)?, text)));
    match found {
        Some((code, text)) => DecodeError::new(Kind::Coded(code), text),
        None => DecodeError::unfit(text),
    }
}

impl serde::de::Error for DecodeError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        custom(text)
    }
}

impl serde::ser::Error for DecodeError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        custom(text)
    }
}
