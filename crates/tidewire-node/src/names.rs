//! Rules for names of services, methods, instances and subjects.

use tidewire_core::link::announcement::is_token;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::grammar::{COMMANDS, INSPECTION, STREAMS};
use tidewire_proto::subject::{Pattern, Subject};

use crate::error::Error;

/// Members of clients in other languages: a method of a service cannot take these names.
const RESERVED: [&str; 2] = ["sync", "with_"];

pub(crate) fn subject(text: &str) -> Result<(), Error> {
    Subject::check(text).map_err(|wrong| Error::new(ErrorCode::InvalidSubject, wrong.to_string()))
}

pub(crate) fn pattern(text: &str) -> Result<Pattern, Error> {
    Pattern::new(text).map_err(|wrong| Error::new(ErrorCode::InvalidSubject, wrong.to_string()))
}

/// One token of a subject.
pub(crate) fn token(field: &str, text: &str) -> Result<(), Error> {
    if !is_token(text) {
        let fix = "give one token without dots, blanks, '*' and '>'";
        return Err(Error::invalid(format!("{field}: {text:?} is not allowed: {fix}")));
    }
    let max = limits::NAME_BYTES.max as usize;
    if text.len() > max {
        return Err(Error::invalid(format!("{field}: {} bytes are not allowed: give at most {max}", text.len())));
    }
    Ok(())
}

/// The name of a service that is served.
pub(crate) fn service(name: &str) -> Result<(), Error> {
    if name.starts_with('$') {
        let fix = "names that begin with $ are for Tidewire's own services: rename it";
        return Err(Error::invalid(format!("service: {name:?} is not allowed: {fix}")));
    }
    token("service", name)
}

/// True for a service of this project: its calls are neither measured nor traced.
pub(crate) fn is_internal(service: &str) -> bool {
    [INSPECTION, STREAMS, COMMANDS].contains(&service)
}

pub(crate) fn method(name: &str) -> Result<(), Error> {
    if name.starts_with('_') || RESERVED.contains(&name) {
        let fix = "names that begin with an underscore are not served, nor those that every client has itself";
        let reserved = RESERVED.join(", ");
        return Err(Error::invalid(format!("method: {name:?} is not allowed: {fix} ({reserved}): give another name")));
    }
    token("method", name)
}

/// A random number in hexadecimal digits, unique in practice.
pub(crate) fn random_hex(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    // The system has no randomness only before it has fully started.
    if getrandom::fill(&mut random).is_err() {
        random.fill(0xaa);
    }
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Any number.
pub(crate) fn dice() -> u64 {
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{method, service, token};

    #[test]
    fn names_that_no_subject_can_have_are_refused() {
        for wrong in ["", "a.b", "a b", "*", ">", "tab\t", &"x".repeat(256)] {
            let error = token("name", wrong).expect_err(wrong).to_string();
            assert!(error.starts_with("name: ") && error.contains("give"), "{error}");
        }
        assert!(method("_private").is_err() && method("sync").is_err());
        assert!(service("$sys").is_err() && service("sys").is_ok());
        assert!(method("quote").is_ok() && token("name", "größe").is_ok());
    }
}
