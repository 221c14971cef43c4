//! Methods as they are run: handlers of encoded arguments, with encoded results.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewire_proto::generated::errors::ErrorCode;

use crate::discovery::{MethodInfo, Visibility};
use crate::services::context::Context;
use crate::services::failure::Failure;
use crate::values::{self, Blob, Kind, Value};

pub(crate) type ReplyFuture = Pin<Box<dyn Future<Output = Result<Blob, Failure>> + Send>>;
pub(crate) type ReplyStream = Pin<Box<dyn Stream<Item = Result<Blob, Failure>> + Send>>;

pub(crate) type Answers<C> = dyn Fn(C, &[u8]) -> Result<ReplyFuture, Failure> + Send + Sync;
type Streams = dyn Fn(Context, &[u8]) -> Result<ReplyStream, Failure> + Send + Sync;

/// Handler of a method: one result or a stream.
#[derive(Clone)]
pub(crate) enum MethodHandler {
    Once(Arc<Answers<Context>>),
    Stream(Arc<Streams>),
}

/// A method of a service or of an object, as it is run.
#[derive(Clone)]
pub(crate) struct Method {
    pub service: Arc<str>,
    pub name: Arc<str>,
    /// Its name in metrics and spans: `service/method`.
    pub title: String,
    pub handling: MethodHandler,
    pub visibility: Visibility,
}

impl Method {
    /// Description of the method for the holder of its object: name, stream flag and timeout in
    /// seconds.
    pub fn offered(&self) -> Value {
        Value::List(vec![Value::from(&*self.name), Value::Bool(self.is_stream()), Value::Nil])
    }

    pub fn is_stream(&self) -> bool {
        matches!(self.handling, MethodHandler::Stream(_))
    }
}

/// A method of a service, or of an object, that errors call `service`.
pub(crate) fn method(service: &Arc<str>, info: MethodInfo, handling: MethodHandler) -> Arc<Method> {
    let (title, name) = (format!("{service}/{}", info.name), info.name.into());
    Arc::new(Method { service: Arc::clone(service), name, title, handling, visibility: info.visibility })
}

pub(crate) fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn arguments<A: DeserializeOwned>(input: &[u8], names: &[String]) -> Result<A, Failure> {
    values::read_arguments(input, names).map_err(|wrong| {
        let code = if let Kind::Coded(code) = wrong.kind() { code } else { ErrorCode::InvalidArgument };
        Failure::refusal(code, wrong.to_string())
    })
}

pub(crate) fn result<O: Serialize>(name: &str, value: &O) -> Result<Blob, Failure> {
    values::write_any(name, value).map_err(Failure::from)
}

/// A handler of encoded arguments, which gives an encoded result.
pub(crate) fn answers<C, A, O, F, Fut>(parameters: &[&str], handler: F) -> Arc<Answers<C>>
where
    A: DeserializeOwned,
    O: Serialize,
    F: Fn(C, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    let names = owned(parameters);
    Arc::new(move |context, input| {
        let answer = handler(context, arguments(input, &names)?);
        Ok(Box::pin(async move { result("the result", &answer.await?) }))
    })
}

/// The items of a stream, written as they travel.
pub(crate) struct EncodedItems<S>(Pin<Box<S>>);

impl<S> EncodedItems<S> {
    pub fn new(items: S) -> Self {
        Self(Box::pin(items))
    }
}

impl<O: Serialize, E: Into<Failure>, S: Stream<Item = Result<O, E>>> Stream for EncodedItems<S> {
    type Item = Result<Blob, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let next = self.0.as_mut().poll_next(context);
        next.map(|item| item.map(|item| item.map_err(Into::into).and_then(|item| result("an item", &item))))
    }
}
