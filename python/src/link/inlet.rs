//! What comes in over a link, on its way to the loop that handles it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;
use tidewire_link::{Call, Exchange, Handler, Published};

use crate::bridge::{Inlet, Line};
use crate::link::Taking;
use crate::link::inbound::{Exchanging, RemoteCall, RemoteMessage};

/// Calls and messages for one loop. They are handed over in bursts: one call of Python for each, and one wake-up.
pub struct Intake {
    queue: Mutex<Vec<Came>>,
    line: Arc<Line>,
    receive: Py<PyAny>,
    taking: Taking,
}

enum Came {
    Call(Call, Arc<Exchanging>, u64),
    Message(Published, u64),
    /// Something changed for a call that Python knows.
    Changed(Arc<Exchanging>),
    /// The node has joined again.
    JoinedAgain,
    /// The node of this number, which was known here, has gone.
    Left(u32),
}

/// A subscription of a link, which feeds an intake.
pub struct Door {
    pub intake: Arc<Intake>,
    /// What the Python side knows it by.
    pub number: u64,
}

impl Intake {
    /// `receive` is called with a list of what came: (number, RemoteCall or RemoteMessage); (0, None) when the node has joined again;
    /// (number, None) when the node of this number has gone.
    pub fn open(line: &Arc<Line>, receive: Py<PyAny>, taking: Taking) -> Arc<Self> {
        let intake = Arc::new(Self { queue: Mutex::default(), line: Arc::clone(line), receive, taking });
        line.add_inlet(Arc::clone(&intake) as Arc<dyn Inlet>);
        intake
    }

    /// Nothing more is handed over.
    pub fn close(self: &Arc<Self>) {
        self.line.remove_inlet(&(Arc::clone(self) as Arc<dyn Inlet>));
        let gone = std::mem::take(&mut *self.queue.lock());
        drop(gone);
    }

    fn came(&self, what: Came) {
        self.queue.lock().push(what);
        self.line.wake();
    }

    /// The node has joined again after its link was lost.
    pub fn joined_again(&self) {
        self.came(Came::JoinedAgain);
    }

    /// A node that was known here has gone.
    pub fn left(&self, node: u32) {
        self.came(Came::Left(node));
    }

    /// A call that Python knows has changed.
    pub fn changed(&self, exchange: Arc<Exchanging>) {
        self.came(Came::Changed(exchange));
    }
}

impl Inlet for Intake {
    fn run(&self, py: Python<'_>) {
        let came = std::mem::take(&mut *self.queue.lock());
        if came.is_empty() {
            return;
        }
        if let Err(error) = self.hand_over(py, came) {
            error.write_unraisable(py, None);
        }
    }
}

impl Intake {
    fn hand_over(&self, py: Python<'_>, came: Vec<Came>) -> PyResult<()> {
        let list = PyList::empty(py);
        for one in came {
            match one {
                Came::Call(call, exchange, number) => {
                    list.append((number, Py::new(py, RemoteCall::new(call, exchange, self.taking.clone()))?))?;
                }
                Came::Message(message, number) => list.append((number, Py::new(py, RemoteMessage::new(message))?))?,
                Came::Changed(exchange) => exchange.tell(py),
                Came::JoinedAgain => list.append((0, py.None()))?,
                Came::Left(node) => list.append((node, py.None()))?,
            }
        }
        if list.is_empty() { Ok(()) } else { self.receive.call1(py, (list,)).map(drop) }
    }
}

impl Handler for Door {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        let intake: Weak<Intake> = Arc::downgrade(&self.intake);
        let exchange = Arc::new(Exchanging::new(intake, call.head().credit));
        self.intake.came(Came::Call(call, Arc::clone(&exchange), self.number));
        Some(exchange)
    }

    fn published(&self, message: Published) {
        self.intake.came(Came::Message(message, self.number));
    }
}
