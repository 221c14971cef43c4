//! Handlers of inbound frames of a node's link.

use std::sync::Arc;

use tidewire_core::link::assembly::Message;
use tidewire_core::link::session::Named;

use super::Call;

/// Receiver of the outcome of a call. Its methods run on the thread that reads the socket: they
/// must be quick and must not block.
pub trait ReplyWaiter: Send + Sync {
    /// The call was answered.
    fn replied(&self, reply: Message);
    /// The call has failed.
    fn failed(&self, failure: Failure);
    /// One item of the answer. A waiter that expects none grants no credit for them.
    fn item(&self, _item: Message) {}
    /// No more items come; the call has ended.
    fn over(&self);
    /// The callee takes so many further items.
    fn credited(&self, _items: u32) {}
    /// The call is still at work. The event loop there has been blocked for so many milliseconds;
    /// 0: it goes round.
    fn alive(&self, _blocked_ms: u32) {}
}

/// Handler of a subscription. Its methods run on the thread that reads the socket: they must be
/// quick and must not block.
pub trait Handler: Send + Sync {
    /// A call has arrived; answer with the methods of `call`. The returned exchange is notified of
    /// later events of the call.
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>>;
    /// Something was published.
    fn published(&self, _message: Published) {}
    /// True if the handler only listens: then it receives no calls.
    fn listens(&self) -> bool {
        false
    }
}

/// Events of a call after its arrival.
pub trait Exchange: Send + Sync {
    /// Nobody waits for the answer any more.
    fn cancelled(&self);
    /// An item from the caller. An exchange that takes none grants no credit for them.
    fn input(&self, _item: Message) {}
    /// The caller sends no more items.
    fn input_over(&self) {}
    /// The caller takes so many further items.
    fn wanted(&self, items: u32);
    /// An item that had to wait [may be sent](super::Call::may_send_item) now. Called on any
    /// thread.
    fn writable(&self) {}
}

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    /// The number of the error in `spec/errors.toml`.
    pub number: u16,
    /// Text, or a value if the error is `remote_error`. None: the link was lost.
    pub message: Option<Message>,
}

/// A message that was published.
#[derive(Clone)]
pub struct Published {
    /// Its head and payload.
    pub message: Message,
    /// The publishing node.
    pub from: Arc<Named>,
}
