//! The publisher: one task that sends messages in the order of the calls, many before the first
//! ack.
//!
//! - At most `nats_in_flight` messages are in flight. Servers refuse messages while a stream has no
//!   leader. The publisher resends them in order, before anything newer.
//! - Messages in flight when the connection was lost may be stored. A message with an id is resent,
//!   and stored once. A message without an id fails its call, as only the caller knows whether a
//!   second copy does harm.
//! - Calls to the stream of a batch with ids wait for its end, as the batch may need several
//!   attempts.

mod batch;
mod jobs;
mod lookup;
mod reply;
mod sent;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidewire_backend::home::{Ack, Answer, HomeErrorKind, HomeResult, NewMessage, answer};
use tidewire_proto::generated::limits::{NATS_WAITING_BYTES, NATS_WAITING_MESSAGES};
use tokio::sync::{Notify, mpsc};

use crate::connection::Connection;
use crate::message::weight;
use crate::stream_cache::Streams;

use jobs::Job;
pub(crate) use lookup::sequence_of;

/// Accepts messages from any thread.
#[derive(Debug)]
pub(crate) struct Publisher {
    jobs: mpsc::UnboundedSender<Job>,
    waiting: Arc<PublishBudget>,
}

/// Budget of accepted messages without an ack. The channel itself is unbounded; this budget bounds
/// it.
#[derive(Debug, Default)]
pub(crate) struct PublishBudget {
    messages: AtomicU64,
    bytes: AtomicU64,
    answered: Notify,
}

impl Publisher {
    /// Begins the task. Must be called within the runtime.
    pub async fn start(connection: Arc<Connection>, streams: Arc<Streams>) -> HomeResult<Self> {
        let (jobs, queue) = mpsc::unbounded_channel();
        let waiting = Arc::<PublishBudget>::default();
        let task = task::Task::new(connection, streams, queue, Arc::clone(&waiting)).await?;
        tokio::spawn(task.run());
        Ok(Self { jobs, waiting })
    }

    /// Puts messages behind those of earlier calls.
    pub fn publish(
        &self,
        connection: &Connection,
        stream: &str,
        messages: Vec<NewMessage>,
        whole: bool,
    ) -> Answer<Vec<HomeResult<Ack>>> {
        if messages.is_empty() {
            return Answer::ready(Ok(Vec::new()));
        }
        let count = messages.len() as u64;
        let bytes = messages.iter().map(weight).sum();
        if !self.waiting.take(count, bytes) {
            let words = "publish: too many messages wait to be sent: wait for the acks of earlier ones";
            return Answer::ready(Err(connection.error(HomeErrorKind::Busy, words)));
        }
        let (teller, answer) = answer();
        let job = Job::new(
            stream,
            messages,
            whole,
            teller,
            PublishPermit { waiting: Arc::clone(&self.waiting), count, bytes },
        );
        // An ended task drops the job, whose teller then reports the closed storage backend.
        drop(self.jobs.send(job));
        answer
    }
}

impl Publisher {
    /// Ends when everything that was taken on is answered.
    pub fn idle(&self) -> impl Future<Output = ()> + Send + use<> {
        let waiting = Arc::clone(&self.waiting);
        async move {
            loop {
                let answered = waiting.answered.notified();
                if waiting.messages.load(Ordering::Acquire) == 0 {
                    return;
                }
                answered.await;
            }
        }
    }
}

impl PublishBudget {
    fn take(&self, count: u64, bytes: u64) -> bool {
        let messages = self.messages.fetch_add(count, Ordering::Relaxed);
        let weight = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // One call is accepted at any size: otherwise it could never run.
        let fits = messages == 0
            || (messages + count <= NATS_WAITING_MESSAGES.max && weight + bytes <= NATS_WAITING_BYTES.max);
        if !fits {
            self.give_back(count, bytes);
        }
        fits
    }

    fn give_back(&self, count: u64, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if self.messages.fetch_sub(count, Ordering::Release) == count {
            self.answered.notify_waiters();
        }
    }
}

/// The capacity that a call uses until its ack.
#[derive(Debug)]
pub(crate) struct PublishPermit {
    waiting: Arc<PublishBudget>,
    count: u64,
    bytes: u64,
}

impl Drop for PublishPermit {
    fn drop(&mut self) {
        self.waiting.give_back(self.count, self.bytes);
    }
}
