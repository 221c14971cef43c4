//! Failures of handlers, as their callers receive them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;
use crate::values::{self, Blob, Value};

/// Failure of a handler, as its caller receives it. `?` converts any error that may cross threads:
/// its type and its text travel. `?` also converts boxed errors, `anyhow` errors and plain texts.
///
/// ```
/// use tidewire_node::{Failure, Service};
///
/// let pricing = Service::new("pricing").method("quote", &["symbol"], |_, symbol: String| async move {
///     let (_, price) = symbol.split_once('=').ok_or_else(|| Failure::new("shop:NoPrice", format!("{symbol} has none")))?;
///     let price: f64 = price.parse()?;
///     Ok(price)
/// });
/// ```
#[derive(derive_more::Debug)]
#[debug("{type_name}({message:?})")]
pub struct Failure {
    /// Code for a refusal by this node rather than a failure of the handler; the caller receives
    /// the code and the text.
    refusal: Option<ErrorCode>,
    type_name: String,
    message: String,
}

impl Failure {
    /// A failure of a type that callers may know: `module:Name`. A Python program that has imported
    /// the module gets an exception of that type.
    pub fn new(type_name: impl Into<String>, message: impl Into<String>) -> Self {
        Self { refusal: None, type_name: type_name.into(), message: message.into() }
    }

    /// A failure with a code of `spec/errors.toml`.
    ///
    /// ```
    /// use tidewire_node::{ErrorCode, Failure};
    /// let wrong = Failure::of(ErrorCode::InvalidArgument, "qty: 0 is not allowed: give 1 or more");
    /// ```
    pub fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(format!("tidewire.errors:{}", code.name()), message)
    }

    /// A call that does not reach the handler.
    pub(crate) fn refusal(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { refusal: Some(code), type_name: String::new(), message: message.into() }
    }

    /// The code and the payload on the wire: a text or a value.
    pub(crate) fn payload(&self) -> (ErrorCode, Blob) {
        match self.refusal {
            Some(code) => (code, Blob::new(self.message.as_bytes().to_vec(), Vec::new())),
            None => (ErrorCode::RemoteError, self.value()),
        }
    }

    /// The failure as a value.
    pub(crate) fn value(&self) -> Blob {
        let refused = self.refusal.map(|code| format!("tidewire.errors:{}", code.name()));
        let fields = [("type", refused.as_ref().unwrap_or(&self.type_name)), ("message", &self.message)];
        let mut fields: Vec<_> = fields.map(|(key, text)| (Value::from(key), Value::from(text.as_str()))).into();
        fields.push(("args".into(), Value::Tuple(vec![self.message.as_str().into()])));
        let blob = values::write("the error", &Value::Error(fields));
        blob.unwrap_or_else(|_| Blob::new(b"the error itself could not be sent".to_vec(), Vec::new()))
    }

    /// In a line, as a dead letter has it.
    pub(crate) fn line(&self) -> String {
        match &*self.type_name {
            "" | "std:Error" => self.message.clone(),
            name => format!("{name}: {}", self.message),
        }
    }

    /// The type of the error, for metrics and spans.
    pub(crate) fn kind(&self) -> &str {
        match self.refusal {
            Some(code) => code.name(),
            None => self.type_name.rsplit(':').next().unwrap_or_default(),
        }
    }

    /// The text of the error.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The result of a part of a handler; a panic is its failure.
    pub(crate) fn caught<T>(part: impl FnOnce() -> Result<T, Self>) -> Result<T, Self> {
        catch_unwind(AssertUnwindSafe(part)).unwrap_or_else(|panic| Err(Self::of_panic(&*panic)))
    }

    /// The state of a handler; a panic ends it with its failure.
    pub(crate) fn polled<T>(poll: impl FnOnce() -> Poll<Result<T, Self>>) -> Poll<Result<T, Self>> {
        catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| Poll::Ready(Err(Self::of_panic(&*panic))))
    }

    /// The failure for a panic, with the text of the panic.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::new("std:Panic", text.unwrap_or_else(|| "it panicked with something that is no text".to_owned()))
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        match error.downcast_ref::<Error>() {
            Some(error) => passed_on(error),
            None => Self::new(type_name::<E>(), error.to_string()),
        }
    }
}

/// An error of a call that the handler made.
fn passed_on(error: &Error) -> Failure {
    match error.remote() {
        Some(remote) => Failure::new(remote.type_name.clone(), remote.message.clone()),
        None => Failure::of(error.code(), error.message()),
    }
}

/// The name of a type as other languages write it: `shop::orders::OutOfStock` is
/// `shop.orders:OutOfStock`.
fn type_name<E>() -> String {
    let name = std::any::type_name::<E>();
    let plain = name.split('<').next().unwrap_or(name);
    match plain.rsplit_once("::") {
        // A text, or a box around an error of unknown type.
        None | Some(("alloc::string" | "alloc::boxed", _)) => "std:Error".to_owned(),
        Some((module, name)) => format!("{}:{name}", module.replace("::", ".")),
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;

    #[test]
    fn texts_and_boxed_errors_are_failures_too() {
        fn of(fails: impl FnOnce() -> Result<(), Failure>) -> String {
            fails().map_or_else(|failure| format!("{failure:?}"), |()| String::new())
        }
        let boxed: Box<dyn std::error::Error + Send + Sync> = "there is none".into();
        assert_eq!(of(|| Err("no salt")?), r#"std:Error("no salt")"#);
        assert_eq!(of(|| Err(format!("no {}", "salt"))?), r#"std:Error("no salt")"#);
        assert_eq!(of(|| Err(boxed)?), r#"std:Error("there is none")"#);
    }
}
