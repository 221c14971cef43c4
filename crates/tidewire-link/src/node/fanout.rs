//! Fan-out thread of a gateway: it delivers published messages, so that the thread of the hub does
//! no work for their subscribers. It also writes the frames of its requests, in one write for all
//! that are ready at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidewire_core::link::assembly::Message;
use tidewire_core::link::fair::FairQueue;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::PublishHead;
use tidewire_sync::Mutex;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::dispatch::SubscriberCache;
use super::{Link, Shared};
use crate::clock::now_us;

/// Prefix of subjects on which nodes can't publish.
const OF_PROTOCOL: &str = "$hub.";
/// Longest delivery turn: then other tasks have their turn on the thread.
const TURN_US: u64 = 500;
/// Most bytes that wait for the thread; a sender writes further bytes itself.
const GATHERED_BYTES: usize = 64 * 1024;

/// Queue of messages to deliver and frames to write.
pub(super) struct FanoutQueue {
    /// The lock is held for one addition or removal.
    queue: Mutex<FairQueue<Message>>,
    more: Notify,
    /// True while the thread runs.
    runs: AtomicBool,
    /// True while frames wait for the thread.
    to_write: AtomicBool,
}

impl FanoutQueue {
    pub fn new() -> Self {
        let queue = FairQueue::new(limits::LINK_INTAKE_BYTES.default as usize);
        Self {
            queue: Mutex::new(queue),
            more: Notify::new(),
            runs: AtomicBool::new(false),
            to_write: AtomicBool::new(false),
        }
    }

    /// Leaves frames to the thread that it writes after all that is ready there now. False: they
    /// are too many, or it is not there.
    pub fn writes(&self, waiting: impl FnOnce() -> usize) -> bool {
        // Looked at after the frames were added: a thread that ends writes those of all who have
        // still found it there.
        if !self.runs.load(Ordering::SeqCst) || !(1..=GATHERED_BYTES).contains(&waiting()) {
            return false;
        }
        if !self.to_write.swap(true, Ordering::AcqRel) {
            self.more.notify_one();
        }
        true
    }

    /// Adds a message of a sender. False: too much of it waits.
    fn add(&self, origin: u32, message: Message) -> bool {
        let bytes = message.head().len() + message.payload().len();
        let added = self.queue.lock().add(origin, bytes, message);
        // Refused messages are dropped after the lock is released.
        let is_added = added.is_ok();
        if is_added {
            self.more.notify_one();
        }
        is_added
    }

    fn next(&self) -> Option<Message> {
        self.queue.lock().take()
    }
}

impl Link {
    /// Hands what is published to its handlers, on the thread that runs this, for as long as that
    /// goes on: for the link of a [gateway](Self::join_gateway) alone, whose messages wait for it.
    /// At most `link_intake_bytes` wait; one sender may fill as much as is left, and senders take
    /// turns. Meanwhile [`flush`](Self::flush) leaves up to 64 KiB of frames to that thread, which
    /// writes them in one go after all that is ready there.
    ///
    /// # Cancel safety
    /// Messages that wait stay.
    pub fn spread(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move { shared.spread().await }
    }
}

impl Shared {
    /// Queues a message for delivery by another thread. Messages of the hub are delivered at once:
    /// a later call must find the changes that they announce.
    pub(super) fn spread_later(&self, spreading: &FanoutQueue, message: Message, last: &mut Option<SubscriberCache>) {
        let of = |head: PublishHead<'_>| (!head.subject.starts_with(OF_PROTOCOL)).then_some(head.origin);
        let origin = PublishHead::parse(message.head()).ok().and_then(of);
        match origin {
            None => self.published(message, last),
            Some(origin) if spreading.add(origin, message) => {}
            Some(_) => drop(self.dropped.fetch_add(1, Ordering::Relaxed)),
        }
    }

    async fn spread(&self) {
        let Some(spreading) = &self.spreading else { return };
        let _runs = FanoutThread::begin(self, spreading);
        loop {
            if spreading.to_write.swap(false, Ordering::AcqRel) {
                self.write_now();
            }
            let (until, mut last) = (now_us() + TURN_US, None);
            let mut is_over = false;
            while !is_over && now_us() < until {
                match spreading.next() {
                    Some(message) => self.published(message, &mut last),
                    None => is_over = true,
                }
            }
            if is_over { spreading.more.notified().await } else { yield_now().await }
        }
    }
}

/// The thread that spreads and writes, for as long as it is there.
struct FanoutThread<'a>(&'a Shared, &'a FanoutQueue);

impl<'a> FanoutThread<'a> {
    fn begin(shared: &'a Shared, spreading: &'a FanoutQueue) -> Self {
        spreading.runs.store(true, Ordering::SeqCst);
        Self(shared, spreading)
    }
}

impl Drop for FanoutThread<'_> {
    fn drop(&mut self) {
        self.1.runs.store(false, Ordering::SeqCst);
        self.0.write_now();
    }
}
