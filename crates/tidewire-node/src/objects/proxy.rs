//! Functions and objects of other nodes.

use std::sync::Arc;
use std::time::Duration;

use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde::{Serialize, Serializer};

use super::exportable::{Kind, OutboundReference, Target};
use super::import_handle::ImportHandle;
use crate::calls::call::Call;
use crate::calls::call_options::{CallOptions, DEFAULT_TIMEOUT};
use crate::calls::call_record::CallRecord;
use crate::calls::item_stream::Items;
use crate::calls::prepared_call::{CallTarget, PreparedCall};
use crate::calls::priority::Priority;
use crate::error::Error;
use crate::services::context::Context;
use crate::values::Writer;
use crate::values::references::{self, within};

/// A function of another node, received in arguments or in a result. Clones are the same function.
///
/// Dropping the last clone releases the function, and its owner is notified. A call fails with
/// `remote_gone` once the function was released or disposed of, or its lease is over. A call also
/// fails once the link of this node or of the owner has ended since the function was received.
///
/// The handle does not keep its node alive. Returned to its owner, the handle becomes the original
/// function; it cannot be passed to a third node.
///
/// There is an example at [`Function`](crate::Function).
#[derive(Clone, derive_more::Debug)]
#[debug("RemoteFunction({:?})", self.0.handle)]
pub struct RemoteFunction(SharedImport);

/// An object of another node, received in arguments or in a result: its methods are called like
/// those of a service. The rules of [`RemoteFunction`] apply. There is an example at
/// [`Object`](crate::Object).
#[derive(Clone, derive_more::Debug)]
#[debug("RemoteObject({:?})", self.0.handle)]
pub struct RemoteObject(SharedImport);

#[derive(Clone)]
struct SharedImport {
    handle: Arc<ImportHandle>,
    options: CallOptions,
}

impl SharedImport {
    fn prepared(
        &self,
        method: &str,
        arguments: &(impl Serialize + ?Sized),
        is_stream: bool,
    ) -> Result<PreparedCall, Error> {
        let handle = &self.handle;
        let core = handle.check()?.core().ok_or_else(|| handle.gone_error("its node has ended"))?;
        let timeout = handle.method(method)?.timeout.or((!is_stream).then_some(DEFAULT_TIMEOUT));
        let title = match handle.kind {
            Kind::Function => handle.title.clone(),
            _ => format!("{}.{method}", handle.title),
        };
        let blob = within(Some(&core.objects), || Writer::arguments(arguments));
        let blob = blob.map_err(|wrong| Error::of_value(&title, wrong))?;
        let aim = CallTarget::Object(Arc::clone(handle), method.to_owned());
        let (options, record) = (&self.options, CallRecord::of_subject(&core, &title, &self.options.headers));
        PreparedCall::new(&core, aim, title, blob, options, options.deadline(timeout), record)
    }
}

impl RemoteFunction {
    /// Calls it. A tuple gives its arguments in order, a struct or a map by name, `()` none, any
    /// other value is the only one. The call is on its way when this returns: await it, wait for
    /// it, or drop it to cancel it.
    pub fn call<T: DeserializeOwned>(&self, arguments: &(impl Serialize + ?Sized)) -> Call<T> {
        Call::begin(self.0.prepared(super::CALL, arguments, false))
    }

    /// Reads the stream that the function returns. The request is on its way when this returns;
    /// dropping it closes the stream of the owner.
    pub fn stream<T: DeserializeOwned>(&self, arguments: &(impl Serialize + ?Sized)) -> Items<T> {
        Items::open(self.0.prepared(super::CALL, arguments, true))
    }
}

impl RemoteObject {
    /// Calls a method; see [`RemoteFunction::call`].
    pub fn call<T: DeserializeOwned>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Call<T> {
        Call::begin(self.0.prepared(method, arguments, false))
    }

    /// Reads the stream that a method returns; see [`RemoteFunction::stream`].
    pub fn stream<T: DeserializeOwned>(&self, method: &str, arguments: &(impl Serialize + ?Sized)) -> Items<T> {
        Items::open(self.0.prepared(method, arguments, true))
    }

    /// The names of its methods.
    pub fn methods(&self) -> impl Iterator<Item = &str> {
        self.0.handle.methods.iter().map(|method| method.name.as_str())
    }
}

macro_rules! proxies {
    ($($type:ident: $kind:pat, $expected:literal, $wrong:literal;)*) => {
        $(impl $type {
            /// Timeout of a call: 30 s by default. A stream has no timeout by default.
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.0.options.with_timeout(timeout);
                self
            }

            /// How urgent calls and their answers are.
            pub fn priority(mut self, priority: Priority) -> Self {
                self.0.options.priority = priority;
                self
            }

            /// Makes calls a part of another one: they end with it at the latest, and share its
            /// [trace](Context::trace).
            pub fn within(mut self, context: &Context) -> Self {
                self.0.options.with_outer(context);
                self
            }

            /// The name that its owner has given.
            pub fn title(&self) -> &str {
                &self.0.handle.title
            }

            /// The name of the node that owns it.
            pub fn owner(&self) -> &str {
                &self.0.handle.owner
            }

            /// True once this node knows that calls will fail.
            pub fn is_gone(&self) -> bool {
                self.0.handle.check().is_err()
            }

            /// Lets it go before the last clone is dropped: all of them lose it.
            pub fn dispose(&self) {
                self.0.handle.release();
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                references::deserialize($expected, deserializer, |target| match target {
                    Target::Import(handle) if matches!(handle.kind, $kind) => {
                        Ok(Self(SharedImport { handle, options: CallOptions::default() }))
                    }
                    _ => Err($wrong),
                })
            }
        }

        /// It can be returned to its owner only.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                references::serialize(OutboundReference::Back(Arc::clone(&self.0.handle)), serializer)
            }
        }

        /// Equal if both are handles of the same import.
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0.handle, &other.0.handle)
            }
        }

        impl Eq for $type {})*
    };
}

proxies! {
    RemoteFunction: Kind::Function, "a function of another node",
        "an object or a stream was given, or an own function that comes back, and a function of another node is wanted";
    RemoteObject: Kind::Object, "an object of another node",
        "a function or a stream was given, or an own object that comes back, and an object of another node is wanted";
}
