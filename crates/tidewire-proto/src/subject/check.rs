//! The rules that make a text a subject or a pattern.

use super::error::{Problem, SubjectError};
use super::{SUBJECT_BYTES, SUBJECT_TOKENS};

/// The grammar to check a text against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    Subject,
    Pattern,
}

/// Finds the first rule that a text breaks.
pub(super) fn check(text: &str, grammar: Grammar) -> Result<(), SubjectError> {
    if is_plain(text.as_bytes()) {
        return Ok(());
    }
    match first_problem(text, grammar) {
        None => Ok(()),
        Some(problem) => Err(SubjectError::new(text, grammar, problem)),
    }
}

/// A fast check for subjects of ASCII alone, as nearly all are: every publish by name comes through
/// here.
fn is_plain(text: &[u8]) -> bool {
    if text.len() > SUBJECT_BYTES {
        return false;
    }
    let (mut tokens, mut after_dot) = (1, true);
    for &byte in text {
        let dot = byte == b'.';
        if dot && after_dot || !byte.is_ascii_graphic() || matches!(byte, b'*' | b'>') {
            return false;
        }
        tokens += usize::from(dot);
        after_dot = dot;
    }
    // An empty text ends as it began, like one that ends in a dot.
    !after_dot && tokens <= SUBJECT_TOKENS
}

fn first_problem(text: &str, grammar: Grammar) -> Option<Problem> {
    if text.is_empty() {
        return Some(Problem::Empty);
    }
    // The length comes first: it bounds the work and the size of the message for any other problem.
    if text.len() > SUBJECT_BYTES {
        return Some(Problem::TooLong { bytes: text.len() });
    }
    let mut offset = 0;
    for (index, token) in text.split('.').enumerate() {
        let last = offset + token.len() == text.len();
        if let Some(problem) = token_problem(token, index + 1, offset, last, grammar) {
            return Some(problem);
        }
        offset += token.len() + 1;
    }
    let tokens = text.bytes().filter(|&byte| byte == b'.').count() + 1;
    (tokens > SUBJECT_TOKENS).then_some(Problem::TooManyTokens { tokens })
}

fn token_problem(token: &str, number: usize, offset: usize, last: bool, grammar: Grammar) -> Option<Problem> {
    if token.is_empty() {
        return Some(Problem::EmptyToken { token: number, offset });
    }
    if grammar == Grammar::Pattern {
        match token {
            "*" => return None,
            ">" if last => return None,
            ">" => return Some(Problem::RestNotLast { token: number, offset }),
            _ => {}
        }
    }
    let (at, found) = token.char_indices().find(|&(_, found)| is_forbidden(found))?;
    let offset = offset + at;
    Some(match found {
        '*' | '>' => Problem::Wildcard { token: number, offset, wildcard: found },
        _ => Problem::Forbidden { token: number, offset, character: found },
    })
}

fn is_forbidden(character: char) -> bool {
    matches!(character, '*' | '>') || character.is_whitespace() || character.is_control()
}
