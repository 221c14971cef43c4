//! Functions, objects and streams of one node, called from another; `spec/values.md` has the form.
//!
//! The state machines of the tables are `imports` and `exports` of `tidewire_core::rpc`.

mod argument_stream;
mod endpoint;
mod export_scope;
mod exportable;
mod exports;
mod import_handle;
mod proxy;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tidewire_core::rpc::exports::Exports;
use tidewire_core::rpc::imports::{ImportUpdates, Imports};
use tidewire_engine::raw::{Fire, Mutex, Watch, clock};
use tidewire_link::{CallKey, Failure, Handler, Message, ReplyWaiter, Subscription};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{CallHead, Flags};

use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::node::runner::Runner;
use crate::pending::Wakers;
use crate::values::{self, Blob, Value};

pub use argument_stream::Feed;
pub(crate) use endpoint::{ExportPin, ExportSubscription};
pub(crate) use export_scope::ExportScope;
pub(crate) use exportable::{Exportable, KeyedReference, Kind, OutboundReference, Target};
pub use exports::{Function, Object};
pub(crate) use import_handle::{ImportHandle, WireReference};
pub use proxy::{RemoteFunction, RemoteObject};

/// The method of a function.
pub(crate) const CALL: &str = "call";
/// The method of a stream.
pub(crate) const TAKE: &str = "take";
/// Timeout of claims and releases at an owner.
const UPDATE_TIMEOUT_MS: u32 = 30_000;
/// The last of the lanes.
const LOW: u8 = 3;
const OBJECTS_MAX: usize = limits::REMOTE_OBJECTS.max as usize;
/// Time for which an export of an ended call waits for the claim of its callee.
const CLAIM_US: u64 = limits::REMOTE_CLAIM_MS.default * 1_000;

/// Exported and imported objects of a node.
pub(crate) struct Objects {
    core: Weak<Core>,
    runner: Arc<Runner>,
    /// The lock protects exports and imports; nothing is called or dropped under it.
    state: Mutex<State>,
    /// Woken when an object was exported, imported or released.
    pub wakers: Wakers,
}

pub(crate) type ReferenceFields = Vec<(&'static str, Value)>;

struct State {
    /// The number of the link that all below belongs to.
    number: Option<u32>,
    /// By the addresses of the exported objects.
    exports: Exports<usize, Exportable>,
    imports: Imports<Weak<ImportHandle>>,
    subscription: Option<Subscription>,
    /// The next sweep of expired leases.
    watch: Option<(Instant, Watch)>,
}

impl Objects {
    pub fn new(core: Weak<Core>, runner: &Arc<Runner>) -> Self {
        Self { core, runner: Arc::clone(runner), state: Mutex::default(), wakers: Wakers::default() }
    }

    /// The node, as long as it is there.
    pub fn core(&self) -> Option<Arc<Core>> {
        self.core.upgrade()
    }

    /// The time on the clock of the exports.
    fn now_us(&self) -> u64 {
        self.runner.us_at(clock::now())
    }

    /// The number of the link, while there is one.
    pub fn number(&self) -> Option<u32> {
        self.core.upgrade()?.link.joined().map(|joined| joined.node)
    }

    /// Accepts calls at an endpoint, under the current number of the link. Exports and imports of
    /// the link before are lost.
    pub fn open(&self, endpoint: &Arc<dyn Handler>) {
        let Some(core) = self.core.upgrade() else { return };
        let Some(number) = self.number() else { return };
        let before = {
            let mut state = self.state.lock();
            if state.number == Some(number) {
                return;
            }
            std::mem::replace(&mut *state, State { number: Some(number), ..State::default() })
        };
        drop(before);
        self.wakers.wake();
        let Ok(pattern) = names::pattern(&format!("$node.{number}.>")) else { return };
        // A hub that has no such subjects has no nodes that could call there.
        if let Ok(subscription) = core.link.subscribe(&pattern, "", &[], Arc::clone(endpoint), Arc::new(IgnoreReply)) {
            self.state.lock().subscription = Some(subscription);
        }
    }

    /// Releases all exports and imports.
    pub fn close(&self) {
        self.change(std::mem::take);
    }

    /// Changes exports and imports. Removed ones are dropped after the lock.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        let removed = change(&mut self.state.lock());
        drop(removed);
        self.wakers.wake();
    }

    /// Numbers of exports and imports.
    pub fn counts(&self) -> (usize, usize) {
        let (expired, counts) = {
            let mut state = self.state.lock();
            let (expired, _) = state.exports.expire(self.now_us());
            (expired, (state.exports.len(), state.imports.len()))
        };
        drop(expired);
        counts
    }

    // Outbound references

    /// Encodes a reference, with a key of its own.
    pub fn offered(&self, offer: OutboundReference) -> Result<(KeyedReference, ReferenceFields), Error> {
        let text = |text: &str| Value::from(text);
        let export = match &offer {
            OutboundReference::Back(handle) => {
                handle.check()?;
                let (key, fields) = (handle.key.clone(), vec![("kind", text("back")), ("key", text(&handle.key))]);
                return Ok((KeyedReference { key, what: Arc::new(offer) }, fields));
            }
            OutboundReference::Own(export) => export,
        };
        let lost = || Error::new(ErrorCode::LinkLost, "its link is lost: nothing can be given before it is back");
        let core = self.core.upgrade().ok_or_else(lost)?;
        let number = self.number().ok_or_else(lost)?;
        let (key, kind) = (names::random_hex(16), export.kind());
        let mut fields = vec![
            ("node", Value::from(number)),
            ("name", text(&core.name)),
            ("key", text(&key)),
            ("kind", text(kind.as_str())),
            ("title", text(export.title())),
        ];
        if let Exportable::Object(shared) = export {
            shared.problem.clone().map_or(Ok(()), Err)?;
            let methods = shared.methods.iter().map(|method| method.offered());
            fields.push(("methods", Value::List(methods.collect())));
        }
        Ok((KeyedReference { key, what: Arc::new(offer) }, fields))
    }

    /// Exports the references in a value to the receiving node.
    pub fn give(self: &Arc<Self>, peer: &str, blob: &mut Blob) -> Result<ExportScope, Error> {
        let mut exports = ExportScope::new(self);
        for KeyedReference { key, what } in std::mem::take(&mut blob.offered) {
            match &*what {
                OutboundReference::Back(handle) if handle.owner == peer => exports.add_back(Arc::clone(&what)),
                OutboundReference::Back(handle) => {
                    let text = format!(
                        "{handle:?} belongs to another node and can't be given to {peer:?}: give a function that calls it"
                    );
                    return Err(Error::invalid(text));
                }
                OutboundReference::Own(export) => {
                    let known = self.export(peer, export, &key)?;
                    if *known != *key {
                        blob.rename(&key, &known);
                    }
                    exports.add(known, export);
                }
            }
        }
        Ok(exports)
    }

    /// As `give`, in a reply: streams are refused, as the call of their reader has ended then.
    pub fn give_back(self: &Arc<Self>, peer: &str, blob: &mut Blob) -> Result<ExportScope, Error> {
        let is_stream =
            |offered: &KeyedReference| matches!(&*offered.what, OutboundReference::Own(Exportable::Items(_)));
        if blob.offered.iter().any(is_stream) {
            let text = "the result: a stream is given as an argument only: declare the method as a stream";
            return Err(Error::invalid(text));
        }
        self.give(peer, blob)
    }

    fn export(self: &Arc<Self>, peer: &str, export: &Exportable, key: &str) -> Result<Arc<str>, Error> {
        if let Exportable::Object(shared) = export {
            shared.add_exporter(self);
        }
        let (now_us, identity) = (self.now_us(), export.address());
        let (known, expired) = {
            let exports = &mut self.state.lock().exports;
            let (known, expired) = match exports.again(peer, &identity, now_us) {
                Some(known) => (known, Ok(Vec::new())),
                None => {
                    // A retried call exports it to another node, too, under another key.
                    let key: Arc<str> = if exports.contains(key) { names::random_hex(16).into() } else { key.into() };
                    let lease_us = u64::try_from(export.lease().as_micros()).unwrap_or(u64::MAX);
                    let expired = exports.add(peer, identity, &key, lease_us, export.clone(), now_us);
                    (key, expired)
                }
            };
            exports.begins(&known);
            (known, expired)
        };
        self.wakers.wake();
        let expired = expired.map_err(|full| Error::new(ErrorCode::LimitExceeded, full.to_string()))?;
        drop(expired);
        Ok(known)
    }

    /// A call with an object, or of it, has ended.
    pub fn idle(self: &Arc<Self>, key: &str) {
        let now_us = self.now_us();
        let (until_us, removed) = self.state.lock().exports.ends(key, now_us);
        if removed.is_some() {
            drop(removed);
            self.wakers.wake();
        }
        if let Some(until_us) = until_us {
            self.sweep_in(until_us.saturating_sub(now_us));
        }
    }

    /// Removes an export of only one call.
    pub fn remove(&self, key: &str, even_if_claimed: bool) {
        self.change(|state| {
            let keeps = !even_if_claimed && state.exports.is_claimed(key);
            if keeps { None } else { state.exports.remove(key) }
        });
    }

    /// The owner disposes of an object, for all of its holders.
    pub fn dispose(&self, export: &Exportable) {
        self.change(|state| state.exports.dispose(&export.address()));
    }

    /// A node has left: its imports and its exports are gone.
    pub fn left(&self, number: u32) {
        self.change(|state| {
            state.imports.left(number);
            state.exports.left(number)
        });
    }

    // Inbound references

    /// Resolves a decoded reference. The same reference gives the same handle, as long as a handle
    /// is alive.
    pub fn take(self: &Arc<Self>, reference: WireReference) -> Result<Target, Error> {
        if reference.kind == "back" {
            let state = self.state.lock();
            let found = state.exports.returned(&reference.key, None).map(|export| Target::Own(export.clone()));
            drop(state);
            let gone = || Error::new(ErrorCode::RemoteGone, "it came back to its owner, who has let it go");
            return found.ok_or_else(gone);
        }
        let lost = || Error::new(ErrorCode::LinkLost, "the link that it came over is lost");
        let own = self.number().ok_or_else(lost)?;
        let handle = Arc::new(reference.into_handle(Arc::downgrade(self), own)?);
        // It may be the last reference, which goes under no lock.
        let known;
        let added = {
            let imports = &mut self.state.lock().imports;
            known = imports.get(&handle.key).and_then(Weak::upgrade);
            let is_known = known.is_some() && imports.again(&handle.key);
            (!is_known).then(|| imports.add(&handle.key, handle.node, handle.identity(), Arc::downgrade(&handle)))
        };
        match (known, added) {
            (Some(known), None) => return Ok(Target::Import(known)),
            (_, Some(Err(full))) => return Err(Error::new(ErrorCode::LimitExceeded, full.to_string())),
            (_, _) => {}
        }
        self.notify_owners();
        self.wakers.wake();
        Ok(Target::Import(handle))
    }

    /// True if this handle is the current one of its key.
    pub fn holds(&self, handle: &ImportHandle) -> bool {
        self.state.lock().imports.holds(&handle.key, handle.identity())
    }

    /// Releases the last handle here, and notifies the owner.
    pub fn release(&self, handle: &ImportHandle) {
        if self.state.lock().imports.release(&handle.key, handle.identity()).is_some() {
            self.notify_owners();
            self.wakers.wake();
        }
    }

    /// Its owner is not there any more, or has released it.
    pub fn lost(&self, handle: &ImportHandle) {
        self.state.lock().imports.lost(&handle.key, handle.identity());
    }

    fn notify_owners(&self) {
        let updates = self.state.lock().imports.updates();
        for (node, ImportUpdates { claims, releases }) in updates {
            if !claims.is_empty() {
                self.send_update(node, "claim", Flags::NORMAL, &claims.iter().map(|key| &**key).collect::<Vec<&str>>());
            }
            if !releases.is_empty() {
                let released = releases.iter().flat_map(|(key, count)| [Value::from(&**key), Value::from(*count)]);
                // Low priority: the release follows all references on their way back.
                self.send_update(node, "release", Flags::NORMAL.in_lane(LOW), &released.collect::<Vec<_>>());
            }
        }
    }

    /// Sends an update to an owner. The lease ends an export whose owner cannot be reached.
    fn send_update(&self, node: u32, what: &str, lane: Flags, value: &impl serde::Serialize) {
        let Some(core) = self.core.upgrade() else { return };
        let Ok(mut blob) = values::write(what, value) else { return };
        let subject = format!("$node.{node}.{what}");
        let head = CallHead { deadline_ms: UPDATE_TIMEOUT_MS, subject: &subject, ..CallHead::default() };
        let sent: Result<CallKey, _> = core.link.call(&head, lane, blob.sending(), Arc::new(IgnoreReply));
        drop(sent);
        core.link.flush();
    }

    // Leases

    fn sweep_in(self: &Arc<Self>, wait_us: u64) {
        let Some(core) = self.core.upgrade() else { return };
        let at = clock::now() + Duration::from_micros(wait_us);
        let before = {
            let mut state = self.state.lock();
            if state.watch.as_ref().is_some_and(|(known, _)| *known <= at) {
                return;
            }
            let sweep = Arc::new(ExportSweep(Arc::downgrade(self))) as Arc<dyn Fire>;
            state.watch.replace((at, core.runner.watch(at, sweep)))
        };
        drop(before);
    }

    fn sweep(self: &Arc<Self>) {
        let now_us = self.now_us();
        let (expired, next_us, watch) = {
            let mut state = self.state.lock();
            let watch = state.watch.take();
            let (expired, next_us) = state.exports.expire(now_us);
            (expired, next_us, watch)
        };
        drop((expired, watch));
        self.wakers.wake();
        if let Some(next_us) = next_us {
            self.sweep_in(next_us.saturating_sub(now_us));
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            number: None,
            exports: Exports::new(OBJECTS_MAX, CLAIM_US),
            imports: Imports::new(OBJECTS_MAX),
            subscription: None,
            watch: None,
        }
    }
}

struct ExportSweep(Weak<Objects>);

impl Fire for ExportSweep {
    fn fire(self: Arc<Self>) {
        if let Some(objects) = self.0.upgrade() {
            objects.sweep();
        }
    }
}

/// Ignores the outcome of a call.
struct IgnoreReply;

impl ReplyWaiter for IgnoreReply {
    fn replied(&self, _: Message) {}

    fn failed(&self, _: Failure) {}

    fn over(&self) {}
}
