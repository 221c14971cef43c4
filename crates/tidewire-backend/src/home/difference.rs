//! Differences between the settings of an existing object and the requested ones.

use tidewire_proto::subject::Pattern;

use super::{BucketSettings, Compact, ConsumerSettings, StreamSettings};

/// Settings by their names in Python, as people write them.
type Fields<const COUNT: usize> = [(&'static str, String); COUNT];

impl StreamSettings {
    /// All fields in which these settings of a stream are not the requested ones, as an error text.
    /// None: there is no difference.
    pub fn difference(&self, requested: &Self) -> Option<String> {
        let fields = |settings: &Self| {
            [
                ("subjects", patterns(&settings.subjects)),
                ("max_age", span(settings.max_age_us)),
                ("max_bytes", limit(settings.max_bytes)),
                ("max_messages", limit(settings.max_messages)),
                ("full", format!("{:?}", settings.full)),
                ("dedupe", span(Some(settings.dedupe_us))),
                ("replicas", settings.replicas.to_string()),
                ("compact", settings.compact.map_or("None", Compact::name).to_owned()),
            ]
        };
        differences("stream", &self.name, fields(self), fields(requested))
    }
}

impl ConsumerSettings {
    /// All fields in which these settings of a consumer are not the requested ones, as an error
    /// text. None: there is no difference. `start` is not compared: it counts once.
    pub fn difference(&self, requested: &Self) -> Option<String> {
        let fields = |settings: &Self| {
            let backoff: Vec<f64> = settings.backoff_us.iter().map(|delay| *delay as f64 / 1_000_000.0).collect();
            [
                ("filter", patterns(&settings.filter)),
                ("ack_wait", span(Some(settings.ack_wait_us))),
                ("max_deliver", settings.max_deliver.to_string()),
                ("backoff", format!("{backoff:?} s")),
                ("max_in_flight", settings.max_in_flight.to_string()),
                ("order", format!("{:?}", settings.order)),
                ("inactive", span(Some(settings.inactive_us))),
            ]
        };
        differences("consumer", &self.name, fields(self), fields(requested))
    }
}

impl BucketSettings {
    /// All fields in which these settings of a bucket are not the requested ones, as an error text.
    /// None: there is no difference.
    pub fn difference(&self, requested: &Self) -> Option<String> {
        let fields = |settings: &Self| {
            [
                ("history", settings.history.to_string()),
                ("ttl", span(settings.ttl_us)),
                ("max_bytes", limit(settings.max_bytes)),
                ("replicas", settings.replicas.to_string()),
            ]
        };
        differences("bucket", &self.name, fields(self), fields(requested))
    }
}

fn differences<const COUNT: usize>(
    what: &str,
    name: &str,
    has: Fields<COUNT>,
    requested: Fields<COUNT>,
) -> Option<String> {
    let found: Vec<String> = has
        .into_iter()
        .zip(requested)
        .filter(|(has, requested)| has != requested)
        .map(|((field, has), (_, requested))| format!("{field} is {has}, not {requested}"))
        .collect();
    let listed = found.join("; ");
    (!found.is_empty()).then(|| format!("{what} {name:?}: {listed}; pass the existing settings, or delete it first"))
}

/// Patterns in any order: the order means nothing.
fn patterns(patterns: &[Pattern]) -> String {
    let mut texts: Vec<&str> = patterns.iter().map(Pattern::as_str).collect();
    texts.sort_unstable();
    format!("{texts:?}")
}

fn limit(value: Option<u64>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| value.to_string())
}

/// A span in seconds.
fn span(value: Option<u64>) -> String {
    value.map_or_else(|| "None".to_owned(), |value| format!("{} s", value as f64 / 1_000_000.0))
}
