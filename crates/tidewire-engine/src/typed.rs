//! Drivers for actors written as types and as functions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::actor::signal::Signal;
use crate::actor::{Actor, Behaviour, BehaviourChange, Context};
use crate::cell::driver::{Activation, Behaviours, Driver};
use crate::cell::envelope::{Change, Envelope};
use crate::error::Fault;

/// Drives an [`Actor`].
pub(crate) struct Typed<A: Actor> {
    actor: Option<A>,
    factory: Option<Box<Factory<A>>>,
    behaviours: Behaviours<Behaviour<A::Message>>,
    starts: bool,
}

/// Makes the state; boxed twice so that actors without one pay a word for it, not two.
type Factory<A> = Box<dyn FnMut() -> A + Send>;

impl<A: Actor> Typed<A> {
    pub fn new(actor: A) -> Self {
        Self { actor: Some(actor), factory: None, behaviours: Behaviours::new(), starts: true }
    }

    /// The state is made by `factory`, on the actor's dispatcher, at the start and at every
    /// restart.
    pub fn with_factory(factory: impl FnMut() -> A + Send + 'static) -> Self {
        Self { actor: None, factory: Some(Box::new(Box::new(factory))), behaviours: Behaviours::new(), starts: true }
    }

    /// Without a start hook: nothing runs before the first message.
    pub fn without_start(mut self) -> Self {
        self.starts = false;
        self
    }

    fn remake(&mut self) -> Result<(), Fault> {
        if let Some(factory) = &mut self.factory {
            self.actor = Some(caught(|| Ok(factory()))?);
        }
        Ok(())
    }

    fn apply(&mut self, ctx: &mut Context<'_, A::Message>) {
        for change in ctx.changes.drain(..) {
            match change {
                BehaviourChange::Become(behaviour, stack) => drop(self.behaviours.push(behaviour, stack)),
                BehaviourChange::Unbecome => drop(self.behaviours.pop()),
            }
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Become { handler, stack } => {
                if let Ok(behaviour) = handler.downcast::<Behaviour<A::Message>>() {
                    self.behaviours.push(*behaviour, stack);
                }
            }
            Change::Unbecome => drop(self.behaviours.pop()),
        }
    }

    /// Handles one message; answers whether to go on.
    #[inline]
    fn handle(
        &mut self,
        envelope: Envelope<A::Message>,
        turn: &mut Activation<'_, A::Message>,
        ctx: &mut Context<'_, A::Message>,
    ) -> bool {
        let (message, mut meta) = envelope.split();
        let Some(message) = message else {
            if let Some(change) = meta.as_mut().and_then(|meta| meta.change.take()) {
                self.change(change);
            }
            turn.handled(meta);
            return true;
        };
        let message_copy = A::copy(&message);
        ctx.meta = meta;
        let result = match (self.behaviours.top(), &mut self.actor) {
            (Some(behaviour), _) => caught(|| behaviour(message, ctx)),
            (None, Some(actor)) => caught(|| actor.receive(message, ctx)),
            (None, None) => Err("the actor has no state: its factory failed".into()),
        };
        if !ctx.changes.is_empty() {
            self.apply(ctx);
        }
        let meta = ctx.meta.take();
        match result {
            Ok(()) => {
                turn.handled(meta);
                true
            }
            Err(fault) => turn.failed(message_copy, meta, fault),
        }
    }
}

impl<A: Actor> Driver<A::Message> for Typed<A> {
    fn wants_start(&self) -> bool {
        self.starts
    }

    fn started(&mut self, turn: &mut Activation<'_, A::Message>) -> Result<(), Fault> {
        if self.actor.is_none() {
            self.remake()?;
        }
        let Some(actor) = &mut self.actor else { return Ok(()) };
        let mut ctx = Context::new(turn.cell);
        let result = caught(|| actor.started(&mut ctx));
        self.apply(&mut ctx);
        result
    }

    fn turn(&mut self, turn: &mut Activation<'_, A::Message>) {
        let cell = turn.cell;
        let mut ctx = Context::new(cell);
        while let Some(envelope) = turn.take() {
            if !self.handle(envelope, turn, &mut ctx) {
                return;
            }
        }
    }

    fn signal(&mut self, signal: Signal, turn: &mut Activation<'_, A::Message>) -> Result<(), Fault> {
        let Some(actor) = &mut self.actor else { return Ok(()) };
        let mut ctx = Context::new(turn.cell);
        let result = caught(|| actor.signal(signal, &mut ctx));
        self.apply(&mut ctx);
        result
    }

    fn stopped(&mut self) -> Result<(), Fault> {
        let Some(actor) = &mut self.actor else { return Ok(()) };
        caught(|| {
            actor.stopped();
            Ok(())
        })
    }

    fn can_restart(&self) -> bool {
        self.factory.is_some()
    }

    fn restart(&mut self) -> Result<(), Fault> {
        self.behaviours.clear();
        // The old state goes first, so that what it holds is free for the new one.
        let old = self.actor.take();
        caught(|| {
            drop(old);
            Ok(())
        })?;
        self.remake()
    }
}

/// An actor made of one function.
pub(crate) struct Function<F> {
    pub function: F,
}

/// Gives [`Function`] its message type.
pub(crate) struct FunctionOf<M, F> {
    inner: Function<F>,
    message: std::marker::PhantomData<fn(M)>,
}

impl<M, F> FunctionOf<M, F> {
    pub fn new(function: F) -> Self {
        Self { inner: Function { function }, message: std::marker::PhantomData }
    }
}

impl<M, F> Actor for FunctionOf<M, F>
where
    M: Send + 'static,
    F: FnMut(M, &mut Context<'_, M>) -> Result<(), Fault> + Send + 'static,
{
    type Message = M;

    #[inline]
    fn receive(&mut self, message: M, ctx: &mut Context<'_, M>) -> Result<(), Fault> {
        (self.inner.function)(message, ctx)
    }
}

/// Runs user code; a panic becomes a fault.
#[inline]
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // A handler that panicked may leave its state half changed. The supervision policy decides if
    // the actor goes on with that state, as after a handler that returned an error.
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "of unknown type".to_owned());
            Err(format!("panic: {text}").into())
        }
    }
}
