//! Links with certificates and tokens: between nodes of Rust, and with Python in both directions.

use tidewire_node::{ErrorCode, Function, Node, NodeOptions, RemoteFunction, Service, Tls, Token};

use crate::certificates::Authority;
use crate::support::python::Python;

const TOKEN: &str = "a long secret of python";
const NARROW: &str = "a long secret of few rights";

/// A hub that only nodes with a token may join, over TLS.
fn hub(scheme: &str, authority: &Authority) -> Node {
    let few = Token::new(NARROW, "bob").call(&["svc.who.>"]).publish(&["news.*"]).subscribe(&["news.*"]);
    let tokens = [Token::new("a long secret of the hub", "hub"), Token::new(TOKEN, "ada").call(&["svc.who.>"]), few];
    let options = NodeOptions::named("hub").tls(authority.signed_for("127.0.0.1")).tokens(tokens);
    let hub = Node::listen(&format!("{scheme}://127.0.0.1:0"), options).wait().expect("it listens");
    for service in ["who", "secret"] {
        let who = Service::new(service)
            .method("who", &[], |call, ()| async move {
                Ok(format!("{} as {}", call.node(), call.user().unwrap_or("nobody")))
            })
            .method("twice", &["of"], |_, of: RemoteFunction| async move { Ok(2 * of.call::<i64>(&()).await?) });
        hub.serve(who).wait().expect("it serves");
    }
    hub
}

fn join(hub: &Node, token: Option<&str>, tls: Tls) -> Result<Node, tidewire_node::Error> {
    let options = NodeOptions::named("caller").tls(tls);
    Node::join(
        &hub.urls()[0],
        match token {
            Some(token) => options.token(token),
            None => options,
        },
    )
    .wait()
}

#[test]
fn a_node_with_a_token_joins_over_tls_and_does_what_the_token_allows() {
    let authority = Authority::new();
    for scheme in ["tide+tls", "wss"] {
        let hub = hub(scheme, &authority);
        let caller = join(&hub, Some(NARROW), authority.trusted()).expect("it joins");
        assert_eq!(caller.client("who").call::<String>("who", &()).wait().ok().as_deref(), Some("caller as bob"));
        // A node may call the functions that it was given, whatever its token allows.
        let seven = Function::new("seven", &[], |_, ()| async { Ok(7) });
        assert_eq!(caller.client("who").call::<i64>("twice", &seven).wait().expect("it is called"), 14);
        let refused = |wrong: Option<tidewire_node::Error>| {
            assert_eq!(wrong.map(|wrong| wrong.code()), Some(ErrorCode::Unauthorized))
        };
        refused(caller.client("secret").call::<String>("who", &()).wait().err());
        refused(caller.subscribe("orders.*").wait().err());
        refused(caller.serve(Service::new("mine").method("x", &[], |_, ()| async { Ok(()) })).wait().err());
        let mut news = caller.subscribe("news.*").wait().expect("it may");
        hub.publish("news.first", &1).expect("it is sent");
        assert_eq!(news.next_blocking().and_then(|message| message.read::<i64>().ok()), Some(1));
    }
}

#[test]
fn a_node_without_token_or_with_another_authority_does_not_join() {
    let authority = Authority::new();
    let hub = hub("tide+tls", &authority);
    for token in [None, Some("a long secret of nobody")] {
        let refused = join(&hub, token, authority.trusted()).expect_err("it may not");
        assert_eq!(refused.code(), ErrorCode::Unauthorized, "{refused}");
        assert!(!refused.to_string().contains("secret"), "a token is told: {refused}");
    }
    let distrusted = join(&hub, Some(TOKEN), Authority::new().trusted()).expect_err("it does not trust the hub");
    assert!(distrusted.to_string().contains("signed by nobody who is trusted here"), "{distrusted}");
    let plain = hub.urls()[0].replace("tide+tls", "tide");
    let plain = Node::join(&plain, NodeOptions::named("plain").token(TOKEN)).wait().expect_err("no TLS");
    assert_eq!(plain.code(), ErrorCode::LinkLost, "{plain}");
}

#[test]
fn a_hub_that_others_can_reach_asks_for_tokens_and_tls() {
    let listen = |options: NodeOptions| Node::listen("tide://0.0.0.0:0", options).wait().expect_err("it is open");
    let open = listen(NodeOptions::named("hub"));
    assert_eq!(open.code(), ErrorCode::Unauthorized);
    assert!(open.to_string().contains("a token and TLS (tide+tls:// or wss://) is missing"), "{open}");
    let plain = listen(NodeOptions::named("hub").tokens([Token::new(TOKEN, "ada")]));
    assert!(plain.to_string().contains("TLS (tide+tls:// or wss://) is missing"), "{plain}");
}

#[test]
fn python_joins_a_hub_of_rust_with_a_token_over_tls() {
    let authority = Authority::new();
    let hub = hub("tide+tls", &authority);
    let url = &hub.urls()[0];
    let Some(python) = Python::start_with("secured.py", &["join", url, &authority.folder()]) else { return };
    python.expect("refused");
    python.expect("done");
}

#[test]
fn rust_joins_a_hub_of_python_with_a_token_over_tls() {
    let authority = Authority::new();
    authority.signed_for("127.0.0.1");
    let arguments = ["listen", "tide+tls://127.0.0.1:0", &authority.folder()];
    let Some(python) = Python::start_with("secured.py", &arguments) else { return };
    let url = python.line();
    let options = || NodeOptions::named("rust").tls(authority.trusted());
    let caller = Node::join(&url, options().token(TOKEN)).wait().expect("it joins");
    assert_eq!(caller.client("greeter").call::<String>("greet", &"ada").wait().ok().as_deref(), Some("hello ada"));
    let refused = Node::join(&url, options()).wait().expect_err("it has no token");
    assert_eq!(refused.code(), ErrorCode::Unauthorized, "{refused}");
}
