//! A call that is ready to be sent, and what is noted when it has ended.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tidewire_link::{CallKey, Waiting};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::wire::{CallHead, Fields, Flags};

use crate::client::{CallOptions, Choice, fields};
use crate::core::Core;
use crate::directory::{Chosen, nobody};
use crate::error::Error;
use crate::objects::{Giving, Holding, Offer, Thing};
use crate::pending::Pending;
use crate::place::Outcome;
use crate::values::Blob;

/// Where a call goes.
pub(crate) enum Aim {
    /// The hub chooses among those who subscribed.
    Subject(String),
    /// This node chooses an instance: of this id, or by the policy.
    Service { service: Arc<str>, method: String, instance: Option<String> },
    /// A method of what another node has given.
    Object(Arc<Holding>, String),
}

/// A call that is ready to be sent.
pub(crate) struct Shot {
    pub core: Arc<Core>,
    pub title: String,
    pub deadline: Option<Instant>,
    pub idempotent: bool,
    pub blob: Blob,
    pub fields: Vec<u8>,
    aim: Aim,
    flags: Flags,
    choice: Choice,
    chosen: Option<Chosen>,
    /// Instances that have refused it.
    tried: Vec<Arc<str>>,
    giving: Giving,
}

impl Shot {
    pub fn new(
        core: &Arc<Core>,
        aim: Aim,
        title: String,
        blob: Blob,
        options: &CallOptions,
        deadline: Option<Instant>,
    ) -> Result<Self, Error> {
        core.check()?;
        if let Some(problem) = &options.problem {
            return Err(problem.clone());
        }
        let fields = fields(&title, &options.headers)?;
        // What a call gives is given once: it can't be made again.
        let idempotent = options.idempotent && blob.offered.is_empty();
        Ok(Self {
            core: Arc::clone(core),
            title,
            deadline,
            idempotent,
            blob,
            fields,
            aim,
            flags: options.priority.flags().with_again(idempotent),
            choice: options.choice,
            chosen: None,
            tried: Vec::new(),
            giving: Giving::default(),
        })
    }

    /// Whether it is known where it goes. If not, [`find`](Self::find) it first.
    pub fn is_found(&mut self) -> bool {
        let Aim::Service { service, instance, .. } = &self.aim else { return true };
        self.chosen = self.core.directory.choose(service, instance.as_deref(), self.choice, &self.tried);
        self.chosen.is_some()
    }

    /// Learns from the hub where it may go.
    pub fn find(&self) -> Pending<()> {
        let core = Arc::clone(&self.core);
        let Aim::Service { service, instance, .. } = &self.aim else { return Pending::new(std::future::ready(Ok(()))) };
        let (service, instance) = (Arc::clone(service), instance.clone());
        Pending::new(async move { core.directory.found(&core, &service, instance.as_deref()).await })
    }

    /// Sends it. One that may be sent again keeps its arguments.
    pub fn send(&mut self, credit: u32, waiting: Arc<dyn Waiting>) -> Result<CallKey, Error> {
        let (subject, peer) = self.way()?;
        let (subject, mut giving) = (subject.into_owned(), Giving::default());
        if !self.blob.offered.is_empty() {
            let peer = peer.to_owned();
            giving = self.core.objects.give(&peer, &mut self.blob)?;
        }
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let deadline_ms =
            left.map_or(0, |left| u32::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX).max(1));
        let head = CallHead {
            deadline_ms,
            choice: self.choice.number(),
            credit,
            subject: &subject,
            fields: Fields::parse("CALL", &self.fields).unwrap_or_default(),
            ..CallHead::default()
        };
        let keeps = self.idempotent || matches!(self.aim, Aim::Service { .. });
        let mut again = keeps.then(|| self.blob.clone());
        let payload = again.as_mut().unwrap_or(&mut self.blob).sending();
        let link = &self.core.link;
        let sent = link.call(&head, self.flags, payload, waiting);
        let key = sent.map_err(|refused| {
            giving.ended(true);
            Error::refused(&self.title, &refused)
        })?;
        link.flush();
        self.giving = giving;
        if let Some(chosen) = &mut self.chosen {
            chosen.began(&self.core.directory);
        }
        Ok(key)
    }

    /// Its subject, and the node that it goes to, where that is known.
    fn way(&self) -> Result<(Cow<'_, str>, &str), Error> {
        match (&self.aim, &self.chosen) {
            (Aim::Subject(subject), _) => Ok((subject.into(), "")),
            (Aim::Service { service, method, .. }, Some(chosen)) => {
                Ok((format!("svc.{service}.{}.{method}", chosen.instance).into(), &chosen.node))
            }
            (Aim::Service { service, .. }, None) => Err(nobody(service)),
            (Aim::Object(holding, method), _) => {
                holding.check()?;
                Ok((holding.subject(method).into(), &holding.owner))
            }
        }
    }

    /// Whether there is another instance to try, as the one that was chosen does not take it.
    pub fn is_found_elsewhere(&mut self, number: u16) -> bool {
        let is_refusal = [ErrorCode::NoResponders, ErrorCode::NodeStopped].iter().any(|code| code.number() == number);
        let Some(chosen) = self.chosen.take_if(|_| is_refusal) else { return false };
        self.tried.push(Arc::clone(&chosen.instance));
        // What it has given can't be given to another one.
        let is_bound = !self.giving.is_empty();
        !is_bound && self.is_found()
    }

    /// The call has ended. A second time does nothing.
    pub fn ended(&mut self, outcome: &Outcome) {
        let failed = match outcome {
            Outcome::Failed(number, _) => Some(*number),
            Outcome::Late => Some(ErrorCode::AskTimeout.number()),
            Outcome::Replied(_) | Outcome::Over => None,
        };
        let is_one_of = |codes: &[ErrorCode]| codes.iter().any(|code| failed == Some(code.number()));
        self.giving.ended(is_one_of(&[ErrorCode::NoResponders, ErrorCode::LinkLost]));
        if let Some(mut chosen) = self.chosen.take() {
            chosen.ended(&self.core.directory, Some(failed.is_some()));
        }
    }

    /// Its caller waits no longer, which says nothing of its callee.
    pub fn given_up(&mut self) {
        self.giving.ended(false);
        // What was never sent is not read either.
        for offered in std::mem::take(&mut self.blob.offered) {
            if let Offer::Own(Thing::Items(slot)) = &*offered.what {
                slot.close();
            }
        }
        if let Some(mut chosen) = self.chosen.take() {
            chosen.ended(&self.core.directory, None);
        }
    }

    /// Ready when all streams that it has given were dropped.
    pub fn poll_closed(&self, context: &Context<'_>) -> Poll<()> {
        self.giving.poll_closed(context)
    }

    /// What a caller is told of an error: an object whose owner is not there is gone.
    pub fn told(&self, number: u16, payload: &[u8]) -> Error {
        match &self.aim {
            Aim::Object(holding, _) if number == ErrorCode::NoResponders.number() => {
                holding.lost();
                holding.gone("its owner has left, or lost its link")
            }
            _ => Error::told(&self.title, number, payload),
        }
    }
}
