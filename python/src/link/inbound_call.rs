//! The exchange of an inbound call: cancellation by its caller, and credit for items of a stream.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use tidewire_engine::raw::{Fire, Mutex};
use tidewire_node::raw::{Call, Exchange};

use crate::interpreter::PerProcessOwned;
use crate::interpreter::attach::attach;
use crate::interpreter::py_ref::PyRef;
use crate::link::inbound_call_run::InboundCallRun;
use crate::link::loop_inbox::LoopInbox;

/// State of a call after it has come in.
pub struct InboundCallState {
    me: Weak<LoopInbox>,
    pub cancelled: AtomicBool,
    /// Its time is up, by the clock of this side.
    late: AtomicBool,
    /// The caller takes no more items, and waits for the end of the stream.
    pub unread: AtomicBool,
    pub credit: AtomicI64,
    /// No more credit is waited for.
    pub cut: AtomicBool,
    pub waker: Mutex<Option<Waker>>,
    pub on_cancel: Mutex<Option<OnCancel>>,
    pub this: Mutex<Weak<InboundCallState>>,
    /// The call, while its payload is unread.
    pub unopened: Mutex<Weak<Mutex<Option<PerProcessOwned<Call>>>>>,
}

/// Action when the caller has gone.
pub enum OnCancel {
    Call(PyRef<PyAny>),
    Cancel(PyRef<InboundCallRun>),
}

impl InboundCallState {
    pub fn new(inbox: Weak<LoopInbox>, credit: u32) -> Self {
        Self {
            me: inbox,
            cancelled: AtomicBool::new(false),
            late: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            credit: AtomicI64::new(credit.into()),
            cut: AtomicBool::new(false),
            waker: Mutex::new(None),
            on_cancel: Mutex::new(None),
            this: Mutex::new(Weak::new()),
            unopened: Mutex::new(Weak::new()),
        }
    }

    /// True once nobody reads items any more.
    pub fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Acquire) || self.cancelled.load(Ordering::Acquire)
    }

    /// Wakes the writer of a stream, and notifies Python on its loop.
    fn changed(&self) {
        self.wake();
        let this = self.this.lock().upgrade();
        if let (Some(this), Some(inbox)) = (this, self.me.upgrade()) {
            inbox.changed(this);
        }
    }

    /// Calls what Python wants to have called when the caller has gone.
    pub fn tell(&self, py: Python<'_>) {
        // Apart from the match, so that the lock is free while Python runs.
        let on_cancel = self.on_cancel.lock().take();
        let called = match on_cancel {
            None => return self.release_unopened(py),
            Some(OnCancel::Call(call)) => call.call0(py).map(drop),
            Some(OnCancel::Cancel(handling)) if self.late.load(Ordering::Acquire) => {
                InboundCallRun::late(handling.bind(py))
            }
            Some(OnCancel::Cancel(handling)) => {
                self.release_unopened(py);
                InboundCallRun::cancel(handling.bind(py), None)
            }
        };
        if let Err(error) = called {
            crate::actors::bridge::raised(py, error);
        }
    }

    /// Releases a call that waits for admission, with all that it came with: nobody will begin it.
    fn release_unopened(&self, py: Python<'_>) {
        if !self.cancelled.load(Ordering::Acquire) {
            return;
        }
        let unopened = std::mem::take(&mut *self.unopened.lock());
        if let Some(place) = unopened.upgrade() {
            let call = place.lock().take();
            crate::interpreter::attach::detach(py, || drop(call));
        }
    }

    /// True when an item may be sent, or nobody reads any. False: the stream was cut.
    pub fn poll_credit(&self) -> Poll<PyResult<Py<PyAny>>> {
        let ready = self.credit.load(Ordering::Acquire) > 0 || self.is_unread();
        if !ready && !self.cut.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        Poll::Ready(attach(|py| ready.into_py_any(py)))
    }

    pub fn wake(&self) {
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Exchange for InboundCallState {
    fn cancelled(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.changed();
    }

    // Items of the exchange itself need credit, and none is given here: generators among arguments
    // are streams of the caller (`spec/values.md`).

    fn wanted(&self, items: u32) {
        if items == 0 {
            self.unread.store(true, Ordering::Release);
            return self.changed();
        }
        self.credit.fetch_add(items.into(), Ordering::AcqRel);
        self.wake();
    }

    fn writable(&self) {
        self.wake();
    }
}

impl Fire for InboundCallState {
    fn fire(self: Arc<Self>) {
        self.late.store(true, Ordering::Release);
        self.changed();
    }
}
