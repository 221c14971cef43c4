//! Patterns: subjects with wildcards.

use alloc::sync::Arc;
use core::str::Split;

use super::check::{Grammar, check};
use super::{Subject, SubjectError};

/// A selection of subjects. Cheap to clone.
///
/// `*` stands for exactly one token, a `>` at the end for one or more. Every subject is a pattern
/// that selects itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Takes over a text that obeys the rules of patterns.
    ///
    /// # Errors
    ///
    /// [`SubjectError`] if the text is not a pattern; it names the wrong token and the fix.
    ///
    /// ```
    /// use tidewire_proto::subject::Pattern;
    ///
    /// assert!(Pattern::new("orders.*.>").is_ok());
    /// assert!(Pattern::new("orders.ord*").is_err());
    /// ```
    pub fn new(text: &str) -> Result<Self, SubjectError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Checks that a text is a pattern, without allocating.
    ///
    /// # Errors
    ///
    /// [`SubjectError`] exactly if [`Pattern::new`] would fail.
    pub fn check(text: &str) -> Result<(), SubjectError> {
        check(text, Grammar::Pattern)
    }

    /// True if the pattern selects a subject.
    ///
    /// ```
    /// use tidewire_proto::subject::{Pattern, Subject};
    ///
    /// let all = Pattern::new("orders.>")?;
    /// assert!(all.matches(&Subject::new("orders.eu.created")?));
    /// assert!(!all.matches(&Subject::new("orders")?));
    /// # Ok::<(), tidewire_proto::subject::SubjectError>(())
    /// ```
    pub fn matches(&self, subject: &Subject) -> bool {
        self.matches_str(subject.as_str())
    }

    /// Like [`Pattern::matches`], for a text that is known to be a subject. The text is not checked
    /// again; for one that is no subject the answer means nothing.
    pub fn matches_str(&self, subject: &str) -> bool {
        let mut theirs = subject.split('.');
        for ours in self.tokens() {
            let Some(token) = theirs.next() else { return false };
            match ours {
                ">" => return true,
                "*" => {}
                _ if ours == token => {}
                _ => return false,
            }
        }
        theirs.next().is_none()
    }

    /// True if some subject fits both patterns.
    ///
    /// ```
    /// use tidewire_proto::subject::Pattern;
    ///
    /// let overlap = |left, right| Ok::<_, tidewire_proto::subject::SubjectError>(Pattern::new(left)?.overlaps(&Pattern::new(right)?));
    /// assert!(overlap("orders.*.paid", "orders.eu.>")? && overlap(">", "a")?);
    /// assert!(!overlap("orders", "orders.>")? && !overlap("orders.*", "orders.*.paid")?);
    /// # Ok::<(), tidewire_proto::subject::SubjectError>(())
    /// ```
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.tokens(), other.tokens());
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
                (Some(left), Some(right)) if left == right || left == "*" || right == "*" => {}
                _ => return false,
            }
        }
    }

    /// True if the pattern has no wildcard, so that it selects one subject only.
    pub fn is_literal(&self) -> bool {
        !self.0.contains(['*', '>'])
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tokens from left to right, wildcards included.
    pub fn tokens(&self) -> Split<'_, char> {
        self.0.split('.')
    }
}

impl From<Subject> for Pattern {
    fn from(subject: Subject) -> Self {
        Self(subject.0)
    }
}

text_traits!(Pattern);
