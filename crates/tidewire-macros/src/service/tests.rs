//! Errors of the attribute of a service.

use quote::quote;

use super::expand;

fn wrong(function: &str) -> String {
    let function: proc_macro2::TokenStream = function.parse().expect("it is Rust");
    let block = quote!(impl Pricing { #function });
    expand(quote!(name = "pricing"), block).expect_err("it is wrong").to_string()
}

#[test]
fn errors_of_a_method_name_the_fix() {
    for (function, fix) in [
        ("fn plain(&self) -> Result<u8, Failure> { Ok(1) }", "`async fn`"),
        ("async fn changes(&mut self) -> Result<u8, Failure> { Ok(1) }", "`&self`"),
        ("async fn owns(self) -> Result<u8, Failure> { Ok(1) }", "`self: Arc<Self>`"),
        ("async fn any<T>(&self, of: T) -> Result<u8, Failure> { Ok(1) }", "write the types"),
        ("async fn text(&self, of: &str) -> Result<u8, Failure> { Ok(1) }", "String for &str"),
        ("async fn pair(&self, (a, b): (u8, u8)) -> Result<u8, Failure> { Ok(a) }", "one name"),
        ("#[method(stream)] async fn s(&self) -> S { S }", "plain `fn`"),
        ("#[method(timeout = 0)] async fn s(&self) -> Result<u8, Failure> { Ok(1) }", "seconds"),
        ("#[method(visibility = \"all\")] async fn s(&self) -> Result<u8, Failure> { Ok(1) }", "public"),
        ("#[method(nme = \"x\")] async fn s(&self) -> Result<u8, Failure> { Ok(1) }", "idempotent"),
    ] {
        let error = wrong(function);
        assert!(error.contains(fix), "{function}: {error}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let block = quote!(impl Pricing { fn a(&self) {} async fn b(self) {} });
    let errors = expand(quote!(name = "pricing"), block).expect_err("two are wrong");
    assert_eq!(errors.into_iter().count(), 2);
}

#[test]
fn a_service_has_a_name_and_is_of_a_type() {
    let block = quote!(impl Pricing {});
    assert!(expand(quote!(), block.clone()).is_err_and(|wrong| wrong.to_string().contains("name = ")));
    assert!(expand(quote!(name = "a", name = "b"), block).is_err_and(|wrong| wrong.to_string().contains("twice")));
    let block = quote!(impl Clone for Pricing {});
    assert!(expand(quote!(name = "a"), block).is_err_and(|wrong| wrong.to_string().contains("trait")));
}
