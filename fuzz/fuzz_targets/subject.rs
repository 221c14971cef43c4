//! Any text is a subject or is refused with a message that says how to fix it, and so is any
//! pattern.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_proto::subject::{Pattern, SUBJECT_BYTES, SUBJECT_TOKENS, Subject, SubjectError};

fuzz_target!(|text: &str| {
    let subject = Subject::new(text);
    let pattern = Pattern::new(text);
    subject.as_ref().err().into_iter().chain(pattern.as_ref().err()).for_each(check_message);
    if let Ok(pattern) = &pattern {
        check_limits(pattern.as_str(), text);
        assert_eq!(subject.is_ok(), pattern.is_literal());
    }
    if let Ok(subject) = subject {
        check_limits(subject.as_str(), text);
        assert!(pattern.expect("every subject is a pattern").matches(&subject));
    }
});

fn check_limits(taken: &str, text: &str) {
    assert_eq!(taken, text);
    assert!(taken.len() <= SUBJECT_BYTES);
    assert!(taken.split('.').count() <= SUBJECT_TOKENS);
    assert!(taken.split('.').all(|token| !token.is_empty()));
}

fn check_message(error: &SubjectError) {
    let message = error.to_string();
    assert!(message.contains("; "), "no fix in {message}");
    assert!(!message.contains(char::is_control), "a control character gets through in {message:?}");
}
