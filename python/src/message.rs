//! A Python object on its way to an actor.

use pyo3::prelude::*;
use tidewire_engine::Reply;

use crate::actor::ActorRef;
use crate::attach::attach;
use crate::held::Held;

/// A message: the object itself, and what only some messages carry.
pub struct Message {
    pub object: Held<PyAny>,
    /// The actor in whose handler it was sent.
    pub sender: Option<Held<ActorRef>>,
    pub extra: Option<Box<Extra>>,
}

#[derive(Default)]
pub struct Extra {
    pub reply: Option<Reply<Held<PyAny>>>,
    pub subject: Option<Held<PyAny>>,
    pub headers: Option<Held<PyAny>>,
    /// A notice about a watched actor, rather than a message.
    pub notice: bool,
}

impl Message {
    pub fn plain(object: impl Into<Held<PyAny>>) -> Self {
        Self { object: object.into(), sender: None, extra: None }
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
