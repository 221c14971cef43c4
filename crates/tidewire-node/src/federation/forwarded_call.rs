//! A call that goes on to another hub: frames pass unread in both directions, with deadline,
//! credit, errors and cancellation.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use tidewire_core::federation::{HUBS, HubPath};
use tidewire_engine::raw::{Mutex, clock};
use tidewire_link::{
    Call, CallKey, Exchange, Failure, Flusher, Handler, Link, Message, OutgoingPayload, Published, Refused, ReplyWaiter,
};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::subject::grammar::{agent_subject, service_subject};
use tidewire_proto::wire::{CHOICE_WITH_CAPACITY, CallHead, Fields, FieldsWriter, Flags, PublishHead, WireError};

use crate::calls::reply_slot::Payload;
use crate::federation::direction::Direction;
use crate::services::context::{ORIGIN, PUBLIC, USER};
use crate::services::inbound_call::refuse;

/// The receiver of a call at the hub that has it.
#[derive(derive_more::Display)]
pub(super) enum ForwardTarget {
    /// A service, by its name there.
    #[display("{_0}")]
    Service(String),
    /// An agent, by its id there.
    #[display("agent {_0:?}")]
    Agent(String),
}

impl ForwardTarget {
    /// The subject there of a call, and its title in errors.
    fn subject(&self, called: &str) -> (String, String) {
        match self {
            Self::Service(name) => {
                let method = called.rsplit('.').next().unwrap_or_default();
                (service_subject(name, method), format!("{name}.{method}"))
            }
            Self::Agent(id) => (agent_subject(id), self.to_string()),
        }
    }
}

/// Handler of a service or an agent that another hub has.
pub(super) struct Forwarder {
    /// The link to the hub that has it.
    pub to: Link,
    pub target: ForwardTarget,
    pub direction: Arc<Direction>,
}

impl Handler for Forwarder {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        match self.checked(&call) {
            Ok(fields) => {
                self.direction.counts.calls.fetch_add(1, Relaxed);
                Some(self.forward(call, &fields))
            }
            Err((code, text)) => {
                self.direction.counts.refused.fetch_add(1, Relaxed);
                refuse(call, code, &text);
                None
            }
        }
    }

    fn published(&self, published: Published) {
        let ForwardTarget::Agent(id) = &self.target else { return };
        let Ok(head) = PublishHead::parse(published.message.head()) else { return };
        let Ok(path) = self.direction.path_of_call(head.fields.text(HUBS)) else { return };
        let Ok(fields) = direction_fields(&head.fields, &path) else { return };
        self.direction.counts.messages.fetch_add(1, Relaxed);
        publish(&self.to, &agent_subject(id), &fields, published);
    }
}

/// Publishes a message at another hub. While the link there is lost, messages are lost: they are
/// delivered at most once.
pub(super) fn publish(to: &Link, subject: &str, fields: &[u8], published: Published) {
    let flags = Flags::NORMAL.in_lane(published.message.flags.lane() as u8);
    let fields = Fields::parse("PUBLISH", fields).unwrap_or_default();
    let head = PublishHead { subject, fields, ..PublishHead::default() };
    if send(published.message.into(), |payload| to.publish(&head, flags, payload)).is_ok() {
        to.flush();
    }
}

impl Forwarder {
    fn forward(&self, mut call: Call, fields: &[u8]) -> Arc<dyn Exchange> {
        let left = call.deadline.map(|at| at.saturating_duration_since(clock::now()));
        let (payload, begin) = call.message.take_payload();
        let (flags, flusher) = (call.message.flags, call.flusher());
        let head = call.head();
        let (subject, title) = self.target.subject(head.subject);
        let deadline_ms =
            left.map_or(0, |left| u32::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX).max(1));
        // Each hub first chooses among its own instances.
        let (choice, credit) = (if head.choice == CHOICE_WITH_CAPACITY { 0 } else { head.choice }, head.credit);
        let forwarded = Arc::new_cyclic(|me| ForwardedCall {
            me: Weak::clone(me),
            to: self.to.clone(),
            title,
            flusher,
            state: Mutex::new(State { call: Some(call), ..State::default() }),
        });
        let head = CallHead {
            deadline_ms,
            choice,
            credit,
            subject: &subject,
            fields: Fields::parse("CALL", fields).unwrap_or_default(),
            ..CallHead::default()
        };
        let flags = Flags::NORMAL.in_lane(flags.lane() as u8).with_again(flags.again());
        let waiting = Arc::clone(&forwarded) as Arc<dyn ReplyWaiter>;
        match send(Payload::of_memory(payload, begin), |payload| self.to.call(&head, flags, payload, waiting)) {
            Ok(key) => {
                forwarded.is_sent(key);
                self.to.flush();
            }
            Err(refused) => {
                let error = crate::error::Error::refused(&forwarded.title, &refused);
                // Nothing was sent, so that the caller may try another instance.
                let code = match refused {
                    Refused::InFlight { .. } | Refused::Full { .. } => ErrorCode::Overloaded,
                    Refused::Closing | Refused::Over => ErrorCode::NoResponders,
                    _ => error.code(),
                };
                forwarded.end(CallEnd::Failed(code, error.message().as_bytes().to_vec().into()));
            }
        }
        forwarded
    }

    /// The fields of the call at the other hub, or why it does not cross.
    fn checked(&self, call: &Call) -> Result<Vec<u8>, (ErrorCode, String)> {
        let fields = call.head().fields;
        if fields.text(ORIGIN) == Some(PUBLIC) {
            let text = format!("{}: it is for nodes: callers over HTTP do not cross to another hub", self.target);
            return Err((ErrorCode::NoSuchTarget, text));
        }
        let path = self.direction.path_of_call(fields.text(HUBS));
        // A circle has no instance: its caller may try another one.
        let path = path.map_err(|problem| (ErrorCode::NoResponders, format!("{}: {problem}", self.target)))?;
        direction_fields(&fields, &path).map_err(|wrong| (wrong.code(), format!("{}: {wrong}", self.target)))
    }
}

/// Fields without those that one hub states for itself, and with the path.
pub(super) fn direction_fields(fields: &Fields<'_>, path: &HubPath) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    let mut writer = FieldsWriter::new(&mut bytes);
    for (name, value) in fields.iter().filter(|(name, _)| ![USER, ORIGIN, HUBS].contains(name)) {
        writer.add(name, value)?;
    }
    writer.add(HUBS, path.to_string().as_bytes())?;
    Ok(bytes)
}

/// Sends a payload on; a long one is not copied.
fn send<T>(payload: Payload, send: impl FnOnce(OutgoingPayload<'_>) -> T) -> T {
    if payload.bytes().len() > limits::LINK_CHUNK_BYTES.default as usize {
        send(OutgoingPayload::Long(Box::new(payload)))
    } else {
        send(OutgoingPayload::Short(payload.bytes()))
    }
}

/// A call that is under way at the other hub.
struct ForwardedCall {
    me: Weak<Self>,
    to: Link,
    title: String,
    flusher: Flusher,
    /// The lock protects both sides of the call; nothing is flushed under it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The caller's side; None once it has ended.
    call: Option<Call>,
    /// The callee's side, once it is sent.
    key: Option<CallKey>,
    /// Items that the link to the caller has no capacity for yet, bounded by the caller's credit.
    items: VecDeque<Payload>,
    /// The end, behind the last item.
    end: Option<CallEnd>,
    /// Credit that came before the call was sent.
    wanted: Vec<u32>,
}

enum CallEnd {
    Replied(Payload),
    Failed(ErrorCode, Payload),
    Over,
}

impl ForwardedCall {
    /// Hands on what came before the call had its key.
    fn is_sent(&self, key: CallKey) {
        let (is_over, wanted) = {
            let mut state = self.state.lock();
            state.key = Some(key);
            (state.call.is_none(), std::mem::take(&mut state.wanted))
        };
        if is_over {
            return self.to.cancel(key);
        }
        wanted.into_iter().for_each(|items| self.to.want(key, items));
    }

    fn end(&self, end: CallEnd) {
        self.state.lock().end.get_or_insert(end);
        self.drain();
    }

    /// Sends items to the caller as far as its link has capacity, and then the end.
    fn drain(&self) {
        let (Some(me), mut state) = (self.me.upgrade(), self.state.lock()) else { return };
        let waiter: Arc<dyn Exchange> = me;
        while let (Some(call), Some(item)) = (&state.call, state.items.front()) {
            if !call.may_send_item(item.bytes().len(), &waiter) {
                break;
            }
            let Some(item) = state.items.pop_front() else { break };
            let sent = state.call.as_ref().map(|call| send(item, |item| call.item(item)));
            if let Some(Err(refused)) = sent {
                state.items.clear();
                let text = format!("{}: an item can't be sent: {refused}", self.title);
                state.end = Some(CallEnd::Failed(ErrorCode::LimitExceeded, text.into_bytes().into()));
                if let Some(key) = state.key {
                    drop(state);
                    self.to.cancel(key);
                    state = self.state.lock();
                }
            }
        }
        if state.items.is_empty()
            && state.end.is_some()
            && let (Some(end), Some(call)) = (state.end.take(), state.call.take())
        {
            match end {
                // The link reports a reply that cannot be sent to the caller.
                CallEnd::Replied(payload) => drop(send(payload, |payload| call.reply(payload))),
                CallEnd::Failed(code, payload) => send(payload, |payload| call.fail(code, payload)),
                CallEnd::Over => call.over(),
            }
        }
        drop(state);
        self.flusher.flush();
    }
}

impl ReplyWaiter for ForwardedCall {
    fn replied(&self, reply: Message) {
        self.end(CallEnd::Replied(reply.into()));
    }

    fn failed(&self, failure: Failure) {
        let Failure { number, message } = failure;
        self.end(match (ErrorCode::from_number(number), message) {
            (Some(code), Some(message)) => CallEnd::Failed(code, message.into()),
            (None, Some(message)) => {
                let text = format!("{}: error {number}: {}", self.title, String::from_utf8_lossy(message.payload()));
                CallEnd::Failed(ErrorCode::WireError, text.into_bytes().into())
            }
            (_, None) => {
                let what = "the link between the hubs was lost before an answer came: call again once it is back";
                CallEnd::Failed(ErrorCode::LinkLost, format!("{}: {what}", self.title).into_bytes().into())
            }
        });
    }

    fn item(&self, item: Message) {
        self.state.lock().items.push_back(item.into());
        self.drain();
    }

    fn over(&self) {
        self.end(CallEnd::Over);
    }
}

impl Exchange for ForwardedCall {
    fn cancelled(&self) {
        let (call, key) = {
            let mut state = self.state.lock();
            state.items.clear();
            (state.call.take(), state.key)
        };
        if let Some(key) = key {
            self.to.cancel(key);
        }
        if let Some(call) = call {
            refuse(call, ErrorCode::CallCancelled, "the caller has gone");
        }
    }

    fn wanted(&self, items: u32) {
        let mut state = self.state.lock();
        let Some(key) = state.key else { return state.wanted.push(items) };
        drop(state);
        self.to.want(key, items);
    }

    fn writable(&self) {
        self.drain();
    }
}
