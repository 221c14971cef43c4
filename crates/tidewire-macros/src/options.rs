//! The options of the attributes `service` and `method`, and their parser.

use proc_macro2::TokenStream;
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{Attribute, Error, Expr, ExprLit, Lit, LitFloat, LitInt, LitStr, Meta, Result};

/// Of the block.
#[derive(Default)]
pub(crate) struct OfService {
    pub name: Option<LitStr>,
    pub description: Option<String>,
    pub schemas: bool,
}

/// Of a method.
#[derive(Default)]
pub(crate) struct OfMethod {
    pub name: Option<LitStr>,
    pub stream: bool,
    pub idempotent: bool,
    pub prompt: bool,
    pub timeout: Option<f64>,
    pub visibility: Option<LitStr>,
}

impl OfService {
    pub fn parse(options: TokenStream) -> Result<Self> {
        let mut found = Self::default();
        let parser = syn::meta::parser(|meta| match key(&meta).as_str() {
            "name" => once(&meta, &mut found.name, meta.value()?.parse()?),
            "description" => once(&meta, &mut found.description, meta.value()?.parse::<LitStr>()?.value()),
            "schemas" => flag(&meta, &mut found.schemas),
            _ => Err(meta.error("a service has the options `name = \"...\"`, `description = \"...\"` and `schemas`")),
        });
        parser.parse2(options)?;
        Ok(found)
    }
}

impl OfMethod {
    /// Takes `#[method(...)]` away from the attributes of a function.
    pub fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut found = Self::default();
        let mut problem = None;
        attributes.retain(|attribute| {
            let is_ours = attribute.path().is_ident("method");
            if is_ours && let Err(wrong) = found.add(attribute) {
                problem.get_or_insert(wrong);
            }
            !is_ours
        });
        problem.map_or(Ok(found), Err)
    }

    fn add(&mut self, attribute: &Attribute) -> Result<()> {
        attribute.parse_nested_meta(|meta| match key(&meta).as_str() {
            "name" => once(&meta, &mut self.name, meta.value()?.parse()?),
            "stream" => flag(&meta, &mut self.stream),
            "idempotent" => flag(&meta, &mut self.idempotent),
            "prompt" => flag(&meta, &mut self.prompt),
            "timeout" => {
                let seconds = seconds(&meta.value()?.parse()?)?;
                once(&meta, &mut self.timeout, seconds)
            }
            "visibility" => {
                let text: LitStr = meta.value()?.parse()?;
                if !["node", "private", "public"].contains(&text.value().as_str()) {
                    return Err(Error::new(text.span(), "give \"node\", \"private\" or \"public\""));
                }
                once(&meta, &mut self.visibility, text)
            }
            _ => Err(meta.error(
                "a method has the options `name = \"...\"`, `stream`, `idempotent`, `prompt`, `timeout = seconds` and `visibility = \"...\"`",
            )),
        })
    }
}

fn key(meta: &ParseNestedMeta<'_>) -> String {
    meta.path.get_ident().map(ToString::to_string).unwrap_or_default()
}

fn once<T>(meta: &ParseNestedMeta<'_>, place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(meta.error("it is given twice")),
    }
}

fn flag(meta: &ParseNestedMeta<'_>, place: &mut bool) -> Result<()> {
    if std::mem::replace(place, true) { Err(meta.error("it is given twice")) } else { Ok(()) }
}

fn seconds(number: &Lit) -> Result<f64> {
    let seconds = match number {
        Lit::Int(number) => LitInt::base10_parse::<u32>(number).map(f64::from),
        Lit::Float(number) => LitFloat::base10_parse(number),
        _ => Ok(0.0),
    };
    match seconds {
        Ok(seconds) if seconds > 0.0 => Ok(seconds),
        _ => Err(Error::new(number.span(), "give seconds, more than 0")),
    }
}

/// The first line of a doc comment.
pub(crate) fn first_line(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) => {
                Some(line.value().trim().to_owned()).filter(|line| !line.is_empty())
            }
            _ => None,
        },
        _ => None,
    })
}
