//! Errors of subjects and patterns: the first problem of a text, and its fix.

use alloc::boxed::Box;
use core::fmt;

use super::check::Grammar;
use super::{SUBJECT_BYTES, SUBJECT_TOKENS};

/// A text that is not a subject, or not a pattern.
///
/// Its message names the text, the token and the byte where the first problem begins, and the fix.
///
/// ```
/// use tidewire_proto::subject::Pattern;
///
/// let error = Pattern::new("orders.>.created").unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "pattern \"orders.>.created\": token 2 (byte 7) is '>' but not the last token; end the pattern there, \
///      or use '*' for exactly one token"
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SubjectError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    text: Box<str>,
    grammar: Grammar,
    problem: Problem,
}

/// The problem with a text. Tokens count from 1, offsets are in bytes and count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The text is empty.
    Empty,
    /// The text has more bytes than [`SUBJECT_BYTES`].
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// The text has more tokens than [`SUBJECT_TOKENS`].
    TooManyTokens {
        /// How many it has.
        tokens: usize,
    },
    /// A dot stands at the beginning, at the end or next to another dot.
    EmptyToken {
        /// The number of the token.
        token: usize,
        /// Where it begins.
        offset: usize,
    },
    /// A token holds a blank or a control character.
    Forbidden {
        /// The number of the token.
        token: usize,
        /// Where the character is.
        offset: usize,
        /// The character.
        character: char,
    },
    /// A `*` or `>` in a subject, or one in a pattern that is not a whole token.
    Wildcard {
        /// The number of the token.
        token: usize,
        /// Where the wildcard is.
        offset: usize,
        /// The wildcard.
        wildcard: char,
    },
    /// A `>` in a pattern that more tokens follow.
    RestNotLast {
        /// The number of the token.
        token: usize,
        /// Where it begins.
        offset: usize,
    },
}

impl SubjectError {
    pub(super) fn new(text: &str, grammar: Grammar, problem: Problem) -> Self {
        Self(Box::new(Inner { text: shortened(text).into(), grammar, problem }))
    }

    /// The problem.
    ///
    /// ```
    /// use tidewire_proto::subject::{Problem, Subject};
    ///
    /// let error = Subject::new("a..b").unwrap_err();
    /// assert_eq!(error.problem(), Problem::EmptyToken { token: 2, offset: 2 });
    /// ```
    pub fn problem(&self) -> Problem {
        self.0.problem
    }

    /// The text that was refused; of one that is too long, its beginning.
    pub fn text(&self) -> &str {
        &self.0.text
    }
}

impl fmt::Display for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { text, grammar, problem } = &*self.0;
        let noun = match grammar {
            Grammar::Subject => "subject",
            Grammar::Pattern => "pattern",
        };
        let dots = if matches!(problem, Problem::TooLong { .. }) { "..." } else { "" };
        write!(f, "{noun} {text:?}{dots}: ")?;
        describe(*problem, *grammar, f)
    }
}

impl fmt::Debug for SubjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubjectError({self})")
    }
}

impl core::error::Error for SubjectError {}

fn describe(problem: Problem, grammar: Grammar, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match problem {
        Problem::Empty => write!(f, "is empty; write at least one token, such as \"orders\""),
        Problem::TooLong { bytes } => {
            write!(f, "has {bytes} bytes, more than subject_bytes={SUBJECT_BYTES}; shorten it")
        }
        Problem::TooManyTokens { tokens } => {
            write!(
                f,
                "has {tokens} tokens, more than subject_tokens={SUBJECT_TOKENS}; join some of them with '-' or '_'"
            )
        }
        Problem::EmptyToken { token, offset } => {
            write!(f, "token {token} (byte {offset}) is empty; write at least one character between the dots")
        }
        Problem::Forbidden { token, offset, character } => write!(
            f,
            "token {token} holds {character:?} at byte {offset}; \
             leave out blanks and control characters, or write '-' or '_'"
        ),
        Problem::Wildcard { token, offset, wildcard } => {
            write!(f, "token {token} holds {wildcard:?} at byte {offset}; ")?;
            f.write_str(wildcard_mend(wildcard, grammar))
        }
        Problem::RestNotLast { token, offset } => write!(
            f,
            "token {token} (byte {offset}) is '>' but not the last token; \
             end the pattern there, or use '*' for exactly one token"
        ),
    }
}

fn wildcard_mend(wildcard: char, grammar: Grammar) -> &'static str {
    match (grammar, wildcard) {
        (Grammar::Subject, _) => "wildcards belong in patterns; name the subject in full",
        (Grammar::Pattern, '*') => "let '*' be a whole token, as in \"orders.*\"",
        (Grammar::Pattern, _) => "let '>' be the whole last token, as in \"orders.>\"",
    }
}

/// The beginning of a text that is too long to be repeated whole.
fn shortened(text: &str) -> &str {
    if text.len() <= SUBJECT_BYTES {
        return text;
    }
    let end = (0..=64).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    &text[..end]
}
