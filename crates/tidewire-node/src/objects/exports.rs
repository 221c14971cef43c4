//! Functions and objects that a node may give to others.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde::{Serialize, Serializer};
use tidewire_proto::generated::limits;

use super::exportable::{Exportable, Kind, LEASE, OutboundReference, Shared, Target};
use crate::discovery::Visibility;
use crate::error::Error;
use crate::node::options::within;
use crate::services::context::Context;
use crate::services::failure::Failure;
use crate::services::method;
use crate::services::service::{Method, Service};
use crate::values::references;

/// A function of this node, as an argument of a call or in its result: the other node gets a handle
/// that calls it, in Rust a [`RemoteFunction`](crate::RemoteFunction). Clones are the same
/// function.
///
/// The function lives until its holder has released it, it is [disposed of](Function::dispose), or
/// either node loses its link. A function also ends if it is not called for its
/// [lease](Function::lease). Dropping this value does not end it. Calls of it run where handlers of
/// this node run.
///
/// ```
/// use std::sync::mpsc::sync_channel;
/// use tidewire_node::{Function, Node, NodeOptions, RemoteFunction, Service};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// let work = Service::new("work").method("run", &["steps", "progress"], |_, (steps, progress): (u32, RemoteFunction)| async move {
///     for step in 1..=steps {
///         progress.call::<()>(&(f64::from(step) / f64::from(steps))).await?;
///     }
///     Ok("done")
/// });
/// hub.serve(work).wait()?;
///
/// let (say, heard) = sync_channel(16);
/// let progress = Function::new("progress", &["done"], move |_, done: f64| {
///     say.send(done).ok();
///     async { Ok(()) }
/// });
/// let done: String = hub.client("work").call("run", &(2, &progress)).wait()?;
/// assert_eq!((done.as_str(), heard.try_iter().collect::<Vec<_>>()), ("done", vec![0.5, 1.0]));
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Function({:?})", self.0.title)]
pub struct Function(Arc<Shared>);

/// An object of this node, as an argument of a call or in its result: the other node calls its
/// methods, in Rust by a [`RemoteObject`](crate::RemoteObject). Clones are the same object.
/// [`Function`] describes its lifetime.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tidewire_node::{Node, NodeOptions, Object, RemoteObject, Service};
///
/// let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait()?;
/// let shop = Service::new("shop").method("open", &[], |_, ()| async {
///     let items = Arc::new(Mutex::new(Vec::new()));
///     Ok(Object::new(Service::new("cart").method("add", &["item"], move |_, item: String| {
///         let items = Arc::clone(&items);
///         async move {
///             let mut items = items.lock().unwrap();
///             items.push(item);
///             Ok(items.len())
///         }
///     })))
/// });
/// hub.serve(shop).wait()?;
///
/// let cart: RemoteObject = hub.client("shop").call("open", &()).wait()?;
/// assert_eq!(cart.call::<usize>("add", &"apple").wait()?, 1);
/// assert_eq!(cart.call::<usize>("add", &"pear").wait()?, 2);
/// # Ok::<(), tidewire_node::Error>(())
/// ```
#[derive(Clone, derive_more::Debug)]
#[debug("Object({:?})", self.0.title)]
pub struct Object(Arc<Shared>);

impl Function {
    /// A function with one result. Error messages show its title; the rest is as for
    /// [`Method::new`].
    ///
    /// # Cancel safety
    /// The future of the handler is dropped where it awaits when the caller cancels, leaves or
    /// times out.
    pub fn new<A, O, F, Fut>(title: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        Self::of(title, Method::new(super::CALL, parameters, handler))
    }

    /// A function that returns a stream; see [`Method::stream`].
    ///
    /// # Cancel safety
    /// As for [`new`](Function::new).
    pub fn stream<A, O, F, S>(title: &str, parameters: &[&str], handler: F) -> Self
    where
        A: DeserializeOwned,
        O: Serialize,
        F: Fn(Context, A) -> S + Send + Sync + 'static,
        S: Stream<Item = Result<O, Failure>> + Send + 'static,
    {
        Self::of(title, Method::stream(super::CALL, parameters, handler))
    }

    fn of(title: &str, method: Method) -> Self {
        Self(Arc::new(shared(Kind::Function, Service::new("function").with(method), title)))
    }
}

impl Object {
    /// An object with the methods of a declaration. Methods for its own node only are not exported;
    /// events are for served services.
    pub fn new(methods: Service) -> Self {
        let title = methods.info.name.clone();
        Self(Arc::new(shared(Kind::Object, methods, &title)))
    }
}

fn shared(kind: Kind, declared: Service, title: &str) -> Shared {
    let (name, problem): (Arc<str>, _) = (title.into(), declared.check().err());
    let problem = problem.or_else(|| {
        let text = format!("{title}: an object handles no events: serve it, or declare methods only");
        (!declared.events.is_empty()).then(|| Error::invalid(text))
    });
    let least = declared.info.visibility;
    let visible = declared.methods.into_iter().filter(|(info, _)| info.visibility.min(least) > Visibility::Node);
    let methods: Vec<_> = visible.map(|(info, handling)| method::method(&name, info, handling)).collect();
    let problem = problem.or_else(|| {
        let text = format!("{title}: none of its methods may be called from other nodes: its visibility is 'node'");
        methods.is_empty().then(|| Error::invalid(text))
    });
    Shared { kind, title: title.to_owned(), methods, lease: LEASE, problem, exporters: Default::default() }
}

impl Shared {
    fn leased(&self, lease: Duration) -> Arc<Self> {
        let checked = within(&limits::REMOTE_LEASE_MS, "lease", lease.as_millis() as u64);
        Arc::new(Self {
            kind: self.kind,
            title: self.title.clone(),
            methods: self.methods.clone(),
            lease,
            problem: self.problem.clone().or(checked.err()),
            exporters: Default::default(),
        })
    }

    fn dispose(self: &Arc<Self>) {
        let nodes = std::mem::take(&mut *self.exporters.lock());
        let export = Exportable::Object(Arc::clone(self));
        nodes.iter().filter_map(std::sync::Weak::upgrade).for_each(|objects| objects.dispose(&export));
    }
}

macro_rules! exportables {
    ($($type:ident: $kind:pat, $expected:literal, $wrong:literal;)*) => {
        $(impl $type {
            /// Lease without calls: 10 minutes by default. Set the lease before passing the value:
            /// the changed one is another value.
            pub fn lease(self, lease: Duration) -> Self {
                Self(self.0.leased(lease))
            }

            /// Disposes of it: all nodes that hold it lose it. Their later calls fail with
            /// `remote_gone`.
            pub fn dispose(&self) {
                self.0.dispose();
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                references::serialize(OutboundReference::Own(Exportable::Object(Arc::clone(&self.0))), serializer)
            }
        }

        /// A reference that returns to its owner becomes the original value.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                references::deserialize($expected, deserializer, |target| match target {
                    Target::Own(Exportable::Object(shared)) if matches!(shared.kind, $kind) => Ok(Self(shared)),
                    _ => Err($wrong),
                })
            }
        }

        /// Equal if both are clones of the same value.
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0)
            }
        }

        impl Eq for $type {})*
    };
}

exportables! {
    Function: Kind::Function, "a function that comes back",
        "this node does not own it, or it is no function: read what others own as `RemoteFunction`";
    Object: Kind::Object, "an object that comes back",
        "this node does not own it, or it is no object: read what others own as `RemoteObject`";
}
