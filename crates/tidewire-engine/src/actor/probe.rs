//! Probe: an actor for tests, which stores its messages and provides a context for handlers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidewire_sync::Mutex;

use crate::actor::options::SpawnOptions;
use crate::actor::{Actor, ActorRef, Context};
use crate::dispatch::External;
use crate::engine::Engine;
use crate::error::{EngineError, Fault};

const DISPATCHER: &str = "probe";

/// Actor of a test, in an engine of its own. The probe stands in for an actor to which a handler
/// sends, and stores the messages. It also provides its [context](Probe::context), so that a test
/// calls a handler as a function. No other thread handles messages of the probe, so the state does
/// not change between the lines of the test.
///
/// The name is that of Akka's `TestProbe`.
///
/// ```
/// use tidewire_engine::{Actor, ActorRef, Context, Fault, Probe};
///
/// struct Doorman { bell: ActorRef<&'static str> }
///
/// impl Actor for Doorman {
///     type Message = u32;
///     fn receive(&mut self, guests: u32, ctx: &mut Context<'_, u32>) -> Result<(), Fault> {
///         match guests {
///             0 => ctx.stop(),
///             _ => { self.bell.tell("ding")?; }
///         }
///         Ok(())
///     }
/// }
///
/// let (bell, me) = (Probe::new()?, Probe::new()?);
/// let mut doorman = Doorman { bell: bell.me().clone() };
/// doorman.receive(2, &mut me.context())?;
/// assert_eq!(bell.told(), Some("ding"));
/// assert_eq!(bell.told(), None);
///
/// doorman.receive(0, &mut me.context())?;
/// assert!(!me.me().is_alive());
/// # Ok::<(), Fault>(())
/// ```
#[derive(derive_more::Debug)]
#[debug("Probe({:?})", self.me)]
pub struct Probe<M: Send + 'static> {
    engine: Engine,
    served: Arc<External>,
    inbox: ProbeQueue<M>,
    me: ActorRef<M>,
}

type ProbeQueue<M> = Arc<Mutex<VecDeque<M>>>;

struct Keeping<M>(ProbeQueue<M>);

impl<M: Send + 'static> Actor for Keeping<M> {
    type Message = M;

    fn receive(&mut self, message: M, _: &mut Context<'_, M>) -> Result<(), Fault> {
        self.0.lock().push_back(message);
        Ok(())
    }
}

impl<M: Send + 'static> Probe<M> {
    /// Makes a probe without messages.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new() -> Result<Self, EngineError> {
        let served = External::new(Box::new(|| {}));
        let engine = Engine::builder().threads(1).external(DISPATCHER, Arc::clone(&served)).build()?;
        let inbox = ProbeQueue::default();
        let keeping = Arc::clone(&inbox);
        let options = SpawnOptions::new().dispatcher(DISPATCHER);
        let me = match engine.spawn_with(options, move || Keeping(Arc::clone(&keeping))) {
            Ok(me) => me,
            Err(wrong) => unreachable!("an actor without a name, on a dispatcher that is there: {wrong}"),
        };
        Ok(Self { engine, served, inbox, me })
    }

    /// The actor, to be given to those who tell it something.
    pub fn me(&self) -> &ActorRef<M> {
        &self.me
    }

    /// The engine that it lives in: children, timers and subjects of the context are there.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The context of a handler whose actor is this one: [`me`](Context::me) is the probe,
    /// [`stop`](Context::stop) stops it, and a behaviour that is asked for is dropped with the
    /// context.
    pub fn context(&self) -> Context<'_, M> {
        Context::new(&self.me.cell)
    }

    /// Takes the oldest message that the test has not looked at. The test answers an ask with the
    /// `Reply` in its message.
    pub fn told(&self) -> Option<M> {
        while self.served.run_ready() > 0 {}
        self.inbox.lock().pop_front()
    }
}

impl<M: Send + 'static> Drop for Probe<M> {
    fn drop(&mut self) {
        self.me.stop_quietly();
        while self.served.run_ready() > 0 {}
        self.engine.shutdown(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Probe;
    use crate::reply::Reply;

    #[test]
    fn an_ask_of_a_probe_is_answered_by_the_test() {
        let probe = Probe::<Reply<u8>>::new().expect("there is a thread");
        let pending = probe.me().ask(|reply| reply, Duration::from_secs(60));
        probe.told().expect("it was asked").send(7);
        assert_eq!(pending.wait().expect("it was answered"), 7);
    }

    #[test]
    fn children_and_messages_to_itself_are_those_of_the_context() {
        struct Child;
        impl crate::Actor for Child {
            type Message = ();
            fn receive(&mut self, (): (), _: &mut crate::Context<'_, ()>) -> Result<(), crate::Fault> {
                Ok(())
            }
        }
        let probe = Probe::<u8>::new().expect("there is a thread");
        let mut context = probe.context();
        let child = context.spawn_child(crate::SpawnOptions::new().name("child"), || Child).expect("it is spawned");
        context.me().tell(1).expect("there is room");
        assert_eq!((probe.told(), probe.told()), (Some(1), None));
        assert_eq!(probe.engine().lookup::<()>("child"), Some(child));
        drop(probe);
    }
}
