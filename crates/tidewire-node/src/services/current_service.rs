//! The service whose handler runs on this thread: a handler that waits for its own stop gets an
//! error.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;
use crate::services::failure::Failure;
use crate::services::instance::ServiceInstance;

thread_local! {
    /// The address of a host, which is only compared.
    static HERE: Cell<*const ServiceInstance> = const { Cell::new(std::ptr::null()) };
}

/// Runs a part of a handler of this host.
pub(crate) fn handling<T>(host: &ServiceInstance, act: impl FnOnce() -> T) -> T {
    struct CurrentServiceGuard(*const ServiceInstance);

    impl Drop for CurrentServiceGuard {
        fn drop(&mut self) {
            HERE.set(self.0);
        }
    }

    let _outer = CurrentServiceGuard(HERE.replace(host));
    act()
}

/// Runs a handler of this host. None: it was to end before.
pub(crate) async fn run<T>(
    host: &ServiceInstance,
    mut handled: Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>,
    poll_ended: impl Fn(&Context<'_>) -> Poll<()>,
) -> Option<Result<T, Failure>> {
    poll_fn(|context| {
        if poll_ended(context).is_ready() {
            return Poll::Ready(None);
        }
        handling(host, || Failure::polled(|| handled.as_mut().poll(context))).map(Some)
    })
    .await
}

/// Refuses a handler of one of these hosts that would wait for their end.
///
/// # Errors
/// If this thread is in such a handler.
pub(crate) fn refuse_own<'a>(
    hosts: impl IntoIterator<Item = &'a Arc<ServiceInstance>>,
    what: &str,
) -> Result<(), Error> {
    let here = HERE.get();
    match hosts.into_iter().find(|host| std::ptr::eq(Arc::as_ptr(host), here)) {
        None => Ok(()),
        Some(host) => {
            let text =
                format!("a handler of {} would wait for itself: {what} in a task or thread of its own", host.service);
            Err(Error::new(ErrorCode::AskCycle, text))
        }
    }
}
