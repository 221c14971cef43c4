//! Servers that go away, are not ours, or refuse.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;

use postgres::{Client, NoTls};
use tidewire_backend::{CampaignId, Campaigns, ErrorKind, Missing, Settings, State};
use tidewire_postgres::open;
use tidewire_testkit::{
    Connection, digest_of, join, lease, no_parameters, plan, refused, results_of, start, store_all, work_off,
};

use crate::servers::{self, Server};
use crate::{Database, connect, place};

#[test]
fn a_server_that_starts_anew_is_met_again() {
    let Some(mut server) = Server::start() else { return };
    let url = server.url.clone();
    let mut store = connect(&url).unwrap();
    let id = start(&mut store, &plan("pi", 200));
    let worker = join(&mut store, id);
    let first = lease(store.claim(id, worker, &[]).unwrap());
    store_all(&mut store, id, first);
    let mut held = lease(store.claim(id, worker, &[]).unwrap());
    store.wait(0).unwrap();
    let mut other = connect(&url).unwrap();
    other.wait(0).unwrap();
    let waiter = thread::spawn(move || other.wait(3_600_000_000).map(|_| ()));
    server.order("stop");
    let results = results_of(&held, held.count, &[]);
    let error = store.commit(id, &mut held, &results).unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Unreachable, true), "{error}");
    refused(store.status(id), ErrorKind::Unreachable, "look whether it runs");
    refused(store.wait(0), ErrorKind::Unreachable, "127.0.0.1");
    let waited = waiter.join().unwrap();
    assert!(waited.is_ok() || waited.unwrap_err().retryable());
    server.order("start");
    store.commit(id, &mut held, &results).unwrap();
    assert!(store.wait(0).unwrap(), "whatever happened meanwhile");
    work_off(&mut store, id);
    let status = store.status(id).unwrap();
    assert_eq!((status.summary.state, status.digest), (State::Done, digest_of(200)));
    drop(store);
    server.end();
}

// Promises: P15.47.
#[test]
fn a_missing_or_foreign_database_is_named() {
    let Some(server) = servers::shared() else { return };
    let database = Database::new(server);
    let url = database.url();
    refused(open(&url, Missing::Fail), ErrorKind::Unreachable, "has no campaigns yet");
    let mut admin = Client::connect(&url, NoTls).unwrap();
    admin.batch_execute("CREATE TABLE tidewire_campaigns (song TEXT)").unwrap();
    refused(open(&url, Missing::Create), ErrorKind::Foreign, "not Tidewire's");
    admin.batch_execute("DROP TABLE tidewire_campaigns; CREATE TABLE tidewire_events (song TEXT)").unwrap();
    refused(open(&url, Missing::Create), ErrorKind::Foreign, "in the way");
    admin.batch_execute("DROP TABLE tidewire_events").unwrap();
    drop(open(&url, Missing::Create).unwrap());
    admin.batch_execute("UPDATE tidewire_meta SET value = '99' WHERE key = 'schema'").unwrap();
    refused(open(&url, Missing::Create), ErrorKind::Newer, "version 99");
    let (start, _) = url.rsplit_once('/').unwrap();
    refused(open(&format!("{start}/nowhere"), Missing::Create), ErrorKind::Url, "no such database");
    let (scheme, place) = start.split_once("tidewire:").unwrap();
    let host = place.split_once('@').unwrap().1;
    let wrong = format!("{scheme}tidewire:secret@{host}/postgres");
    refused(open(&wrong, Missing::Create), ErrorKind::Denied, "refuses the user or the password");
    assert!(!open(&wrong, Missing::Create).unwrap_err().message().contains("secret"));
    refused(open("postgres://ann:secret@127.0.0.1:1/farm", Missing::Create), ErrorKind::Unreachable, "127.0.0.1:1");
    let without = format!("{scheme}tidewire@{host}/postgres");
    refused(open(&without, Missing::Create), ErrorKind::Denied, "password missing");
    let secured = format!("{start}/postgres?sslmode=require");
    refused(open(&secured, Missing::Create), ErrorKind::Denied, "server does not support TLS");
}

#[test]
fn a_server_is_checked_as_the_url_says() {
    let Some(server) = Server::start() else { return };
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let mut admin = Client::connect(&server.url, NoTls).unwrap();
    let folder: String = admin.query_one("SHOW data_directory", &[]).unwrap().get(0);
    let folder = Path::new(&folder);
    let user = fs::metadata(folder).unwrap();
    for (name, text) in [
        ("server.crt", own.cert.pem()),
        ("server.key", own.signing_key.serialize_pem()),
        ("other.crt", other.cert.pem()),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(user.uid()), Some(user.gid())).unwrap();
    }
    admin.batch_execute("ALTER SYSTEM SET ssl = on").unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").unwrap();
    // Until the server has read it.
    while admin.query_one("SELECT current_setting('ssl')", &[]).unwrap().get::<_, String>(0) != "on" {}
    let with = |options: &str| format!("{}?{options}", server.url);
    let trusted = format!("sslmode=verify-full&sslrootcert={}", folder.join("server.crt").display());
    let untrusted = format!("sslmode=verify-full&sslrootcert={}", folder.join("other.crt").display());
    for (options, encrypted) in
        [("sslmode=disable", 0_i64), ("sslmode=prefer", 1), ("sslmode=require", 1), (&trusted, 1)]
    {
        let mut store = open(&with(options), Missing::Create).unwrap();
        store.list(None).unwrap();
        let count = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'tidewire'";
        assert_eq!(admin.query_one(count, &[]).unwrap().get::<_, i64>(0), encrypted, "{options}");
        drop(store);
        while admin.query_one(count, &[]).unwrap().get::<_, i64>(0) > 0 {}
    }
    refused(open(&with(&untrusted), Missing::Create), ErrorKind::Denied, "sslrootcert");
    refused(open(&with("sslmode=verify-full"), Missing::Create), ErrorKind::Denied, "UnknownIssuer");
    let elsewhere = with(&trusted).replace("127.0.0.1", "localhost");
    refused(open(&elsewhere, Missing::Create), ErrorKind::Denied, "not valid for name");
    drop(admin);
    server.end();
}

#[test]
fn users_without_rights_are_told_so() {
    let Some(server) = servers::shared() else { return };
    let database = Database::new(server);
    let mut store = connect(&database.url()).unwrap();
    let id = start(&mut store, &plan("pi", 20));
    work_off(&mut store, id);
    let user = database.name.clone();
    let mut admin = Client::connect(&database.url(), NoTls).unwrap();
    let statement =
        format!("CREATE ROLE {user} LOGIN PASSWORD 'x'; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}");
    admin.batch_execute(&statement).unwrap();
    let (_, place) = database.url().split_once('@').map(|(_, place)| ((), place.to_owned())).unwrap();
    let mut reader = connect(&format!("postgres://{user}:x@{place}")).unwrap();
    assert_eq!(reader.status(id).unwrap().summary.done, 20);
    assert_eq!(reader.read_rows(id, 0, 100).unwrap().len(), 20);
    refused(reader.note(id, "hello"), ErrorKind::Denied, "grant it");
    refused(reader.create(&plan("other", 1), &no_parameters()), ErrorKind::Denied, "");
    drop(reader);
    // As a server that follows another one.
    admin.batch_execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = on")).unwrap();
    let mut reader = connect(&format!("postgres://{user}:x@{place}")).unwrap();
    assert_eq!(reader.status(id).unwrap().summary.done, 20);
    refused(reader.note(id, "hello"), ErrorKind::ReadOnly, "name the primary server");
    drop(reader);
    admin.batch_execute(&format!("DROP OWNED BY {user}; DROP ROLE {user}")).unwrap();
}

// Promises: P15.46.
#[test]
fn a_campaign_held_for_too_long_is_a_retryable_error() {
    let Some(server) = servers::shared() else { return };
    let database = Database::new(server);
    let mut store = connect(&database.url()).unwrap();
    let id = start(&mut store, &plan("pi", 5));
    let mut other = Client::connect(&database.url(), NoTls).unwrap();
    other.batch_execute("BEGIN; SELECT 1 FROM tidewire_campaigns FOR UPDATE").unwrap();
    let error = store.note(id, "hello").unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Locked, true), "{error}");
    assert_eq!(store.status(id).unwrap().summary.done, 0, "reading waits for nobody");
    other.batch_execute("ROLLBACK").unwrap();
    work_off(&mut store, id);
}

#[test]
fn many_that_open_a_new_database_at_once_all_get_it() {
    let Some(server) = servers::shared() else { return };
    let database = Database::new(server);
    let url = database.url();
    let gate = std::sync::Barrier::new(6);
    thread::scope(|scope| {
        for number in 0..6 {
            let (url, gate) = (&url, &gate);
            scope.spawn(move || {
                gate.wait();
                connect(url).unwrap().create(&plan(&number.to_string(), 1), &no_parameters()).unwrap();
            });
        }
    });
    assert_eq!(connect(&url).unwrap().list(None).unwrap().len(), 6);
}

#[test]
fn results_are_tables_that_people_can_query() {
    let Some(place) = place() else { return };
    let mut store: Connection = place.connect();
    let sets = ["{\"teams\": 2}", "{\"teams\": 3}"].map(str::to_owned);
    let settings = Settings::default();
    let id = store.create(&tidewire_backend::Plan { settings, ..plan("Bingo, é: 2nd", 10) }, &sets).unwrap();
    assert_eq!(id, CampaignId(1));
    store.transition(id, State::Running, "").unwrap();
    work_off(&mut store, id);
    let mut admin = Client::connect(&place.address, NoTls).unwrap();
    let row = admin
        .query_one(
            "SELECT avg(area), max(created) > now() - interval '1 hour' FROM results_1_bingo_____2nd \
             JOIN tidewire_parameters USING (param_set) JOIN tidewire_campaigns ON id = campaign \
             WHERE campaign = 1 AND parameters::jsonb ->> 'teams' = '3'",
            &[],
        )
        .unwrap();
    assert!((row.get::<_, f64>(0) - 25.0 / 7.0 / 5.0).abs() < 1e-9);
    assert!(row.get::<_, bool>(1));
}
