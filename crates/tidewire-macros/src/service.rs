//! An impl block as a service: its functions as methods, and the function that makes the service.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Error, FnArg, GenericArgument, ImplItem, ImplItemFn, ItemImpl, Pat, PathArguments, ReceiverKind, Result,
    ReturnType, Signature, Type,
};

use crate::options::{OfMethod, OfService, first_line};

pub(crate) fn expand(options: TokenStream, block: TokenStream) -> Result<TokenStream> {
    let options = OfService::parse(options)?;
    let mut block: ItemImpl = syn::parse2(block)?;
    if let Some((of, _)) = &block.trait_ {
        return Err(Error::new_spanned(of, "a service is an impl block of a type, not of a trait for it"));
    }
    let Some(name) = options.name else {
        return Err(Error::new(Span::call_site(), "a service needs a name: #[service(name = \"...\")]"));
    };
    let functions = block.items.iter_mut().filter_map(|item| match item {
        ImplItem::Fn(function) => Some(function),
        _ => None,
    });
    let methods = all(functions.map(|function| {
        let options_of = OfMethod::take(&mut function.attrs)?;
        Ok(Method::new(function, options_of)?.written(options.schemas))
    }))?;
    let description = options.description.or_else(|| first_line(&block.attrs)).map(|text| quote!(.description(#text)));
    let (generics, _, bounds) = block.generics.split_for_impl();
    let of = &block.self_ty;
    Ok(quote! {
        #block

        impl #generics #of #bounds {
            /// The service that this value is: each function of its block is a method.
            // A method may fail with `Failure` itself.
            #[allow(clippy::needless_question_mark)]
            pub fn into_service(self) -> ::tidewire_node::Service {
                let this = ::std::sync::Arc::new(self);
                ::tidewire_node::Service::new(#name) #description #(.with(#methods))*
            }
        }
    })
}

/// All of them, or all that is wrong with them.
fn all<T>(results: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let (mut found, mut wrong) = (Vec::new(), None::<Error>);
    for result in results {
        match (result, &mut wrong) {
            (Ok(one), _) => found.push(one),
            (Err(error), Some(wrong)) => wrong.combine(error),
            (Err(error), None) => wrong = Some(error),
        }
    }
    wrong.map_or(Ok(found), Err)
}

/// A function of the block, as it is served.
struct Method<'a> {
    function: &'a ImplItemFn,
    options: OfMethod,
    /// It takes `self: Arc<Self>`, not `&self`.
    shares: bool,
    parameters: Vec<Parameter<'a>>,
}

enum Parameter<'a> {
    /// The call that it works at.
    Call,
    Argument(&'a Ident, &'a Type),
}

impl<'a> Method<'a> {
    fn new(function: &'a ImplItemFn, options: OfMethod) -> Result<Self> {
        let signature = &function.sig;
        match (options.stream, signature.asyncness) {
            (false, None) => {
                let text = "make it an `async fn`, or say #[method(stream)] if it gives a stream; helpers stand in an impl block of their own";
                return Err(Error::new_spanned(signature.fn_token, text));
            }
            (true, Some(begun)) => {
                return Err(Error::new_spanned(
                    begun,
                    "what gives a stream is a plain `fn`: it is the stream that waits",
                ));
            }
            _ => {}
        }
        if !signature.generics.params.is_empty() {
            let text = "callers of other programs know no type parameters: write the types";
            return Err(Error::new_spanned(&signature.generics, text));
        }
        let shares = shares(signature)?;
        let arguments = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Receiver(_) => None,
            FnArg::Typed(typed) => Some(typed),
        });
        let parameters = all(arguments.map(|typed| match (&*typed.pat, &*typed.ty) {
            (_, of) if is_named(of, "Context") => Ok(Parameter::Call),
            (_, Type::Reference(of)) => Err(Error::new_spanned(
                of,
                "an argument is read from what came: give an owned type, as String for &str",
            )),
            (Pat::Ident(name), of) if name.subpat.is_none() => Ok(Parameter::Argument(&name.ident, of)),
            (pattern, _) => Err(Error::new_spanned(pattern, "callers give arguments by name: write one name")),
        }))?;
        Ok(Self { function, options, shares, parameters })
    }

    /// The expression that makes it.
    fn written(&self, schemas: bool) -> TokenStream {
        let (function, options) = (&self.function.sig.ident, &self.options);
        let served = options.name.as_ref().map_or_else(|| plain(function), |name| name.value());
        let arguments: Vec<_> = self.parameters.iter().filter_map(Parameter::argument).collect();
        let (idents, types): (Vec<_>, Vec<_>) = arguments.into_iter().unzip();
        let names: Vec<_> = idents.iter().map(|ident| plain(ident)).collect();
        // Names of the macro differ from those of the user.
        let (this, call) = (format_ident!("__this"), format_ident!("__call"));
        let given = self.parameters.iter().map(|parameter| parameter.argument().map_or(&call, |(name, _)| name));
        let receiver = if self.shares { quote!(#this) } else { quote!(&#this) };
        let invoked = quote!(Self::#function(#receiver, #(#given),*));
        let (make, body) = match options.stream {
            true => (quote!(stream), invoked),
            false => {
                let body =
                    quote!(async move { ::core::result::Result::<_, ::tidewire_node::Failure>::Ok(#invoked.await?) });
                (quote!(new), body)
            }
        };
        let mut settings = TokenStream::new();
        if let Some(line) = first_line(&self.function.attrs) {
            settings.extend(quote!(.description(#line)));
        }
        if schemas && let Some(result) = self.result() {
            settings.extend(quote!(.schemas_from::<(#(#types,)*), #result>()));
        }
        if options.idempotent {
            settings.extend(quote!(.idempotent()));
        }
        if options.prompt {
            settings.extend(quote!(.prompt()));
        }
        if let Some(seconds) = options.timeout {
            settings.extend(quote!(.timeout(::core::time::Duration::from_secs_f64(#seconds))));
        }
        if let Some(visibility) = &options.visibility {
            let word = match visibility.value().as_str() {
                "node" => quote!(Node),
                "private" => quote!(Private),
                _ => quote!(Public),
            };
            settings.extend(quote!(.visibility(::tidewire_node::Visibility::#word)));
        }
        quote! {{
            let this = ::std::sync::Arc::clone(&this);
            ::tidewire_node::Method::#make(
                #served,
                &[#(#names),*],
                move |#call: ::tidewire_node::Context, (#(#idents,)*): (#(#types,)*)| {
                    let #this = ::std::sync::Arc::clone(&this);
                    #body
                },
            ) #settings
        }}
    }

    /// The type of the result, or of an item: the `T` of `Result<T, ...>` where that is written
    /// out.
    fn result(&self) -> Option<&Type> {
        let ReturnType::Type(_, of) = &self.function.sig.output else { return None };
        first_argument(of).filter(|_| is_named(of, "Result") && !self.options.stream)
    }
}

impl<'a> Parameter<'a> {
    fn argument(&self) -> Option<(&'a Ident, &'a Type)> {
        match self {
            Self::Call => None,
            Self::Argument(name, of) => Some((name, of)),
        }
    }
}

/// True if a function takes `self: Arc<Self>`; any other form than that and `&self` is wrong.
fn shares(signature: &Signature) -> Result<bool> {
    match signature.receiver().map(|receiver| &receiver.kind) {
        Some(ReceiverKind::Reference(_, _, None)) => Ok(false),
        Some(ReceiverKind::Typed(_, of)) if is_named(of, "Arc") => Ok(true),
        _ => {
            let text = "calls are handled at the same time: take `&self` or `self: Arc<Self>`";
            Err(Error::new_spanned(&signature.ident, text))
        }
    }
}

/// Without the `r#` of a keyword.
fn plain(ident: &Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

fn is_named(of: &Type, name: &str) -> bool {
    matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name))
}

fn first_argument(of: &Type) -> Option<&Type> {
    let Type::Path(path) = of else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(of) => Some(of),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
