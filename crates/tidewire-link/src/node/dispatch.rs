//! The dispatch of inbound frames to reply slots and handlers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewire_core::link::assembly::Message;
use tidewire_core::link::session::{Event, Fault, Joined, Named, OutgoingPayload};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{self, CallHead, PublishHead};
use tidewire_sync::clock;

use super::connection::{Connection, Transport};
use super::receive::{ReceiveBatch, ReceivedEvents};
use super::{Call, CallKey, Exchange, Failure, Handler, Published, ReplyWaiter, Shared};
use crate::clock::now_us;
use crate::frame_reader::FrameReader;
use crate::hub::LocalFrameSink;

/// Handlers and origin of the last publish head, cached for the next message with the same head.
pub(super) struct SubscriberCache {
    head: Vec<u8>,
    handlers: Vec<Arc<dyn Handler>>,
    from: Arc<Named>,
}

impl Shared {
    /// Takes what was read.
    pub(super) fn read(self: &Arc<Self>, reading: &mut FrameReader) -> Result<(), Fault> {
        let mut batch = ReceiveBatch::of(self);
        let read = reading.frames(|frame| batch.received(frame));
        batch.garbled(read);
        self.take_in(batch.end())
    }

    /// Dispatches received events.
    ///
    /// # Errors
    /// The [`Fault`] that ended the link; the hub is notified.
    pub(super) fn take_in(self: &Arc<Self>, received: ReceivedEvents) -> Result<(), Fault> {
        if received.due_us < self.sleeps_until_us.load(Ordering::Acquire) {
            // A loop may have read it, and the thread of the links has to know.
            self.wakeup.notify_one();
        }
        self.happened(received.events, received.epoch);
        self.flush();
        received.fault.inspect_err(|fault| self.refuse(fault))
    }

    pub(super) fn happened(self: &Arc<Self>, events: Vec<Event<Arc<dyn ReplyWaiter>>>, epoch: u32) {
        let mut last = None;
        for event in events {
            match event {
                Event::Called(message) => self.called(message, epoch),
                Event::Published(message) => match &self.spreading {
                    Some(spreading) => self.spread_later(spreading, message, &mut last),
                    None => self.published(message, &mut last),
                },
                Event::Joined(joined) => self.welcomed(joined),
                Event::Placed(placed) => self.placed(placed, epoch),
                other => self.tell(other),
            }
        }
    }

    pub(super) fn tell(&self, event: Event<Arc<dyn ReplyWaiter>>) {
        match event {
            Event::Replied(waiting, message) => waiting.replied(message),
            Event::Failed(waiting, number, message) => waiting.failed(Failure { number, message: Some(message) }),
            Event::Lost(waiting) => waiting.failed(Failure { number: ErrorCode::LinkLost.number(), message: None }),
            Event::Item(waiting, message) => waiting.item(message),
            Event::Over(waiting) | Event::Subscribed(waiting) => waiting.over(),
            Event::Credited(waiting, items) => waiting.credited(items),
            Event::Alive(waiting, blocked_ms) => waiting.alive(blocked_ms),
            Event::Cancelled(id) => {
                let exchange = self.exchanges.lock().remove(&id);
                if let Some(exchange) = exchange {
                    exchange.cancelled();
                }
            }
            Event::Input(message) => self.at_exchange(message.id, |exchange| exchange.input(message)),
            Event::InputOver(id) => self.at_exchange(id, |exchange| exchange.input_over()),
            Event::Wanted(id, items) => self.at_exchange(id, |exchange| exchange.wanted(items)),
            Event::Dropped(why) => {
                if self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                    // A node that sends more of the kind does not fill the log.
                    (self.log)(&format!("a message that was published is dropped, and others will be counted: {why}"));
                }
            }
            Event::Left(number) => {
                if let Some(on_left) = &*self.on_left.lock() {
                    on_left(number);
                }
            }
            Event::Goodbye | Event::Called(_) | Event::Published(_) | Event::Joined(_) | Event::Placed(_) => {}
        }
    }

    fn at_exchange(&self, id: u64, act: impl FnOnce(&dyn Exchange)) {
        let exchange = self.exchanges.lock().get(&id).cloned();
        if let Some(exchange) = exchange {
            act(&*exchange);
        }
    }

    fn welcomed(&self, joined: Joined) {
        let (welcome, refused) = {
            let mut state = self.state.lock();
            state.resume = Some(joined.resume.clone());
            state.joined = Some(joined);
            let refused = self.subscribe_again(&mut state);
            (state.welcome.take(), refused)
        };
        refused.into_iter().for_each(|(waiting, why)| waiting.not_sent(&why));
        self.wakeup.notify_one();
        if let Some(welcome) = welcome {
            let _ = welcome.send(Ok(()));
        } else if let Some(again) = &*self.again.lock() {
            again();
        }
    }

    fn called(self: &Arc<Self>, message: Message, epoch: u32) {
        let id = message.id;
        let Ok(head) = CallHead::parse(message.head()) else { return };
        let (handler, from) = {
            let mut state = self.state.lock();
            if state.epoch != epoch || !state.session.is_open(id) {
                // Its end was read with it. Nobody would tell a handler of that.
                return;
            }
            let number = state.by_id.get(&head.to);
            let handler = number.and_then(|number| state.subscriptions.get(number)).map(|one| Arc::clone(&one.handler));
            (handler, state.session.name_of(head.origin).cloned().unwrap_or_default())
        };
        let wait = Duration::from_millis(head.deadline_ms.into());
        let deadline = (head.deadline_ms > 0).then(|| clock::now() + wait);
        let key = CallKey { epoch, id };
        let call = Call { link: Arc::clone(self), key, message, from, deadline, answered: false };
        let Some(handler) = handler else {
            call.fail(ErrorCode::NoResponders, OutgoingPayload::Short(b"the subscription has ended"));
            return;
        };
        let Some(exchange) = handler.called(call) else { return };
        self.exchanges.lock().insert(id, Arc::clone(&exchange));
        // It may have been answered meanwhile, or the link lost: nobody else tells the handler of
        // that.
        let (is_open, is_lost) = {
            let mut state = self.state.lock();
            let is_current = state.epoch == epoch && state.joined.is_some();
            (is_current && state.session.is_open(id), !is_current)
        };
        if !is_open {
            let exchange = self.exchanges.lock().remove(&id);
            if let Some(exchange) = exchange.filter(|_| is_lost) {
                exchange.cancelled();
            }
        }
    }

    /// Delivers a message to its subscribers. Messages with the same head often follow each other:
    /// they reuse the subscribers of the last one.
    pub(super) fn published(&self, message: Message, last: &mut Option<SubscriberCache>) {
        if last.as_ref().is_none_or(|last| last.head != message.head()) {
            *last = self.find_subscribers(message.head());
        }
        let Some(SubscriberCache { handlers, from, .. }) = last else { return };
        let Some((first, others)) = handlers.split_first() else { return };
        for other in others {
            other.published(Published { message: message.clone(), from: Arc::clone(from) });
        }
        first.published(Published { message, from: Arc::clone(from) });
    }

    fn find_subscribers(&self, bytes: &[u8]) -> Option<SubscriberCache> {
        let head = PublishHead::parse(bytes).ok()?;
        let state = self.state.lock();
        let of = |number: &u64| state.subscriptions.get(number).map(|one| Arc::clone(&one.handler));
        let mut handlers = Vec::new();
        if head.to == 0 || self.greeting.hub.is_some() {
            state.plain.for_each_match_str(head.subject, |number| handlers.extend(of(number)));
        } else {
            handlers.extend(state.by_id.get(&head.to).and_then(of));
        }
        let from = state.session.name_of(head.origin).cloned().unwrap_or_default();
        Some(SubscriberCache { head: bytes.to_vec(), handlers, from })
    }

    pub(super) fn answered(&self, key: CallKey) {
        // The same id names another call once the node has joined again.
        let is_current = self.state.lock().epoch == key.epoch;
        if is_current {
            self.exchanges.lock().remove(&key.id);
        }
    }
}

impl Shared {
    /// A link inside of one process was closed by its hub, which goes on: it is joined anew.
    fn join_again_here(self: Arc<Self>) {
        let Some(place) = &self.place else { return };
        let before = self.connection.lock().take();
        let Some(Transport::Local(end)) = before.as_deref().map(|connection| &connection.kind) else { return };
        let mut begun = false;
        // Messages of the hub over the previous connection must not count as messages over the next
        // one.
        end.leave(|| begun = self.begin_again());
        if !begun {
            return;
        }
        let feed: Arc<dyn LocalFrameSink> = Arc::clone(&self) as Arc<dyn LocalFrameSink>;
        let Some(end) = place.attach(Arc::downgrade(&feed)) else { return };
        let epoch = self.state.lock().epoch;
        self.go_by(Arc::new(Connection::new(Transport::Local(end), 0, epoch)));
        self.flush();
        if self.state.lock().ended {
            // The link was ended meanwhile, before it had a connection.
            let connection = self.connection.lock().take();
            drop(connection);
        }
    }
}

impl LocalFrameSink for Shared {
    fn feed(&self, mut frames: &[u8]) {
        let Some(this) = self.me.upgrade() else { return };
        let mut batch = ReceiveBatch::of(&this);
        while let (Ok(Some(frame)), false) = (wire::read(frames, self.greeting.frame_bytes), batch.is_over()) {
            batch.received(&frame);
            frames = &frames[frame.bytes.len()..];
        }
        let received = batch.end();
        this.happened(received.events, received.epoch);
        if let Err(fault) = received.fault {
            self.broken(fault);
        }
        self.flush();
    }

    fn is_paused(&self) -> bool {
        Self::is_paused(self)
    }

    fn tick(&self) {
        self.tell_alive(now_us());
        self.tidy(now_us());
        self.flush();
    }

    fn due_us(&self) -> u64 {
        self.state.lock().session.telling_us()
    }

    fn ended(&self, reason: &str, may_return: bool) {
        let was_joined = self.state.lock().joined.is_some();
        self.broken(Fault::Told { number: ErrorCode::LinkLost.number(), text: reason.to_owned() });
        if let (true, Some(place), Some(this)) = (may_return && was_joined, &self.place, self.me.upgrade()) {
            // The hub is at work on this very thread.
            place.spawn(async move { this.join_again_here() });
        }
    }
}
