//! An actor as a future that takes its messages from an inbox.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Waker};

use futures_core::Stream;

use crate::actor::ActorRef;
use crate::cell::ActorCell;
use crate::cell::driver::{Activation, Driver};
use crate::cell::envelope::Meta;
use crate::current;
use crate::engine::EngineHandle;
use crate::error::{DeadReason, Fault};
use crate::short_mutex::ShortMutex;
use crate::typed::caught;

/// Where an actor that is a future takes its messages from.
///
/// A message counts as handled when the next one is asked for, or the future ends.
pub struct Inbox<M> {
    mailbox: Arc<FutureMailbox<M>>,
    cell: Arc<ActorCell<M>>,
}

struct FutureMailbox<M> {
    /// The future waits for a message. Written under the lock.
    wants: AtomicBool,
    passing: ShortMutex<InFlightMessage<M>>,
}

struct InFlightMessage<M> {
    message: Option<M>,
    closed: bool,
}

impl<M: Send + 'static> Inbox<M> {
    /// The next message, as [`recv`](Inbox::recv) gives it: for futures that are written by hand.
    pub fn poll_recv(&mut self, cx: &mut TaskContext<'_>) -> Poll<Option<M>> {
        // The future of an actor is woken as a whole, by its next message too.
        let _ = cx;
        let mut passing = self.mailbox.passing.lock();
        if let Some(message) = passing.message.take() {
            self.mailbox.wants.store(false, Ordering::Release);
            current::set_handling(true);
            return Poll::Ready(Some(message));
        }
        if passing.closed {
            return Poll::Ready(None);
        }
        self.mailbox.wants.store(true, Ordering::Release);
        current::set_handling(false);
        Poll::Pending
    }

    /// The next message; none when the actor is stopping and everything accepted has been handed
    /// out.
    ///
    /// # Cancel safety
    /// Dropping the future loses no message.
    pub fn recv(&mut self) -> impl Future<Output = Option<M>> + Send + '_ {
        std::future::poll_fn(move |cx| self.poll_recv(cx))
    }

    /// This actor.
    pub fn me(&self) -> ActorRef<M> {
        ActorRef { cell: Arc::clone(&self.cell) }
    }

    /// The engine, for spawning, publishing and timers.
    pub fn engine(&self) -> EngineHandle {
        EngineHandle { core: Arc::clone(&self.cell.core) }
    }
}

/// The messages as a stream, for the combinators of `futures`. It ends as [`Inbox::recv`] does.
///
/// Inside of a combinator that polls by a waker of its own, such as `buffer_unordered`, a message
/// wakes the actor's whole future.
impl<M: Send + 'static> Stream for Inbox<M> {
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<M>> {
        self.poll_recv(cx)
    }
}

type Boxed = Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;
type MakeOnce<M> = Box<dyn FnOnce(Inbox<M>) -> Boxed + Send>;

/// Makes the future of an actor.
enum FutureFactory<M> {
    /// For each restart.
    Often(Box<dyn FnMut(Inbox<M>) -> Boxed + Send>),
    /// Empty once it has.
    Once(Option<MakeOnce<M>>),
}

/// Drives an actor that is a future.
pub(crate) struct Task<M> {
    make: FutureFactory<M>,
    future: Option<Boxed>,
    mailbox: Arc<FutureMailbox<M>>,
    waker: Option<Waker>,
    /// Metadata of the message that is being handled.
    present: Option<Option<Box<Meta<M>>>>,
    handling: bool,
}

impl<M: Send + 'static> Task<M> {
    pub fn new<F, Fut>(mut make: F) -> Self
    where
        F: FnMut(Inbox<M>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        Self::with(FutureFactory::Often(Box::new(move |inbox| Box::pin(make(inbox)))))
    }

    pub fn once<F, Fut>(make: F) -> Self
    where
        F: FnOnce(Inbox<M>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Fault>> + Send + 'static,
    {
        Self::with(FutureFactory::Once(Some(Box::new(move |inbox| Box::pin(make(inbox))))))
    }

    fn with(make: FutureFactory<M>) -> Self {
        Self { make, future: None, mailbox: new_mailbox(), waker: None, present: None, handling: false }
    }

    fn poll(&mut self, turn: &mut Activation<'_, M>) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        let waker = self.waker.get_or_insert_with(|| Waker::from(Arc::clone(turn.cell)));
        current::set_handling(self.handling);
        let polled = caught(|| Ok(future.as_mut().poll(&mut TaskContext::from_waker(waker))));
        self.handling = current::is_handling();
        let result = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => result,
            Err(panic) => Err(panic),
        };
        self.future = None;
        let error = result.as_ref().err().map(ToString::to_string);
        match (result, self.present.take()) {
            (Ok(()), Some(meta)) => turn.handled(meta),
            (Ok(()), None) => {}
            (Err(fault), Some(meta)) => {
                turn.failed(None, meta, fault);
            }
            (Err(_), None) => {}
        }
        match error {
            None => turn.finished(Ok(())),
            Some(error) => {
                // There is no state left to resume with.
                if turn.after_failure(error.clone()) {
                    turn.finished(Err(error));
                }
            }
        }
        Poll::Ready(())
    }
}

impl<M: Send + 'static> Driver<M> for Task<M> {
    fn wants_start(&self) -> bool {
        true
    }

    fn started(&mut self, turn: &mut Activation<'_, M>) -> Result<(), Fault> {
        self.mailbox = new_mailbox();
        self.handling = false;
        let inbox = Inbox { mailbox: Arc::clone(&self.mailbox), cell: Arc::clone(turn.cell) };
        let make = &mut self.make;
        self.future = caught(|| {
            Ok(match make {
                FutureFactory::Often(make) => Some(make(inbox)),
                FutureFactory::Once(make) => make.take().map(|make| make(inbox)),
            })
        })?;
        Ok(())
    }

    fn turn(&mut self, turn: &mut Activation<'_, M>) {
        while self.future.is_none() {
            // The future has ended: nothing is left to do but to close.
            match turn.take() {
                Some(envelope) => turn.cell.bury_taken(envelope, DeadReason::Stopped, None),
                None => return,
            }
        }
        loop {
            if self.poll(turn).is_ready() {
                return;
            }
            if !self.mailbox.wants.load(Ordering::Acquire) {
                return turn.awaiting();
            }
            if let Some(meta) = self.present.take() {
                turn.handled(meta);
            }
            let Some(envelope) = turn.take() else { return };
            let (message, meta) = envelope.split();
            match message {
                Some(message) => {
                    self.present = Some(meta);
                    self.mailbox.passing.lock().message = Some(message);
                }
                // A future has no behaviours to change.
                None => turn.handled(meta),
            }
        }
    }

    fn finish(&mut self, turn: &mut Activation<'_, M>) -> bool {
        self.mailbox.passing.lock().closed = true;
        self.poll(turn).is_ready()
    }

    fn can_restart(&self) -> bool {
        matches!(self.make, FutureFactory::Often(_))
    }

    fn restart(&mut self) -> Result<(), Fault> {
        self.future = None;
        Ok(())
    }
}

fn new_mailbox<M>() -> Arc<FutureMailbox<M>> {
    let passing = ShortMutex::new(InFlightMessage { message: None, closed: false });
    Arc::new(FutureMailbox { wants: AtomicBool::new(false), passing })
}
