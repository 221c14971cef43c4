//! Subjects and patterns: dotted addresses of messages, and the wildcards that select them.
//!
//! A subject is 1 to [`SUBJECT_TOKENS`] tokens divided by dots, at most [`SUBJECT_BYTES`] bytes in
//! all. A token is not empty and holds no blank, control character, `*` or `>`. A pattern may use
//! `*` for one whole token, and may end in `>`, which stands for one or more tokens.
//!
//! ```
//! use tidewire_proto::subject::{Pattern, Subject, SubjectError};
//!
//! let created = Subject::new("orders.eu.created")?;
//! assert!(Pattern::new("orders.*.created")?.matches(&created));
//! assert!(Pattern::new("orders.>")?.matches(&created));
//! assert!(!Pattern::new("orders.*")?.matches(&created));
//!
//! let refused = Subject::new("orders..created").unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     "subject \"orders..created\": token 2 (byte 7) is empty; write at least one character between the dots"
//! );
//! # Ok::<(), SubjectError>(())
//! ```

mod check;
mod error;
pub mod grammar;
#[macro_use]
mod text_traits;

mod pattern;

use alloc::sync::Arc;
use core::str::Split;

pub use error::{Problem, SubjectError};
pub use pattern::Pattern;

use check::{Grammar, check};

use crate::generated::limits;

/// The most bytes that a subject or a pattern may have.
pub const SUBJECT_BYTES: usize = limits::SUBJECT_BYTES.max as usize;

/// The most tokens that a subject or a pattern may have.
pub const SUBJECT_TOKENS: usize = limits::SUBJECT_TOKENS.max as usize;

/// An address that a message is published to. Cheap to clone.
///
/// It compares, orders and hashes like its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(Arc<str>);

impl Subject {
    /// Takes over a text that obeys the rules of subjects.
    ///
    /// # Errors
    ///
    /// [`SubjectError`] if the text is not a subject; it names the wrong token and the fix.
    ///
    /// ```
    /// use tidewire_proto::subject::Subject;
    ///
    /// assert!(Subject::new("orders.created").is_ok());
    /// assert!(Subject::new("orders.*").is_err());
    /// ```
    pub fn new(text: &str) -> Result<Self, SubjectError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Checks that a text is a subject, without allocating.
    ///
    /// # Errors
    ///
    /// [`SubjectError`] exactly if [`Subject::new`] would fail.
    pub fn check(text: &str) -> Result<(), SubjectError> {
        check(text, Grammar::Subject)
    }

    /// The text of the subject.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tokens from left to right.
    ///
    /// ```
    /// use tidewire_proto::subject::Subject;
    ///
    /// let subject = Subject::new("orders.eu.created").unwrap();
    /// assert_eq!(subject.tokens().collect::<Vec<_>>(), ["orders", "eu", "created"]);
    /// ```
    pub fn tokens(&self) -> Split<'_, char> {
        self.0.split('.')
    }
}

text_traits!(Subject);
