//! The attribute macro of `tidewire-node`. Use it from there, with the feature `macros`.

mod options;
mod service;

use proc_macro::TokenStream;

/// Makes a service of an impl block: each of its functions is a method, and `into_service` is
/// added, which gives the `Service` to serve. The names of the parameters are those of the
/// function, so that callers may give arguments by them.
///
/// ```ignore
/// #[tidewire_node::service(name = "pricing", schemas)]
/// impl Pricing {
///     /// The price of some.
///     async fn quote(&self, symbol: String, qty: Option<u32>) -> Result<f64, Failure> { ... }
///
///     #[method(idempotent, timeout = 2.5, visibility = "private")]
///     async fn reset(&self, call: Context, seed: u64) -> Result<(), std::io::Error> { ... }
///
///     #[method(stream, name = "ticks")]
///     fn all_ticks(self: Arc<Self>, symbol: String) -> impl Stream<Item = Result<f64, Failure>> { ... }
/// }
///
/// node.serve(Pricing::default().into_service()).await?;
/// ```
///
/// A method is an `async fn` of `&self` or `self: Arc<Self>` that gives a `Result` whose error is a
/// `Failure`, or becomes one by `?`. One that gives a stream is a plain `fn` with
/// `#[method(stream)]`; the stream outlives the borrow of `&self`, so that it takes `self:
/// Arc<Self>`, or borrows nothing (`impl Stream<...> + use<>`). A parameter of the type `Context`
/// is the call itself, and no argument. The first line of the doc comment is the description.
/// Helpers stand in an impl block of their own.
///
/// | of the block | |
/// |---|---|
/// | `name = "pricing"` | the name of the service; needed |
/// | `description = "..."` | what it does; the first line of the block's doc comment without it |
/// | `schemas` | JSON Schemas of the parameters and results, made of their types (feature `schemars`) |
///
/// | of a method: `#[method(...)]` | |
/// |---|---|
/// | `name = "..."` | another name than that of the function |
/// | `stream` | it gives a stream |
/// | `idempotent` | it may be called again where it is not known whether a call was handled |
/// | `timeout = 2.5` | seconds that a call may take where the caller says nothing |
/// | `visibility = "private"` | who may call it: `private` is nodes alone, `public` also clients of the HTTP gateway |
#[proc_macro_attribute]
pub fn service(options: TokenStream, block: TokenStream) -> TokenStream {
    service::expand(options.into(), block.into()).unwrap_or_else(|wrong| wrong.into_compile_error()).into()
}
