//! A call that is ready to be sent, with its retries and its exports.

use std::borrow::Cow;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidewire_core::rpc::balancer::CallProfile;
use tidewire_core::rpc::retry::Retry;
use tidewire_engine::raw::{Fire, Watch, clock};
use tidewire_link::{CallKey, ReplyWaiter};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::grammar::instance_subject;
use tidewire_proto::wire::{CHOICE_WITH_CAPACITY, CallHead, Fields, Flags};

use crate::calls::call_options::{CallOptions, fields};
use crate::calls::call_record::CallRecord;
use crate::calls::priority::Choice;
use crate::calls::reply_slot::{CallOutcome, Payload};
use crate::discovery::directory::{ChosenInstance, no_instance};
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::objects::{ExportScope, Exportable, ImportHandle, OutboundReference};
use crate::values::{self, Blob};

/// Where a call goes.
pub(crate) enum CallTarget {
    /// The hub chooses among those who subscribed.
    Subject(String),
    /// The hub chooses an instance of the service of this subject.
    AnyInstance(String),
    /// This node chooses an instance: of this id, or by the policy.
    Service { service: Arc<str>, method: String, instance: Option<String> },
    /// A method of an imported object.
    Object(Arc<ImportHandle>, String),
}

/// The node of a call.
enum NodeHandle {
    /// The call keeps it alive.
    Kept(Arc<Core>),
    /// The node may end: imports and calls of them do not keep it alive.
    Seen(Weak<Core>),
}

/// A call that is ready to be sent.
pub(crate) struct PreparedCall {
    core: NodeHandle,
    pub title: String,
    pub deadline: Option<Instant>,
    pub idempotent: bool,
    pub blob: Blob,
    pub fields: Vec<u8>,
    aim: CallTarget,
    flags: Flags,
    choice: Choice,
    cost: f64,
    chosen: Option<ChosenInstance>,
    /// Its attempts, once one has failed.
    retry: Option<Box<Retry<Arc<str>>>>,
    /// The first refusal for lack of capacity.
    overload: Option<CallOutcome>,
    /// The number of the link that names its exports.
    export_link: Option<u32>,
    exports: ExportScope,
    record: CallRecord,
}

impl PreparedCall {
    pub fn new(
        core: &Arc<Core>,
        aim: CallTarget,
        title: String,
        blob: Blob,
        options: &CallOptions,
        deadline: Option<Instant>,
        record: CallRecord,
    ) -> Result<Self, Error> {
        core.check()?;
        if let Some(problem) = &options.problem {
            return Err(problem.clone());
        }
        let carried = record.span.carried(&options.headers);
        let fields = fields(&title, carried.as_deref().unwrap_or(&options.headers))?;
        // A stream is read once, and a returned reference is for its owner alone.
        let is_bound = blob.offered.iter().any(|offered| offered.what.is_bound());
        let idempotent = options.idempotent && !is_bound;
        let export_link = if blob.offered.is_empty() { None } else { core.objects.number() };
        let owner = match &aim {
            CallTarget::Object(..) => NodeHandle::Seen(Arc::downgrade(core)),
            CallTarget::Subject(_) | CallTarget::AnyInstance(_) | CallTarget::Service { .. } => {
                NodeHandle::Kept(Arc::clone(core))
            }
        };
        Ok(Self {
            core: owner,
            title,
            deadline,
            idempotent,
            blob,
            fields,
            aim,
            flags: options.priority.flags().with_again(idempotent),
            choice: options.choice,
            cost: options.cost,
            chosen: None,
            retry: None,
            overload: None,
            export_link,
            exports: ExportScope::default(),
            record,
        })
    }

    /// The node of the call.
    ///
    /// # Errors
    /// The link is lost, as the node has ended.
    pub fn core(&self) -> Result<Arc<Core>, Error> {
        let core = match &self.core {
            NodeHandle::Kept(core) => Some(Arc::clone(core)),
            NodeHandle::Seen(core) => core.upgrade(),
        };
        core.ok_or_else(|| Error::lost(&self.title))
    }

    /// Has the node watch the deadline, if there is one.
    pub fn watch_deadline(&self, fire: Arc<dyn Fire>) -> Option<Watch> {
        Some(self.core().ok()?.runner.watch(self.deadline?, fire))
    }

    /// Chooses an instance; true if there is one. If not, an instance is to be looked up first.
    pub fn choose_instance(&mut self) -> bool {
        self.release_instance(None);
        let CallTarget::Service { service, instance, .. } = &self.aim else { return true };
        let Ok(core) = self.core() else { return true };
        let tried = self.retry.as_ref().map_or(&[][..], |retry| retry.tried());
        let (policy, profile, is_overloaded) = (self.choice.policy(), self.profile(&core), self.is_overloaded());
        self.chosen = core.directory.choose(service, instance.as_deref(), policy, &profile, tried, is_overloaded);
        self.chosen.is_some()
    }

    /// The service whose instance is to be found, and the id of the instance if the call has one.
    pub fn lookup_target(&self) -> Option<(Arc<str>, Option<String>)> {
        let CallTarget::Service { service, instance, .. } = &self.aim else { return None };
        Some((Arc::clone(service), instance.clone()))
    }

    /// Sends it. One that may be sent again keeps its arguments.
    pub fn send(&mut self, credit: u32, waiting: Arc<dyn ReplyWaiter>) -> Result<CallKey, Error> {
        let core = self.core()?;
        let (subject, peer) = self.route()?;
        let (subject, peer, mut exports) = (subject.into_owned(), peer.to_owned(), ExportScope::default());
        let keeps = self.idempotent || matches!(self.aim, CallTarget::AnyInstance(_) | CallTarget::Service { .. });
        let mut again = keeps.then(|| self.blob.clone());
        let choice = if self.is_overloaded() { CHOICE_WITH_CAPACITY } else { self.choice.number() };
        let blob = again.as_mut().unwrap_or(&mut self.blob);
        if !blob.offered.is_empty() {
            if self.export_link != core.objects.number() {
                return Err(Error::lost(&self.title));
            }
            exports = core.objects.give(&peer, blob)?;
        }
        let left = self.deadline.map(|at| at.saturating_duration_since(clock::now()));
        let deadline_ms =
            left.map_or(0, |left| u32::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX).max(1));
        let head = CallHead {
            deadline_ms,
            choice,
            credit,
            subject: &subject,
            fields: Fields::parse("CALL", &self.fields).unwrap_or_default(),
            ..CallHead::default()
        };
        let payload = blob.sending();
        let link = &core.link;
        let sent = link.call(&head, self.flags, payload, waiting);
        let key = sent.map_err(|refused| {
            exports.release(true);
            Error::refused(&self.title, &refused)
        })?;
        link.flush();
        self.exports = exports;
        if let Some(mut chosen) = self.chosen.take() {
            chosen.began(&core.directory, self.choice.policy(), &self.profile(&core));
            self.chosen = Some(chosen);
        }
        Ok(key)
    }

    fn profile(&self, core: &Core) -> CallProfile<'_> {
        let CallTarget::Service { method, .. } = &self.aim else { return CallProfile::default() };
        core.profile(method, self.cost, self.idempotent)
    }

    /// Its subject, and the node that it goes to, where that is known.
    fn route(&self) -> Result<(Cow<'_, str>, &str), Error> {
        match (&self.aim, &self.chosen) {
            (CallTarget::Subject(subject) | CallTarget::AnyInstance(subject), _) => Ok((subject.into(), "")),
            (CallTarget::Service { service, method, .. }, Some(chosen)) => {
                Ok((instance_subject(service, &chosen.instance, method).into(), &chosen.node))
            }
            (CallTarget::Service { service, .. }, None) => Err(no_instance(service)),
            (CallTarget::Object(handle, method), _) => {
                handle.check()?;
                Ok((handle.subject(method).into(), &handle.owner))
            }
        }
    }

    /// Chooses another instance if the chosen one refuses the call; true if there is one, or the
    /// hub is to choose.
    pub fn choose_another(&mut self, number: u16) -> bool {
        let is_overload = number == ErrorCode::Overloaded.number();
        let is_refusal = [ErrorCode::NoResponders, ErrorCode::NodeStopped].iter().any(|code| code.number() == number);
        let Ok(core) = self.core() else { return false };
        if is_overload && matches!(self.aim, CallTarget::AnyInstance(_)) {
            return self.retry(&core).overloaded(None);
        }
        let Some(chosen) = self.chosen.as_ref().filter(|_| is_refusal || is_overload) else { return false };
        let at = Arc::clone(&chosen.instance);
        if is_overload {
            self.retry(&core).overloaded(at);
        } else {
            self.retry(&core).refused(at);
        }
        // References among the arguments stay at this hub.
        if self.exports.is_bound() || (is_overload && !self.blob.offered.is_empty()) {
            return false;
        }
        self.exports.release(true);
        self.choose_instance()
    }

    fn is_overloaded(&self) -> bool {
        self.retry.as_ref().is_some_and(|retry| retry.is_overloaded())
    }

    /// Keeps the first refusal for lack of capacity, while other instances are tried.
    pub fn keep_refusal(&mut self, outcome: CallOutcome) {
        if matches!(&outcome, CallOutcome::Failed(number, _) if *number == ErrorCode::Overloaded.number()) {
            self.overload.get_or_insert(outcome);
        }
    }

    /// The outcome of a call that no instance has taken: the first refusal for lack of capacity
    /// says why.
    pub fn cause(&mut self, outcome: CallOutcome) -> CallOutcome {
        let refusals = [ErrorCode::Overloaded, ErrorCode::NoResponders, ErrorCode::NodeStopped];
        let CallOutcome::Failed(number, Some(_)) = &outcome else { return outcome };
        let is_refusal = refusals.iter().any(|code| code.number() == *number);
        self.overload.take().filter(|_| is_refusal).unwrap_or(outcome)
    }

    /// True if the call may be retried after a lost link. Exports are named by the link of their
    /// node, and lost with it.
    pub fn can_retry(&self) -> bool {
        let is_current = |core: &Core| self.export_link.is_none() || self.export_link == core.objects.number();
        self.idempotent && self.core().is_ok_and(|core| is_current(&core))
    }

    /// Releases the exports of the lost attempt; true if the call is retried.
    pub fn lost(&mut self, core: &Core) -> bool {
        self.exports.release(true);
        let at = self.chosen.as_ref().map(|chosen| Arc::clone(&chosen.instance));
        self.release_instance(None);
        self.retry(core).lost(at, core.runner.us_at(clock::now()))
    }

    /// True if the call was sent and its link lost since.
    pub fn was_lost(&self) -> bool {
        self.retry.as_ref().is_some_and(|retry| retry.was_lost())
    }

    /// The pause before a retry without an instance; None: no retry.
    pub fn retry_without_instance(&mut self, core: &Core) -> Option<Duration> {
        self.release_instance(None);
        self.retry(core).nobody(core.runner.us_at(clock::now())).map(Duration::from_micros)
    }

    fn retry(&mut self, core: &Core) -> &mut Retry<Arc<str>> {
        let until_us = self.deadline.map(|at| core.runner.us_at(at));
        self.retry.get_or_insert_with(|| Box::new(Retry::new(until_us, core.resends, names::dice())))
    }

    /// Ends it, on the other side too if it was sent.
    pub fn cancel(&mut self, key: Option<CallKey>) {
        if let (Some(key), Ok(core)) = (key, self.core()) {
            core.link.cancel(key);
        }
        self.give_up();
    }

    /// The call has ended. A second time does nothing.
    pub fn end(&mut self, outcome: &CallOutcome) {
        let failed = match outcome {
            CallOutcome::Failed(number, _) => Some(*number),
            CallOutcome::Late => Some(ErrorCode::AskTimeout.number()),
            CallOutcome::Replied(_) | CallOutcome::Over => None,
        };
        let is_one_of = |codes: &[ErrorCode]| codes.iter().any(|code| failed == Some(code.number()));
        if is_one_of(&[ErrorCode::NoResponders, ErrorCode::LinkLost]) {
            self.exports.release(true);
        }
        // Other exports stay until the reply is read, as it may return them.
        self.exports.close_streams();
        self.release_instance(Some(failed.is_some()));
    }

    /// Records the end of the call for spans and metrics, with its error if it has failed.
    pub fn record_end(&mut self, error: Option<&Error>) {
        let core = self.core().ok();
        self.record.end(core.as_deref(), error);
    }

    /// The caller waits no longer; the result of the callee is unknown.
    pub fn give_up(&mut self) {
        let core = self.core().ok();
        self.record.cancel(core.as_deref());
        self.exports.release(false);
        // The streams of an unsent call have no reader.
        for offered in std::mem::take(&mut self.blob.offered) {
            if let OutboundReference::Own(Exportable::Items(slot)) = &*offered.what {
                slot.close();
            }
        }
        self.release_instance(None);
    }

    /// Releases the chosen instance: its call has failed or not, or has no outcome.
    fn release_instance(&mut self, failed: Option<bool>) {
        if let (Some(mut chosen), Ok(core)) = (self.chosen.take(), self.core()) {
            chosen.ended(&core.directory, failed);
        }
    }

    /// Ready when all streams among its arguments are dropped.
    pub fn poll_closed(&self, context: &Context<'_>) -> Poll<()> {
        self.exports.poll_closed(context)
    }

    /// The error of a failed call, if it was sent; without a payload its link was lost. An object
    /// whose owner has left is gone.
    pub fn error(this: Option<&Self>, number: u16, payload: Option<Payload>) -> Error {
        let title = this.map_or("call", |prepared| &prepared.title);
        match (payload, this.map(|prepared| &prepared.aim)) {
            (None, _) => Error::lost(title),
            (Some(_), Some(CallTarget::Object(handle, _))) if number == ErrorCode::NoResponders.number() => {
                handle.lost();
                handle.gone_error("its owner has left, or lost its link")
            }
            (Some(payload), _) => values::read_error(title, number, payload.bytes()),
        }
    }
}
