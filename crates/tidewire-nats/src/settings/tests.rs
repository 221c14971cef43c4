//! Tests of URLs: their settings, and the errors for invalid ones.

use super::Settings;

fn refused(url: &str) -> String {
    Settings::read(url).expect_err(url).message().to_owned()
}

#[test]
fn a_url_names_servers_and_who_asks() {
    let settings =
        Settings::read("nats://ann:p%40ss@one,two:4223,[::1]:4224/?name=billing&connect_timeout_ms=250").unwrap();
    assert_eq!(settings.addresses(), ["nats://one:4222", "nats://two:4223", "nats://[::1]:4224"]);
    assert_eq!(settings.shown(), "NATS at one:4222, two:4223, [::1]:4224");
    assert!(matches!(&settings.login, super::Login::User { name, password } if name == "ann" && password == "p@ss"));
    assert_eq!(settings.name, "billing");
    assert_eq!(settings.connect_timeout.as_millis(), 250);
    let settings = Settings::read("tls://s3cret@host").unwrap();
    assert!(settings.tls.required && matches!(&settings.login, super::Login::Token(token) if token == "s3cret"));
    assert_eq!(settings.addresses(), ["tls://host:4222"]);
}

#[test]
fn invalid_settings_are_named_with_their_fix() {
    for (url, words) in [
        ("localhost:4222", "url: it names no way: begin it with nats:// or tls://"),
        ("http://host", "url: http:// is no way to NATS: begin it with nats:// or tls://"),
        ("nats://", "url: \"\" is no host: write nats://host:4222"),
        ("nats://a b", "url: \"a b\" is no host"),
        ("nats://host:0", "url: \"0\" is no port: write a number from 1 to 65535"),
        ("nats://host:high", "url: \"high\" is no port"),
        ("nats://one,,two", "url: \"\" is no host"),
        ("nats://:x@host", "url: it names nobody before the @: write user:password@ or token@"),
        ("nats://a%zz@host", "token: a % is not followed by two hexadecimal digits: write %25"),
        ("nats://host?timeout=5", "url: \"timeout\" is no option: the options are connect_timeout_ms, "),
        ("nats://host?name=a&name=b", "name: it is said twice: say it once"),
        ("nats://host?name=", "name: \"\" is no name of a client"),
        ("nats://host?domain=a.b", "domain: \"a.b\" is no JetStream domain"),
        ("nats://host?tls_first=1", "tls_first: \"1\" is neither: write true or false"),
        ("nats://host?connect_timeout_ms=5s", "connect_timeout_ms: \"5s\" is no number of milliseconds"),
        (
            "nats://host?ping_interval_ms=1",
            "ping_interval_ms: \"1\" is no number of milliseconds in its limits: write a whole number from 50 to 600000",
        ),
        ("nats://host?subjects=a..b", "subjects: \"a..b\" is no pattern: write tokens divided by dots"),
        ("nats://host?subjects=*.a", "subjects: \"*.a\" covers subjects of calls: begin with a name of yours"),
        ("nats://host?subjects=svc.>", "subjects: \"svc.>\" covers subjects of calls"),
        ("nats://host?subjects=a.>,a.*", "subjects: \"a.*\" overlaps \"a.>\": leave one of the two out"),
        ("nats://a:b@host?creds=/x", "creds: the name before the @ says who asks, too: keep one of"),
        ("nats://host?nkey=/x&creds=/x", "creds: nkey says who asks, too"),
        ("nats://host?nkey=/no/such", "nkey: \"/no/such\" can't be read ("),
        ("nats://host?tls_ca=/no/such", "tls_ca: \"/no/such\" can't be read ("),
    ] {
        let error = refused(url);
        assert!(error.starts_with(&format!("NATS: {words}")), "{url}: {error}");
    }
}

#[test]
fn files_are_looked_into() {
    let folder = std::env::temp_dir().join(format!("tidewire-nats-settings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).display().to_string()
    };
    let words = file("words", "nothing that proves anything");
    let account = file("account", &nkeys::KeyPair::new_account().seed().unwrap());
    let user = file("user", &format!("# ours\n{}\n", nkeys::KeyPair::new_user().seed().unwrap()));
    let pem = file("pem", "-----BEGIN CERTIFICATE-----\n");
    for (option, begin) in [
        (format!("nkey={words}"), "nkey: "),
        (format!("nkey={account}"), "nkey: "),
        (format!("creds={words}"), "creds: "),
        (format!("tls_ca={words}"), "tls_ca: "),
        (format!("tls_cert={pem}"), "tls_cert: its key is not said: name the key's file with tls_key"),
        (format!("tls_cert={pem}&tls_key={pem}"), "tls_key: "),
    ] {
        let error = refused(&format!("nats://host?{option}"));
        assert!(error.starts_with(&format!("NATS: {begin}")), "{option}: {error}");
        assert!(!error.contains("nothing that proves"), "{error}");
    }
    assert!(matches!(Settings::read(&format!("nats://host?nkey={user}")).unwrap().login, super::Login::Nkey(_)));
    assert!(Settings::read(&format!("nats://host?tls_ca={pem}")).unwrap().tls.required);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn secrets_are_not_shown() {
    let settings = Settings::read("nats://ann:hidden@host").unwrap();
    assert!(!format!("{settings:?}").contains("hidden"), "{settings:?}");
}
