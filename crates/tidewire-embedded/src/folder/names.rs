//! Checks of names and settings.

use tidewire_backend::home::{
    BucketSettings, Capabilities, Capability, ConsumerSettings, FOLDER_LACKS, HomeError, HomeErrorKind, HomeResult,
    StreamSettings,
};
use tidewire_proto::generated::limits;
use tidewire_proto::subject::Subject;

use super::errors::invalid;

/// Capabilities of a folder, with the reasons for missing ones.
pub fn capabilities() -> Capabilities {
    Capabilities::lacking(FOLDER_LACKS)
}

pub fn check_name(what: &str, name: &str) -> HomeResult<()> {
    let fine = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(fine) {
        return Ok(());
    }
    Err(invalid(format!("{what} {name:?}: a name has 1 to 64 letters, digits, '_' and '-'")))
}

pub fn check_subject_name(what: &str, name: &str) -> HomeResult<()> {
    Subject::check(name).map_err(|error| invalid(format!("{what}: {error}")))
}

pub fn check_stream(settings: &StreamSettings) -> HomeResult<()> {
    check_name("stream", &settings.name)?;
    if settings.subjects.is_empty() {
        return Err(invalid(format!("stream {:?}: subjects is empty; give at least one pattern", settings.name)));
    }
    for (field, limit) in [("max_bytes", settings.max_bytes), ("max_messages", settings.max_messages)] {
        if limit == Some(0) {
            return Err(invalid(format!("stream {:?}: {field} is 0; give at least 1, or None", settings.name)));
        }
    }
    if settings.max_age_us == Some(0) {
        return Err(invalid(format!("stream {:?}: max_age is 0; give a span, or None", settings.name)));
    }
    if let Some(compact) = settings.compact
        && (settings.max_messages.is_some() || settings.max_bytes.is_some())
    {
        let field = format!("stream {:?}: compact={:?} with max_messages or max_bytes", settings.name, compact.name());
        capabilities().need(Capability::CompactLimits, &field)?;
    }
    if settings.replicas != 1 {
        capabilities().need(Capability::Replicas, &format!("replicas={}", settings.replicas))?;
    }
    Ok(())
}

pub fn check_consumer(settings: &ConsumerSettings) -> HomeResult<()> {
    check_name("consumer", &settings.name)?;
    let most = limits::CONSUMER_IN_FLIGHT.max;
    if !(1..=most).contains(&u64::from(settings.max_in_flight)) {
        let text = format!("max_in_flight is {}; give 1 to {most}", settings.max_in_flight);
        return Err(invalid(format!("consumer {:?}: {text}", settings.name)));
    }
    if settings.ack_wait_us == 0 {
        return Err(invalid(format!("consumer {:?}: ack_wait is 0; give a span", settings.name)));
    }
    if settings.backoff_us.len() > 64 {
        return Err(invalid(format!("consumer {:?}: backoff has more than 64 delays", settings.name)));
    }
    Ok(())
}

pub fn check_bucket(settings: &BucketSettings) -> HomeResult<()> {
    check_name("bucket", &settings.name)?;
    if !(1..=64).contains(&settings.history) {
        let text = format!("bucket {:?}: history is {}; give 1 to 64", settings.name, settings.history);
        return Err(invalid(text));
    }
    let most = limits::BUCKET_BYTES.max;
    if settings.max_bytes.is_some_and(|max| !(1..=most).contains(&max)) {
        return Err(invalid(format!("bucket {:?}: max_bytes is out of range; give 1 to {most}", settings.name)));
    }
    if settings.replicas != 1 {
        capabilities().need(Capability::Replicas, &format!("replicas={}", settings.replicas))?;
    }
    Ok(())
}

/// Refuses one more than there may be.
pub fn check_count(what: &str, count: usize, limit: &limits::Limit) -> HomeResult<()> {
    if (count as u64) < limit.max {
        return Ok(());
    }
    let text = format!("{what}: there are {count}, as many as there may be ({}); delete some first", limit.name);
    Err(HomeError::new(HomeErrorKind::Limit, text))
}

/// Text that is stored for people, cut off at a maximal length.
pub fn clipped(text: String) -> String {
    let most = limits::FAULT_BYTES.max as usize;
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}...", &text[..end])
}
