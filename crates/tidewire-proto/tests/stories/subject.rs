//! Subjects and patterns against the rules of the semantics page and against a naive matcher.

use std::collections::HashSet;

use proptest::prelude::*;
use tidewire_proto::subject::{Pattern, Problem, SUBJECT_BYTES, SUBJECT_TOKENS, Subject};

#[test]
fn well_formed_subjects_are_taken() {
    for text in ["a", "orders.created", "$SRV.PING", "überweisung.größe", "a-b_c.1/2", &"x".repeat(SUBJECT_BYTES)] {
        assert_eq!(Subject::new(text).unwrap().as_str(), text);
        assert_eq!(Pattern::new(text).unwrap().as_str(), text);
    }
}

// Promises: P6.1.
#[test]
fn the_limits_hold_on_both_sides() {
    let most = vec!["t"; SUBJECT_TOKENS].join(".");
    assert!(Subject::new(&most).is_ok());
    let one_more = format!("{most}.t");
    assert_eq!(Subject::new(&one_more).unwrap_err().problem(), Problem::TooManyTokens { tokens: SUBJECT_TOKENS + 1 });
    let long = "ü".repeat(SUBJECT_BYTES);
    let error = Subject::new(&long).unwrap_err();
    assert_eq!(error.problem(), Problem::TooLong { bytes: 2 * SUBJECT_BYTES });
    assert!(error.to_string().len() < SUBJECT_BYTES, "a refused text is not repeated whole: {error}");
}

// Promises: P6.2.
#[test]
fn an_error_names_the_cause_and_the_fix() {
    let messages = [
        ("", "subject \"\": is empty; write at least one token, such as \"orders\""),
        (".a", "subject \".a\": token 1 (byte 0) is empty; write at least one character between the dots"),
        ("a.", "subject \"a.\": token 2 (byte 2) is empty; write at least one character between the dots"),
        (
            "a.b c",
            "subject \"a.b c\": token 2 holds ' ' at byte 3; \
             leave out blanks and control characters, or write '-' or '_'",
        ),
        (
            "a.b\n",
            "subject \"a.b\\n\": token 2 holds '\\n' at byte 3; \
             leave out blanks and control characters, or write '-' or '_'",
        ),
        ("a.*", "subject \"a.*\": token 2 holds '*' at byte 2; wildcards belong in patterns; name the subject in full"),
    ];
    for (text, message) in messages {
        assert_eq!(Subject::new(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn errors_of_a_pattern_name_the_fix() {
    let messages = [
        ("a*.b", "pattern \"a*.b\": token 1 holds '*' at byte 1; let '*' be a whole token, as in \"orders.*\""),
        ("a.b>", "pattern \"a.b>\": token 2 holds '>' at byte 3; let '>' be the whole last token, as in \"orders.>\""),
        (
            ">.a",
            "pattern \">.a\": token 1 (byte 0) is '>' but not the last token; \
             end the pattern there, or use '*' for exactly one token",
        ),
    ];
    for (text, message) in messages {
        assert_eq!(Pattern::new(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_subject_can_be_looked_up_by_its_text() {
    let known = HashSet::from([Subject::new("orders.created").unwrap()]);
    assert!(known.contains("orders.created"));
    assert!(Pattern::from(Subject::new("orders.created").unwrap()).is_literal());
}

/// The rules once more, written as the text of the rules and not as the code computes them.
fn is_well_formed(text: &str, pattern: bool) -> bool {
    let tokens: Vec<&str> = text.split('.').collect();
    let plain = |token: &str| {
        !token.is_empty() && !token.contains(|c: char| c.is_whitespace() || c.is_control() || c == '*' || c == '>')
    };
    text.len() <= 255
        && tokens.len() <= 32
        && tokens.iter().enumerate().all(|(index, token)| {
            plain(token) || pattern && (*token == "*" || *token == ">" && index + 1 == tokens.len())
        })
}

fn selects(pattern: &[&str], subject: &[&str]) -> bool {
    match (pattern.split_first(), subject.split_first()) {
        (None, None) => true,
        (Some((&">", _)), Some(_)) => true,
        (Some((ours, pattern)), Some((theirs, subject))) => {
            (*ours == "*" || ours == theirs) && selects(pattern, subject)
        }
        _ => false,
    }
}

proptest! {
    // Promises: P6.1, P6.2.
    #[test]
    fn parsing_follows_the_rules(text in "[ab.*> \\tü]{0,12}|\\PC{0,300}|(a\\.){28,40}b") {
        prop_assert_eq!(Subject::new(&text).is_ok(), is_well_formed(&text, false));
        prop_assert_eq!(Pattern::new(&text).is_ok(), is_well_formed(&text, true));
    }

    #[test]
    fn a_refusal_can_be_told(text in "\\PC{0,300}|[ab.*> \\x00-\\x1f]{0,20}") {
        if let Err(error) = Pattern::new(&text) {
            prop_assert!(error.to_string().contains("; "), "no fix in {}", error);
        }
    }

    // Promises: P6.3.
    #[test]
    fn matching_agrees_with_the_naive_matcher(
        pattern in "([aA*]\\.){0,4}[aA*>]",
        subject in "([aA]\\.){0,5}[aA]",
    ) {
        let ours: Vec<&str> = pattern.split('.').collect();
        let theirs: Vec<&str> = subject.split('.').collect();
        let parsed = Pattern::new(&pattern).unwrap();
        prop_assert_eq!(parsed.matches(&Subject::new(&subject).unwrap()), selects(&ours, &theirs));
        prop_assert_eq!(parsed.matches_str(&subject), selects(&ours, &theirs));
    }
}

#[test]
fn patterns_overlap_when_a_subject_fits_both() {
    let overlap = |left: &str, right: &str| Pattern::new(left).unwrap().overlaps(&Pattern::new(right).unwrap());
    assert!(overlap("a.*.c", "a.b.*") && overlap("a.>", "a.b") && overlap("*.b", "a.*"));
    assert!(!overlap("a.b", "a.c") && !overlap("a", "a.>") && !overlap("a.*", "a.*.c"));
}
