//! A Python object on its way to an actor.

use pyo3::prelude::*;
use tidewire_engine::Reply;

use crate::actor::ActorRef;
use crate::attach::attach;

/// A message: the object itself, and what only some messages carry.
pub struct Message {
    pub object: Py<PyAny>,
    /// The actor in whose handler it was sent.
    pub sender: Option<Py<ActorRef>>,
    pub extra: Option<Box<Extra>>,
}

#[derive(Default)]
pub struct Extra {
    pub reply: Option<Reply<Py<PyAny>>>,
    pub subject: Option<Py<PyAny>>,
    pub headers: Option<Py<PyAny>>,
    /// A notice about a watched actor, rather than a message.
    pub notice: bool,
}

impl Message {
    pub fn plain(object: Py<PyAny>) -> Self {
        Self { object, sender: None, extra: None }
    }
}

impl Clone for Message {
    /// A second reference to the same object. A place for a reply stays with the first.
    fn clone(&self) -> Self {
        attach(|py| Self {
            object: self.object.clone_ref(py),
            sender: self.sender.as_ref().map(|sender| sender.clone_ref(py)),
            extra: self.extra.as_ref().map(|extra| {
                Box::new(Extra {
                    reply: None,
                    subject: extra.subject.as_ref().map(|subject| subject.clone_ref(py)),
                    headers: extra.headers.as_ref().map(|headers| headers.clone_ref(py)),
                    notice: extra.notice,
                })
            }),
        })
    }
}
