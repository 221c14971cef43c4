//! Dispatcher on a tokio runtime, for handlers that need one.

use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;

use super::External;

/// Runs the actors of a dispatcher on a tokio runtime of the caller's.
///
/// Each burst of ready actors is one tokio task. Actors that are futures
/// ([`spawn_task`](crate::EngineHandle::spawn_task)) can await timers and sockets of the runtime.
///
/// ```
/// # use std::time::Duration;
/// # use tidewire_engine::{Engine, Inbox, SpawnOptions, Stop, TokioDispatcher};
/// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
/// let engine = Engine::builder().external("io", TokioDispatcher::on(runtime.handle().clone())).build()?;
/// let options = SpawnOptions::new().dispatcher("io");
/// let sleeper = engine.spawn_task(options, |mut inbox: Inbox<u64>| async move {
///     while let Some(millis) = inbox.recv().await {
///         tokio::time::sleep(Duration::from_millis(millis)).await;
///     }
///     Ok(())
/// })?;
/// sleeper.tell(1)?;
/// assert_eq!(sleeper.stop(Stop::drain(Duration::from_secs(5))).wait()?.ledger.handled, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TokioDispatcher;

impl TokioDispatcher {
    /// A dispatcher on the runtime that `handle` belongs to.
    pub fn on(handle: Handle) -> Arc<External> {
        let place: Arc<OnceLock<std::sync::Weak<External>>> = Arc::default();
        let found = Arc::clone(&place);
        let external = External::new(Box::new(move || {
            if let Some(external) = found.get().and_then(std::sync::Weak::upgrade) {
                handle.spawn(async move {
                    external.run_ready();
                });
            }
        }));
        // Set once, right here.
        let _ = place.set(Arc::downgrade(&external));
        external
    }
}
