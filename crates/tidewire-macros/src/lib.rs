//! The attribute macro of `tidewire-node`. Use it from there, with the feature `macros`.

mod options;
mod service;

use proc_macro::TokenStream;

/// Makes a service of an impl block. Each function is a method; the macro adds `into_service`,
/// which returns the `Service` to serve. The names of the parameters are those of the function, so
/// that callers may pass arguments by name.
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
/// A method is an `async fn` of `&self` or `self: Arc<Self>` that returns a `Result` whose error is
/// a `Failure`, or becomes one by `?`. A method that returns a stream is a plain `fn` with
/// `#[method(stream)]`. The stream outlives the borrow of `&self`, so that the method takes `self:
/// Arc<Self>`, or borrows nothing (`impl Stream<...> + use<>`). A parameter of the type `Context`
/// is the call itself, and no argument. The first line of the doc comment is the description.
/// Helpers go in a separate impl block.
///
/// | of the block | |
/// |---|---|
/// | `name = "pricing"` | the name of the service; needed |
/// | `description = "..."` | its purpose; the first line of the block's doc comment by default |
/// | `schemas` | JSON Schemas of the parameters and results, made of their types (feature `schemars`) |
///
/// | of a method: `#[method(...)]` | |
/// |---|---|
/// | `name = "..."` | another name than that of the function |
/// | `stream` | it returns a stream |
/// | `idempotent` | it may be called again when the outcome of a call is unknown |
/// | `prompt` | its result is messages for a language model: MCP clients get it as a prompt |
/// | `timeout = 2.5` | default timeout of a call in seconds |
/// | `visibility = "private"` | permitted callers: `private` is nodes alone, `public` also clients of the HTTP gateway |
#[proc_macro_attribute]
pub fn service(options: TokenStream, block: TokenStream) -> TokenStream {
    service::expand(options.into(), block.into()).unwrap_or_else(|wrong| wrong.into_compile_error()).into()
}
