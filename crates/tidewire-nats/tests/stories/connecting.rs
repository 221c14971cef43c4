//! Stories of connecting: logins, and errors for unsuitable servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use tidewire_backend::home::{HomeErrorKind, HomeResult};
use tidewire_nats::open;

use crate::servers::{Server, home, publish_numbers, stream};

fn refused(url: &str) -> (HomeErrorKind, String) {
    let opened: HomeResult<_> = open(url);
    let error = opened.map(|home| home.place().to_owned()).expect_err(url);
    (error.kind(), error.message().to_owned())
}

#[test]
fn a_server_that_is_away_is_unreachable() {
    let (kind, words) = refused("nats://127.0.0.1:1");
    assert_eq!(kind, HomeErrorKind::Unreachable);
    assert!(
        words.starts_with("NATS at 127.0.0.1:1: can't be reached (") && words.contains("look whether it runs"),
        "{words}"
    );
}

#[test]
fn a_server_that_says_nothing_is_given_up_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (kind, words) = refused(&format!("nats://{}?connect_timeout_ms=50", silent.local_addr().unwrap()));
    assert_eq!(kind, HomeErrorKind::Unreachable);
    assert!(words.contains("did not answer in time"), "{words}");
}

/// Listens in front of a server, and loses the first request of its client to the JetStream API: so
/// it ends at a server of a cluster whose leader stands still.
fn lossy(server: &str) -> String {
    let (server, front) = (server.to_owned(), TcpListener::bind("127.0.0.1:0").unwrap());
    let place = front.local_addr().unwrap();
    thread::spawn(move || {
        let (mut client, _) = front.accept().unwrap();
        let mut server = TcpStream::connect(server).unwrap();
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let (mut said, mut is_lost, mut room) = (Vec::new(), false, [0; 4_096]);
        while let Ok(count @ 1..) = client.read(&mut room) {
            said.extend_from_slice(&room[..count]);
            if !is_lost && let Some(at) = found(&said, b"PUB $JS.API.INFO") {
                let Some(end) = found(&said[at..], b"\r\n\r\n") else { continue };
                said.drain(at..at + end + 4);
                is_lost = true;
            }
            if server.write_all(&said).is_err() {
                break;
            }
            said.clear();
        }
    });
    format!("nats://{place}")
}

fn found(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[test]
fn an_unanswered_request_is_sent_again_before_a_cluster_is_given_up() {
    let Some(server) = Server::start("") else { return };
    let front = lossy(server.url.trim_start_matches("nats://"));
    let home = open(&format!("{front}?request_timeout_ms=15000")).expect("the second request is answered");
    home.acquire("nightly", "one", 1_000_000, 0).wait().expect("it can be used");
    server.end();
}

#[test]
fn a_server_without_jetstream_is_refused() {
    let Some(server) = Server::start("jetstream: false") else { return };
    let (kind, words) = refused(&server.url);
    assert_eq!(kind, HomeErrorKind::Unsupported, "{words}");
    assert!(words.contains("there is no JetStream") && words.contains("start nats-server with --jetstream"), "{words}");
    server.end();
}

#[test]
fn an_account_without_jetstream_is_refused() {
    let config = "accounts { A { users: [{user: a, password: b}], jetstream: disabled } }";
    let Some(server) = Server::start(config) else { return };
    let (kind, words) = refused(&server.with("a:b"));
    assert_eq!(kind, HomeErrorKind::Unsupported, "{words}");
    assert!(words.contains("there is no JetStream (") && words.contains("enable it for this account"), "{words}");
    server.end();
}

#[test]
fn a_server_that_is_too_old_is_refused() {
    let Some(server) = Server::old("2.10.26") else { return };
    let (kind, words) = refused(&server.url);
    assert_eq!(kind, HomeErrorKind::Unsupported);
    assert!(words.contains("nats-server 2.10.26 is too old: install 2.11.0 or newer"), "{words}");
    server.end();
}

#[test]
fn users_are_let_in_by_password() {
    let Some(server) = Server::start("authorization { user: ann, password: \"p@ss\" }") else { return };
    drop(open(&server.with("ann:p%40ss")).unwrap());
    for (who, fix) in [("ann:wrong", "check user and password"), ("token", "check the token")] {
        let (kind, words) = refused(&server.with(who));
        assert_eq!(kind, HomeErrorKind::Denied);
        assert!(words.contains("refuses the login") && words.contains(fix) && !words.contains("wrong"), "{words}");
    }
    let (kind, words) = refused(&server.url);
    assert!(kind == HomeErrorKind::Denied && words.contains("it wants to know who asks"), "{words}");
    server.end();
}

#[test]
fn a_token_lets_in() {
    let Some(server) = Server::start("authorization { token: \"s3cret\" }") else { return };
    drop(open(&server.with("s3cret")).unwrap());
    assert_eq!(refused(&server.with("other")).0, HomeErrorKind::Denied);
    server.end();
}

#[test]
fn an_nkey_lets_in() {
    let [ours, other] = [nkeys::KeyPair::new_user(), nkeys::KeyPair::new_user()];
    let config = format!("authorization {{ users: [{{ nkey: {} }}] }}", ours.public_key());
    let Some(server) = Server::start(&config) else { return };
    let folder = Folder::new("nkey");
    let url = |name: &str, pair: &nkeys::KeyPair| {
        format!("{}?nkey={}", server.url, folder.file(name, &format!("{}\n", pair.seed().unwrap())))
    };
    drop(open(&url("ours", &ours)).unwrap());
    let (kind, words) = refused(&url("other", &other));
    assert_eq!(kind, HomeErrorKind::Denied);
    assert!(words.contains("this nkey's public key"), "{words}");
    server.end();
}

#[test]
fn a_credentials_file_lets_in() {
    let [operator, account, system, user, stranger] = [
        nkeys::KeyPair::new_operator(),
        nkeys::KeyPair::new_account(),
        nkeys::KeyPair::new_account(),
        nkeys::KeyPair::new_user(),
        nkeys::KeyPair::new_account(),
    ];
    let limits = r#""limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1,"mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1}"#;
    let of_account = format!(r#"{{{limits},"type":"account","version":2}}"#);
    let of_user = r#"{"pub":{},"sub":{},"subs":-1,"data":-1,"payload":-1,"type":"user","version":2}"#;
    let config = format!(
        "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {}, {}: {} }}",
        jwt(&operator, &operator, r#"{"type":"operator","version":2}"#),
        system.public_key(),
        account.public_key(),
        jwt(&operator, &account, &of_account),
        system.public_key(),
        jwt(
            &operator,
            &system,
            &of_account.replace(r#","mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1"#, "")
        ),
    );
    let Some(server) = Server::start(&config) else { return };
    let folder = Folder::new("creds");
    let url = |name: &str, signer: &nkeys::KeyPair| {
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
            jwt(signer, &user, of_user),
            user.seed().unwrap()
        );
        format!("{}?creds={}", server.url, folder.file(name, &text))
    };
    let home = open(&url("ours", &account)).unwrap();
    publish_numbers(&*home, &stream(&*home, "creds"), 3);
    let (kind, words) = refused(&url("stranger", &stranger));
    assert_eq!(kind, HomeErrorKind::Denied);
    assert!(words.contains("the JWT is in force"), "{words}");
    server.end();
}

#[test]
fn tls_is_checked_on_both_sides() {
    let folder = Folder::new("tls");
    let (authority, key) = authority("ours");
    let issuer = rcgen::Issuer::from_params(&authority.0, &key);
    let signed = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        (
            folder.file(&format!("{name}.pem"), &certificate.pem()),
            folder.file(&format!("{name}.key"), &key.serialize_pem()),
        )
    };
    let (certificate, private) = signed("127.0.0.1");
    let (client, client_key) = signed("client");
    let ours = folder.file("ca.pem", &authority.1);
    let other = folder.file("other.pem", &self::authority("other").0.1);
    let config =
        format!("tls {{ cert_file: {certificate:?}, key_file: {private:?}, ca_file: {ours:?}, verify: true }}");
    let Some(server) = Server::start(&config) else { return };
    let url = server.url.replace("nats://", "tls://");
    drop(open(&format!("{url}?tls_ca={ours}&tls_cert={client}&tls_key={client_key}")).unwrap());
    for query in [format!("tls_ca={other}&tls_cert={client}&tls_key={client_key}"), format!("tls_ca={ours}")] {
        let (kind, words) = refused(&format!("{url}?{query}"));
        assert!(matches!(kind, HomeErrorKind::Denied | HomeErrorKind::Unreachable), "{query}: {kind:?} {words}");
        assert!(
            words.contains("TLS can't be agreed on") || query.starts_with("tls_ca=/") && words.contains("reached"),
            "{words}"
        );
    }
    server.end();
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_demanded() {
    let Some(home) = home() else { return };
    let url = home.place().replace("NATS at ", "tls://");
    let (kind, words) = refused(&format!("{url}?connect_timeout_ms=500"));
    assert!(matches!(kind, HomeErrorKind::Denied | HomeErrorKind::Unreachable), "{words}");
}

#[test]
fn events_published_while_a_server_restarts_arrive_once() {
    let Some(mut server) = Server::start("") else { return };
    let home = server.home();
    let stream = stream(&*home, "restart");
    let mut answers = Vec::new();
    for round in 0..20 {
        if round == 10 {
            server.order("kill");
        }
        let messages = (0..50).map(|number| {
            let mut message = crate::servers::message(&stream, "n", format!("{round}.{number}"));
            message.id = Some(format!("{round}.{number}"));
            message
        });
        answers.push(home.publish(&stream, messages.collect(), false));
        if round == 12 {
            server.order("start");
        }
    }
    for answer in answers {
        answer.wait().unwrap().into_iter().for_each(|ack| assert!(ack.is_ok(), "{ack:?}"));
    }
    assert_eq!(home.stream_info(&stream).wait().unwrap().messages, 1_000);
    server.end();
}

#[test]
fn a_closed_home_takes_nothing_more() {
    let Some(home) = home() else { return };
    let stream = stream(&*home, "closed");
    let waiting = home.publish(&stream, vec![crate::servers::message(&stream, "n", "last")], false);
    home.close().wait().unwrap();
    waiting.wait().unwrap().remove(0).unwrap();
    let error = home.stream_info(&stream).wait().unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::Closed);
    let error = home.publish(&stream, Vec::new(), false).wait().unwrap_err();
    assert_eq!(error.kind(), HomeErrorKind::Closed);
}

/// A folder that goes when it is dropped.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidewire-nats-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Parameters and certificate of an authority, and its key.
fn authority(name: &str) -> ((rcgen::CertificateParams, String), rcgen::KeyPair) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = parameters.self_signed(&key).unwrap().pem();
    ((parameters, certificate), key)
}

/// A JWT as NATS wants it.
fn jwt(signer: &nkeys::KeyPair, subject: &nkeys::KeyPair, claims: &str) -> String {
    let (issuer, about) = (signer.public_key(), subject.public_key());
    let body = format!(
        r#"{{"jti":"{about}","iat":1700000000,"iss":"{issuer}","name":"test","sub":"{about}","nats":{claims}}}"#
    );
    let text = format!("{}.{}", url64(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#), url64(body.as_bytes()));
    let signature = url64(&signer.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

/// Base64 for URLs, without padding.
fn url64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |bits: u32| char::from(LETTERS[(bits & 63) as usize]);
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        text.extend((0..=part.len()).map(|at| letter(bits >> (18 - 6 * at))));
    }
    text
}
