//! Links and calls without types, for bindings of other languages. Nothing in here is stable.

pub use tidewire_core::federation::FederationTable;
pub use tidewire_link::{
    Access, Address, Batch, Call, CallKey, Exchange, Failure, Flusher, Grant, Greeting, Handler, HubHandle, HubOptions,
    JoinError, Link, ListenError, Listening, Message, Named, OffLoopWaiter, OutgoingPayload, PayloadParts, Published,
    Reader, Refused, ReplyWaiter, Rights, Runtime, Subscription, Tls, TokenLimits, keep_freed,
};

pub use crate::calls::item_buffer::{ItemBuffer, ItemWait};
pub use crate::calls::reply_slot::{CallOutcome, Payload, ReplySlot};
pub use crate::federation::FederationSettings;
pub use crate::statistics::call_durations::{CLIENT, CallDurations, SEND, SERVER};
pub use crate::statistics::routes::route_rows;
