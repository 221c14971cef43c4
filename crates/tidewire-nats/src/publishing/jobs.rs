//! Calls of `publish` in progress: their unsent messages, and the results so far.

use std::collections::HashMap;
use std::vec;

use tidewire_backend::home::{Ack, HomeError, HomeResult, NewMessage, Teller};

use super::PublishPermit;

/// One call, before anything of it was sent.
#[derive(Debug)]
pub(crate) struct Job {
    pub stream: String,
    pub whole: bool,
    /// True if the stream was looked up because a message did not fit its cached state.
    pub looked: bool,
    pub messages: vec::IntoIter<NewMessage>,
    pub count: usize,
    teller: Teller<Vec<HomeResult<Ack>>>,
    permit: PublishPermit,
}

impl Job {
    pub fn new(
        stream: &str,
        messages: Vec<NewMessage>,
        whole: bool,
        teller: Teller<Vec<HomeResult<Ack>>>,
        permit: PublishPermit,
    ) -> Self {
        let count = messages.len();
        Self { stream: stream.to_owned(), whole, looked: false, messages: messages.into_iter(), count, teller, permit }
    }

    /// Marks the stream as looked up: a message that does not fit now is an error.
    pub fn looked(mut self) -> Self {
        self.looked = true;
        self
    }

    /// All of the batch is stored.
    pub fn finish(self, acks: Vec<Ack>) {
        drop(self.permit);
        drop(self.teller.tell(Ok(acks.into_iter().map(Ok).collect())));
    }

    /// None of the batch is stored.
    pub fn refuse(self, error: &HomeError) {
        drop(self.permit);
        drop(self.teller.tell(Ok((0..self.count).map(|_| Err(error.clone())).collect())));
    }

    /// Nothing of it was looked at.
    pub fn fail(self, error: HomeError) {
        drop(self.permit);
        drop(self.teller.tell(Err(error)));
    }
}

/// The results of a call, as they come.
#[derive(Debug)]
struct Results {
    found: Vec<Option<HomeResult<Ack>>>,
    missing: usize,
    teller: Teller<Vec<HomeResult<Ack>>>,
    permit: PublishPermit,
}

/// Calls that were begun.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    calls: HashMap<u64, Results>,
    next: u64,
}

impl Begun {
    /// Begins a call; returns its number, and its messages to send.
    pub fn begin(&mut self, job: Job) -> (u64, vec::IntoIter<NewMessage>) {
        self.next += 1;
        let found = (0..job.count).map(|_| None).collect();
        let results = Results { found, missing: job.count, teller: job.teller, permit: job.permit };
        self.calls.insert(self.next, results);
        (self.next, job.messages)
    }

    /// Takes the result of a message; the last one answers the call.
    pub fn finish(&mut self, call: u64, index: usize, result: HomeResult<Ack>) {
        let Some(results) = self.calls.get_mut(&call) else { return };
        if results.found[index].replace(result).is_none() {
            results.missing -= 1;
        }
        if results.missing == 0
            && let Some(results) = self.calls.remove(&call)
        {
            drop(results.permit);
            drop(results.teller.tell(Ok(results.found.into_iter().flatten().collect())));
        }
    }
}
