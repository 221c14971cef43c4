//! The service whose handler runs on this thread: a handler that waits for its own stop gets an
//! error.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;
use crate::services::failure::Failure;
use crate::services::instance::ServiceInstance;
use crate::span::Span;

thread_local! {
    /// The address of an instance, which is only compared.
    static HERE: Cell<*const ServiceInstance> = const { Cell::new(std::ptr::null()) };
}

/// Runs a part of a handler of this instance.
pub(crate) fn handling<T>(instance: &ServiceInstance, act: impl FnOnce() -> T) -> T {
    struct CurrentServiceGuard(*const ServiceInstance);

    impl Drop for CurrentServiceGuard {
        fn drop(&mut self) {
            HERE.set(self.0);
        }
    }

    let _outer = CurrentServiceGuard(HERE.replace(instance));
    act()
}

/// Begins a handler of this instance, and runs it within a span. None: it was to end before.
pub(crate) async fn run<T>(
    (instance, span): (&ServiceInstance, &Span),
    begin: impl FnOnce() -> Result<Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>, Failure>,
    mut poll_ended: impl FnMut(&Context<'_>) -> Poll<()>,
) -> Option<Result<T, Failure>> {
    let mut handled = match span.run(|| handling(instance, || Failure::caught(begin))) {
        Ok(handled) => handled,
        Err(failure) => return Some(Err(failure)),
    };
    poll_fn(|context| {
        if poll_ended(context).is_ready() {
            return Poll::Ready(None);
        }
        span.run(|| handling(instance, || Failure::polled(|| handled.as_mut().poll(context)))).map(Some)
    })
    .await
}

/// Refuses a handler of this instance that would wait for the end of the instance.
///
/// # Errors
/// If this thread is in such a handler.
pub(crate) fn refuse_own(instance: &ServiceInstance, what: &str) -> Result<(), Error> {
    if !std::ptr::eq(instance, HERE.get()) {
        return Ok(());
    }
    let text =
        format!("a handler of {} would wait for itself: {what} in a task or thread of its own", instance.service);
    Err(Error::new(ErrorCode::AskCycle, text))
}
