//! The newest spans of a node, for the console: bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tidewire_engine::raw::{Mutex, clock};

/// Characters of a name, and of an error, that a span stores.
const TEXT_MAX: usize = 200;
/// Spans of one trace in an answer: the first ones.
pub const ANSWER_SPANS_MAX: usize = 500;

/// The newest spans, at most so many. An added one replaces the oldest.
pub struct SpanStore {
    /// How many spans it has at most.
    pub most: usize,
    spans: Mutex<VecDeque<Arc<StoredSpan>>>,
}

/// A span from its begin on.
pub struct StoredSpan {
    /// The id of its trace, 32 hexadecimal digits.
    pub trace: String,
    /// Its own id, 16 hexadecimal digits.
    pub id: String,
    /// The flags of its trace, two hexadecimal digits.
    pub flags: String,
    parent: String,
    title: String,
    kind: &'static str,
    instance: String,
    start_us: u64,
    began: Instant,
    end: Mutex<SpanEnd>,
}

#[derive(Default)]
struct SpanEnd {
    duration_us: Option<u64>,
    error: Option<String>,
}

/// The span that another one belongs to: its trace, its id and its flags.
pub struct Sender {
    pub trace: String,
    pub id: String,
    pub flags: String,
}

impl Sender {
    /// The span that the header `traceparent` names.
    pub fn named(parent: &str) -> Option<Self> {
        let mut parts = parent.split('-');
        let (_version, trace, id, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length| text.len() == length && text.bytes().all(|one| one.is_ascii_hexdigit());
        let is_named = is_hex(trace, 32) && is_hex(id, 16) && is_hex(flags, 2);
        is_named.then(|| Self { trace: trace.to_owned(), id: id.to_owned(), flags: flags.to_owned() })
    }
}

impl SpanStore {
    pub fn new(most: usize) -> Self {
        Self { most, spans: Mutex::default() }
    }

    /// Stores a span that begins now.
    pub fn add(
        &self,
        (trace, id): (String, String),
        parent: Option<&Sender>,
        kind: &'static str,
        title: &str,
        instance: &str,
    ) -> Arc<StoredSpan> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let span = Arc::new(StoredSpan {
            trace,
            id,
            flags: parent.map_or_else(|| "01".to_owned(), |parent| parent.flags.clone()),
            parent: parent.map(|parent| parent.id.clone()).unwrap_or_default(),
            title: title.chars().take(TEXT_MAX).collect(),
            kind,
            instance: instance.to_owned(),
            start_us: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
            began: clock::now(),
            end: Mutex::default(),
        });
        let oldest = {
            let mut spans = self.spans.lock();
            let oldest = if spans.len() >= self.most { spans.pop_front() } else { None };
            spans.push_back(Arc::clone(&span));
            oldest
        };
        drop(oldest);
        span
    }

    /// The spans of a trace that are stored, in the order in which they began.
    pub fn find(&self, trace: &str) -> Vec<Arc<StoredSpan>> {
        self.spans.lock().iter().filter(|span| span.trace == trace).map(Arc::clone).collect()
    }
}

impl StoredSpan {
    /// Notes the error that ended it.
    pub fn fail(&self, kind: &str, text: &str) {
        let error = format!("{kind}: {text}").chars().take(TEXT_MAX).collect();
        self.end.lock().error = Some(error);
    }

    /// Notes how long it took.
    pub fn end(&self) {
        let us = u64::try_from(clock::since(self.began).as_micros()).unwrap_or(u64::MAX);
        self.end.lock().duration_us.get_or_insert(us);
    }

    /// Its values for the console; `node` is the node of its store.
    pub fn row(&self, node: &str) -> Value {
        let is_call = ["client", "server"].contains(&self.kind);
        let (service, method) = self.title.rsplit_once('/').filter(|_| is_call).unwrap_or_default();
        let end = self.end.lock();
        json!({
            "id": self.id,
            "parent": self.parent,
            "name": self.title,
            "kind": self.kind,
            "service": service,
            "method": method,
            "node": node,
            "instance": self.instance,
            "start_us": self.start_us,
            "duration_us": end.duration_us,
            "error": end.error,
        })
    }
}
