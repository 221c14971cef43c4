//! The service whose handler runs on this thread: a handler that waits for its own stop gets an
//! error.

use std::cell::Cell;
use std::sync::Arc;

use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;
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
