//! A message to an actor: a Python object with its sender and optional details.

use std::sync::Arc;

use pyo3::prelude::*;
use tidewire_engine::Reply;
use tidewire_node::raw::{Named, Published};

use crate::actors::actor::ActorRef;
use crate::interpreter::attach::attach;
use crate::interpreter::py_ref::PyRef;
use crate::link::Publication;

/// A message: the object itself, and what only some messages carry.
pub struct Message {
    /// Nothing before [`open`](Self::open), if it came from another node.
    object: PyRef<PyAny>,
    /// The actor in whose handler it was sent.
    pub sender: Option<PyRef<ActorRef>>,
    pub extra: Option<Box<Extra>>,
}

#[derive(Default)]
pub struct Extra {
    pub reply: Option<Reply<PyRef<PyAny>>>,
    pub subject: Option<PyRef<PyAny>>,
    pub headers: Option<PyRef<PyAny>>,
    /// The other node that published it, or asks.
    pub origin: Option<Arc<Named>>,
    /// A notice about a watched actor, rather than a message.
    pub notice: bool,
    /// A publication of another node, until it is opened.
    pub publication: Option<Published>,
}

impl Message {
    pub fn plain(object: impl Into<PyRef<PyAny>>) -> Self {
        Self::new(object, None, None)
    }

    pub fn new(object: impl Into<PyRef<PyAny>>, sender: Option<PyRef<ActorRef>>, extra: Option<Box<Extra>>) -> Self {
        Self { object: object.into(), sender, extra }
    }

    /// A publication of another node. Its value is read when it is [opened](Self::open).
    pub fn publication(published: Published) -> Self {
        let extra = Extra { publication: Some(published), ..Extra::default() };
        Self { object: PyRef::nothing(), sender: None, extra: Some(Box::new(extra)) }
    }

    /// The publication of another node, unless the message has been opened.
    pub fn into_published(self) -> Option<Published> {
        self.extra.and_then(|extra| extra.publication)
    }

    /// Reads the value of a publication of another node, unless that has been done. Before it there
    /// is no object.
    ///
    /// # Errors
    /// The error of reading its value, which stays unread.
    #[inline]
    pub fn open(&mut self, py: Python<'_>) -> PyResult<()> {
        match &mut self.extra {
            Some(extra) if extra.publication.is_some() => extra.open(py).map(|object| self.object = object),
            _ => Ok(()),
        }
    }

    /// The object, of a message that is open.
    pub fn object<'py>(&self, py: Python<'py>) -> &Bound<'py, PyAny> {
        self.object.bind(py)
    }

    /// Object, sender and the rest, of a message that is open.
    pub fn into_parts(self) -> (PyRef<PyAny>, Option<PyRef<ActorRef>>, Option<Box<Extra>>) {
        (self.object, self.sender, self.extra)
    }
}

impl Extra {
    fn open(&mut self, py: Python<'_>) -> PyResult<PyRef<PyAny>> {
        let Some(mut publication) = self.publication.take() else { return Ok(PyRef::nothing()) };
        match Publication::of(py, &mut publication) {
            Ok(Publication { value, subject, headers }) => {
                self.origin = Some(Arc::clone(&publication.from));
                (self.subject, self.headers) = (Some(subject.into()), headers.map(PyRef::from));
                Ok(value.into())
            }
            Err(error) => {
                self.publication = Some(publication);
                Err(error)
            }
        }
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
                    origin: extra.origin.clone(),
                    notice: extra.notice,
                    publication: extra.publication.clone(),
                })
            }),
        })
    }
}
