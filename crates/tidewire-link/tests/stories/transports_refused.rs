//! Sides that don't fit: each is told why, and nobody else notices.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tidewire_link::{Address, HubHandle, HubOptions, JoinError, Runtime, Tls};

use crate::support::certificates::{Authority, Folder};
use crate::support::{Answer, Echo, Node, Place, SOON};

fn address(url: &str) -> Address {
    url.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn secured(url: &str, tls: Tls) -> Place {
    Place::open(&address(url).with_tls(tls).expect("it has TLS"))
}

/// Why a node can't join, which must be found before long.
fn refusal(address: &Address) -> (JoinError, String) {
    let error = Node::try_join(address, "node").err().expect("it is not taken in");
    let text = error.to_string();
    (error, text)
}

#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn a_hub_whose_ca_is_not_trusted_is_not_joined() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    for scheme in ["tide+tls", "wss"] {
        let place = secured(&format!("{scheme}://localhost:0"), theirs.signed_for("localhost"));
        let (error, text) = refusal(&place.seen_with(&ours.trusted()));
        assert!(matches!(error, JoinError::Untrusted(..)), "{error:?}");
        assert_says(&text, &[scheme, "tls", "signed by nobody who is trusted here", "(ca)"]);
        assert_says(&place.logs("turned away"), &["UnknownCA"]);
    }
}

#[test]
fn a_hub_with_a_certificate_for_another_name_is_not_joined() {
    let authority = Authority::new();
    let place = secured("tide+tls://localhost:0", authority.signed_for("hub.example"));
    let (_, text) = refusal(&place.seen_with(&authority.trusted()));
    assert_says(&text, &["certificate is not accepted", "localhost", "hub.example"]);
}

#[test]
fn a_hub_with_an_expired_certificate_is_not_joined() {
    let authority = Authority::new();
    let place = secured("tide+tls://localhost:0", authority.expired_for("localhost"));
    let (_, text) = refusal(&place.seen_with(&authority.trusted()));
    assert_says(&text, &["certificate is not accepted", "expired"]);
}

#[test]
fn a_node_without_checks_joins_any_hub() {
    let authority = Authority::new();
    let place = secured("tide+tls://localhost:0", authority.expired_for("hub.example"));
    let unchecked = Tls { verify: false, ..Tls::default() };
    let node = Node::join(&place.seen_with(&unchecked), "node");
    assert!(node.link.joined().is_some());
}

#[test]
fn a_hub_that_wants_certificates_takes_no_node_without_one() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let hub = Tls { ca: authority.trusted().ca, ..authority.signed_for("localhost") };
    let place = secured("tide+tls://localhost:0", hub);
    let (_, text) = refusal(&place.seen_with(&authority.trusted()));
    assert_says(&text, &["it wants a certificate of this side", "(cert, key)"]);
    let other = Tls { ca: authority.trusted().ca, ..stranger.signed_for("node") };
    let (_, text) = refusal(&place.seen_with(&other));
    assert_says(&text, &["UnknownCA"]);
    let known = Tls { ca: authority.trusted().ca, ..authority.signed_for("node") };
    assert!(Node::join(&place.seen_with(&known), "node").link.joined().is_some());
}

/// Every scheme at the port of every other one.
#[test]
fn a_node_that_speaks_something_else_is_told_so() {
    let authority = Authority::new();
    let tls = authority.signed_for("localhost");
    let places = [
        Place::open(&address("tide://localhost:0")),
        secured("tide+tls://localhost:0", tls.clone()),
        Place::open(&address("ws://localhost:0")),
        secured("wss://localhost:0", tls),
    ];
    for (at, place) in places.iter().enumerate() {
        let server = Node::join(&trusting(&place.address, &authority), "server");
        let _kept = server.subscribe("svc.echo", Echo);
        for (other, scheme) in ["tide", "tide+tls", "ws", "wss"].iter().enumerate() {
            if at != other {
                let wrong = trusting(&address(&format!("{scheme}://localhost:{}", place.port())), &authority);
                let (error, text) = refusal(&wrong);
                let is_told = matches!(error, JoinError::Fault(..) | JoinError::Io(..));
                assert!(is_told, "{scheme} at {}: {error:?}", place.address);
                assert_says(&text, &["no hub"]);
                place.logs("");
            }
        }
        assert_eq!(server.ask("svc.echo", b"still here"), Answer::Reply(b"still here".to_vec()));
    }
}

fn trusting(address: &Address, authority: &Authority) -> Address {
    let secured = address.clone().with_tls(authority.trusted());
    secured.unwrap_or_else(|_| address.clone())
}

/// Bytes that are no handshake are answered, the connection is closed, and one log line says so.
#[test]
fn garbage_instead_of_a_handshake_ends_that_connection_only() {
    let authority = Authority::new();
    let tls = authority.signed_for("localhost");
    for place in [
        secured("tide+tls://localhost:0", tls.clone()),
        secured("wss://localhost:0", tls),
        Place::open(&address("ws://localhost:0")),
    ] {
        let server = Node::join(&trusting(&place.address, &authority), "server");
        let _kept = server.subscribe("svc.echo", Echo);
        let long = vec![b'a'; 100_000];
        for garbage in
            [&b"\x00\x01\x02\x03\r\n\r\n"[..], &[0xff; 300], b"\x16\x03\x01\xff\xff garbage", b"\r\n\r\n\r\n\0", &long]
        {
            let mut socket = TcpStream::connect(("localhost", place.port())).expect("the hub listens");
            socket.set_read_timeout(Some(SOON)).expect("the time is not 0");
            // The hub may have had enough before all of it is written.
            let _ = socket.write_all(garbage);
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let closed = socket.read_to_end(&mut answer);
            assert!(closed.is_ok() || is_reset(&closed), "{closed:?}");
            place.logs("turned away");
        }
        assert_eq!(server.ask("svc.echo", b"still here"), Answer::Reply(b"still here".to_vec()));
    }
}

fn is_reset<T>(closed: &std::io::Result<T>) -> bool {
    closed.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// Nothing is said, or half of what should be: the hub waits for `link_greeting_ms`, and goes on
/// with others meanwhile.
#[test]
fn a_handshake_that_does_not_end_is_cut_off() {
    let authority = Authority::new();
    let tls = authority.signed_for("localhost");
    let places = [
        secured("tide+tls://localhost:0", tls.clone()),
        secured("wss://localhost:0", tls),
        Place::open(&address("ws://localhost:0")),
    ];
    let silent: Vec<_> = places
        .iter()
        .flat_map(|place| [(place, &b""[..]), (place, b"GET / HT"), (place, b"\x16\x03\x01")])
        .map(|(place, start)| {
            let mut socket = TcpStream::connect(("localhost", place.port())).expect("the hub listens");
            socket.set_read_timeout(Some(SOON)).expect("the time is not 0");
            socket.write_all(start).expect("the hub reads");
            socket
        })
        .collect();
    for place in &places {
        let node = Node::join(&trusting(&place.address, &authority), "node");
        assert!(node.link.joined().is_some());
    }
    for mut socket in silent {
        let closed = socket.read_to_end(&mut Vec::new());
        assert!(closed.is_ok() || is_reset(&closed), "{closed:?}");
    }
    for place in &places {
        place.logs("link_greeting_ms");
    }
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let (authority, other, folder) = (Authority::new(), Authority::new(), Folder::new());
    let good = authority.signed_for("localhost");
    let missing = folder.0.join("missing.pem");
    let empty = folder.write("empty.pem", "nothing\n");
    let broken = folder.write("broken.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    let with = |cert: &Option<_>, key: &Option<_>| Tls { cert: cert.clone(), key: key.clone(), ..Tls::default() };
    for (tls, parts) in [
        (Tls::default(), ["cert: None is not allowed", "PEM files"]),
        (with(&good.cert, &None), ["key: None is not allowed", "localhost.pem"]),
        (with(&None, &good.key), ["cert: None is not allowed", "localhost.key"]),
        (with(&Some(missing.clone()), &good.key), ["cert: ", "missing.pem\" can't be read: No such file"]),
        (with(&good.cert, &Some(missing.clone())), ["key: ", "missing.pem\" can't be read: No such file"]),
        (with(&Some(empty.clone()), &good.key), ["cert: ", "empty.pem\" holds no certificate"]),
        (with(&good.cert, &Some(empty.clone())), ["key: ", "empty.pem\" holds no private key"]),
        (with(&Some(broken.clone()), &good.key), ["cert: ", "broken.pem\" is no PEM file"]),
        (with(&good.cert, &other.signed_for("localhost").key), ["key: ", "is not the key of the certificate in"]),
        (Tls { ca: Some(missing.clone()), ..good.clone() }, ["ca: ", "missing.pem\" can't be read"]),
    ] {
        let runtime = Runtime::start("hub").expect("a thread can be started");
        let hub = HubHandle::new(&runtime, HubOptions::new("hub"), |_| {});
        let place = address("tide+tls://localhost:0").with_tls(tls).expect("it has TLS");
        let error = hub.listen(&place).err().expect("it can't be listened with");
        assert!(error.is_tls());
        assert_says(&error.to_string(), &parts);
    }
    let place = secured("tide+tls://localhost:0", good);
    let (error, text) = refusal(&place.seen_with(&Tls { ca: Some(missing), ..Tls::default() }));
    assert!(matches!(error, JoinError::Tls(_)), "{error:?}");
    assert_says(&text, &["ca: ", "missing.pem\" can't be read"]);
}

#[test]
fn addresses_are_read_and_written() {
    for url in [
        "tide://127.0.0.1:7420",
        "tide://[::1]:7420",
        "tide+tls://hub.example:7421",
        "ws://hub.example:80/tide/wire?x=1",
        "wss://[::1]:443",
        "tide+unix:///run/tidewire.sock",
    ] {
        assert_eq!(address(url).to_string(), url);
    }
    assert_eq!(address("wss://hub.example").to_string(), "wss://hub.example:443");
    assert_eq!(address("ws://hub.example/").to_string(), "ws://hub.example:80");
    assert_eq!(address("tide://[::1]:1/").to_string(), "tide://[::1]:1");
    assert!(address("wss://[::1]").is_local() && !address("tide+tls://hub.example:1").is_local());
    for (url, part) in [
        ("tide://", "the host is missing"),
        ("tide://:7420", "the host is missing"),
        ("tide+tls://hub", "the port is missing"),
        ("tide+tls://[::1]", "the port is missing"),
        ("wss://:443", "the host is missing"),
        ("ws://hub:x", "the port is a number"),
        ("ws://hub:65536", "the port is a number"),
        ("ws://hub/a b", "the path has printable ASCII"),
        ("ws://hub/\r\nHost: other", "the path has printable ASCII"),
        ("ws://hub\r\nother/", "the host is a name or an address"),
        ("ws://user@hub/", "the host is a name or an address"),
        ("http://hub:80", "wss://host:port"),
        ("hub:80", "wss://host:port"),
    ] {
        let error = url.parse::<Address>().expect_err(url).to_string();
        assert_says(&error, &[&format!("url: {url:?} is not allowed"), part]);
    }
    let error = address("tide://hub:1").with_tls(Tls::default()).expect_err("it has no TLS").to_string();
    assert_says(&error, &["url: \"tide://hub:1\" is not allowed", "use tide+tls:// or wss://"]);
}
