//! Tests of the configuration: precedence of sources, errors with their origins, and dispatchers.

use proptest::prelude::*;
use toml::{Table, Value, toml};

use super::*;

fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn problems(code: Option<Table>, text: &str, env: Vec<(String, String)>) -> Vec<String> {
    let error = Config::load(code, Some(("app.toml", text)), env).unwrap_err();
    error.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_said_is_the_default_and_passes() {
    let config = Config::load(None, None, []).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.engine.check(), Ok(()));
    assert!(config.engine.dispatchers.contains_key("default"));
}

#[test]
fn the_environment_wins_over_the_text_and_the_text_over_code() {
    let code = toml! { spin_us = 1 stall_us = 101 lane_burst = 1 };
    let env = variables([("TIDEWIRE_LANE_BURST", "3"), ("TIDEWIRE_BENCH", "bench"), ("HOME", "/")]);
    let config = Config::load(Some(code), Some(("app.toml", "stall_us = 102\nlane_burst = 2")), env).unwrap();
    assert_eq!((config.engine.spin_us, config.engine.stall_us, config.engine.lane_burst), (1, 102, 3));
}

#[test]
fn sources_are_merged_within_a_dispatcher() {
    let env = variables([("TIDEWIRE_DISPATCHERS__IO__THREADS", " 1_000 "), ("TIDEWIRE_DISPATCHERS__CPU__SHARE", "IO")]);
    let config = Config::load(None, Some(("app.toml", "[dispatchers.IO]\nthroughput = 7\n")), env).unwrap();
    let io = &config.engine.dispatchers["IO"];
    assert_eq!((io.threads, io.throughput), (1000, 7));
    assert_eq!(config.engine.owner("cpu"), "IO");
    assert_eq!(config.engine.owner("default"), "default");
}

#[test]
fn a_share_may_be_called_like_a_number() {
    let env = variables([("TIDEWIRE_DISPATCHERS__4__THREADS", "2"), ("TIDEWIRE_DISPATCHERS__B__SHARE", "4")]);
    assert_eq!(Config::load(None, None, env).unwrap().engine.owner("b"), "4");
}

#[test]
fn all_problems_come_at_once_with_their_origins() {
    let code = toml! { throughputt = 5 mailbox_capacity = 0 };
    let text = "lane_burst = \"many\"\ndispatchers.io.thread = 2\ndispatchers.x = 3\nspin_us = -1\n";
    let env = variables([("TIDEWIRE_DISPATCHERS__IO__THREADS", "5000"), ("TIDEWIRE_SPIN", "9")]);
    let mut found = problems(Some(code), text, env);
    found.sort();
    let expected = [
        "TIDEWIRE_SPIN: unknown environment variable; did you mean TIDEWIRE_SPIN_US?",
        "dispatchers.io.thread: unknown key; did you mean threads? (from app.toml)",
        "dispatchers.io.threads: 5000 is out of range; 0 to 1024 threads are allowed \
         (from environment variable TIDEWIRE_DISPATCHERS__IO__THREADS)",
        "dispatchers.x: 3 is not a table; write a table with threads, spare_threads, throughput, share (from app.toml)",
        "lane_burst: \"many\" is not a whole number; 1 to 255 messages are allowed (from app.toml)",
        "mailbox_capacity: 0 is out of range; 1 to 1000000 messages are allowed (from code)",
        "spin_us: -1 is out of range; 0 to 1000 us are allowed (from app.toml)",
        "throughputt: unknown key; did you mean throughput? It belongs to one dispatcher: \
         dispatchers.default.throughput (from code)",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_misspelt_variable_is_suggested_and_its_value_is_not_shown() {
    let cases = [
        ("TIDEWIRE_TOKENN", "TIDEWIRE_TOKEN"),
        ("TIDEWIRE_STOR", "TIDEWIRE_STORE"),
        ("TIDEWIRE_MAILBOX_CAPACTY", "TIDEWIRE_MAILBOX_CAPACITY"),
        ("TIDEWIRE_DISPATCHERS_IO_THREADS", "TIDEWIRE_DISPATCHERS__IO__THREADS"),
        ("TIDEWIRE_DISPATCHERS__IO__THREDS", "TIDEWIRE_DISPATCHERS__IO__THREADS"),
        ("TIDEWIRE_DISPATCHERS__THREADS", "TIDEWIRE_DISPATCHERS__DEFAULT__THREADS"),
    ];
    for (wrong, right) in cases {
        let error = Config::load(None, None, variables([(wrong, "hush")])).unwrap_err();
        let expected = format!("configuration: {wrong}: unknown environment variable; did you mean {right}?");
        assert_eq!(error.to_string(), expected);
        assert!(!format!("{error:?}").contains("hush"));
    }
}

#[test]
fn a_share_must_lead_to_a_dispatcher() {
    let text = "[dispatchers.io]\nthreads = 1\n[dispatchers.a]\nshare = \"ioo\"\n[dispatchers.b]\nshare = \"c\"\n";
    assert_eq!(
        problems(None, text, variables([("TIDEWIRE_DISPATCHERS__C__SHARE", "b")])),
        [
            "dispatchers.a.share: \"ioo\" is no dispatcher; did you mean io? (from app.toml)",
            "dispatchers.b.share: \"c\" closes a ring of shares (b -> c -> b); let one of them have threads (from app.toml)",
            "dispatchers.c.share: \"b\" closes a ring of shares (c -> b -> c); let one of them have threads \
             (from environment variable TIDEWIRE_DISPATCHERS__C__SHARE)",
        ]
    );
}

#[test]
fn threads_beside_a_share_are_refused() {
    assert_eq!(
        problems(None, "[dispatchers.a]\nshare = \"default\"\nthreads = 2\n", Vec::new()),
        ["dispatchers.a.threads: has no effect, because a shares the threads of default; set it there (from app.toml)"]
    );
}

#[test]
fn a_text_that_is_not_toml_names_its_line() {
    let found = problems(None, "spin_us = 1\nstall_us = = 3\n", Vec::new());
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("app.toml: line 2 is not TOML: "), "{found:?}");
}

#[test]
fn a_configuration_made_by_hand_is_checked() {
    let mut config = EngineConfig { lane_burst: 256, ..EngineConfig::default() };
    let looped = DispatcherConfig { share: Some("self".into()), throughput: 0, ..DispatcherConfig::default() };
    config.dispatchers.insert("self".into(), looped);
    config.dispatchers.insert("a b".into(), DispatcherConfig::default());
    let error = config.check().unwrap_err();
    let keys: Vec<&str> = error.problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["lane_burst", "dispatchers.self.throughput", "dispatchers.\"a b\"", "dispatchers.self.share"]);
    assert_eq!(config.owner("self"), "self");
}

#[test]
fn dispatchers_are_counted() {
    let mut config = EngineConfig::default();
    config.dispatchers.extend((1..64).map(|n| (format!("d{n}"), DispatcherConfig::default())));
    assert_eq!(config.check(), Ok(()));
    config.dispatchers.insert("one-more".into(), DispatcherConfig::default());
    assert_eq!(config.check().unwrap_err().problems[0].key, "dispatchers");
}

#[test]
fn a_table_made_of_a_configuration_loads_again() {
    let text =
        "mailbox_capacity = 5\n[dispatchers.a]\nshare = \"default\"\nthroughput = 9\n[dispatchers.io]\nthreads = 3\n";
    let config = Config::load(None, Some(("app.toml", text)), []).unwrap();
    assert_eq!(Config::load(Some(config.to_table()), None, []), Ok(config));
}

#[test]
fn many_threads_are_worth_a_warning() {
    let mut config = EngineConfig::default();
    config.dispatchers.insert("io".into(), DispatcherConfig { threads: 18, ..DispatcherConfig::default() });
    assert_eq!(config.warnings(2), Vec::<String>::new());
    config.dispatchers.insert("io".into(), DispatcherConfig { threads: 19, ..DispatcherConfig::default() });
    assert_eq!(config.warnings(2).len(), 1);
}

fn any_key() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 8] =
        ["dispatchers", "default", "io", "threads", "share", "throughput", "mailbox_capacity", "spin_us"];
    prop_oneof![prop::sample::select(&KNOWN[..]).prop_map(str::to_owned), any::<String>()]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Integer),
        (0_i64..100).prop_map(Value::Integer),
        any::<f64>().prop_map(Value::Float),
        any::<bool>().prop_map(Value::Boolean),
        any_key().prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec((any_key(), inner), 0..4).prop_map(|pairs| Value::Table(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn each_announcement_is_taken_or_refused_with_reasons(
        code in prop::collection::vec((any_key(), any_value()), 0..4),
        text in any::<String>(),
        env in prop::collection::vec(("TIDEWIRE_(DISPATCHERS_{1,2})?[A-Za-z_ß]{0,20}(__THREADS)?", any::<String>()), 0..4),
    ) {
        match Config::load(Some(code.into_iter().collect()), Some(("app.toml", &text)), env) {
            Ok(config) => prop_assert_eq!(config.engine.check(), Ok(())),
            Err(error) => prop_assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
        }
    }
}

#[test]
fn agents_and_pools_have_a_table_of_their_own() {
    let text = "[broker]\nretry_limit = 2\nqueue_warning = 50\n";
    let variables = [("TIDEWIRE_BROKER__QUEUE_WARNING".to_owned(), "60".to_owned())];
    let config = Config::load(None, Some(("tidewire.toml", text)), variables).unwrap();
    assert_eq!((config.broker.get("retry_limit"), config.broker.get("queue_warning")), (Some(2), Some(60)));
    assert_eq!(Config::load(Some(config.to_table()), None, []).unwrap(), config);

    let wrong = "broker = 3\n[dispatchers.io]\nthreads = 2\n";
    let error = Config::load(None, Some(("f", wrong)), []).unwrap_err().to_string();
    assert!(error.contains("broker: 3 is not a table; write a table with agent_mailbox"), "{error}");

    let wrong = "[broker]\nretry_limits = 2\npool_workers = 0\n";
    let variables = [("TIDEWIRE_BROKER__RETRYLIMIT".to_owned(), "1".to_owned())];
    let error = Config::load(None, Some(("f", wrong)), variables).unwrap_err();
    let texts: Vec<String> = error.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "broker.pool_workers: 0 is out of range; 1 to 1024 workers are allowed (from f)",
            "broker.retry_limits: unknown key; did you mean retry_limit? (from f)",
            "TIDEWIRE_BROKER__RETRYLIMIT: unknown environment variable; did you mean TIDEWIRE_BROKER__RETRY_LIMIT?",
        ]
    );
}

#[test]
fn services_have_a_table_of_their_own() {
    let text = "[services]\nservice_waiting = 5\nstream_ahead = 1\n";
    let variables = [("TIDEWIRE_SERVICES__STREAM_AHEAD".to_owned(), "2".to_owned())];
    let config = Config::load(None, Some(("f", text)), variables).unwrap();
    let of = |key: &str| config.services.get(key);
    assert_eq!((of("service_waiting"), of("stream_ahead"), of("service_streams")), (Some(5), Some(2), Some(10_000)));
    assert_eq!(Config::load(Some(config.to_table()), None, []).unwrap(), config);

    let error = Config::load(None, Some(("f", "[services]\nservice_waiting = 0\nwaiting = 1\n")), []).unwrap_err();
    let texts: Vec<String> = error.problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], "services.service_waiting: 0 is out of range; 1 to 10000 calls are allowed (from f)");
    assert!(texts[1].starts_with("services.waiting: unknown key; "), "{texts:?}");
}

#[test]
fn links_have_a_table_of_their_own_and_options_win() {
    let text = "[links]\nlink_heartbeat_ms = 200\nlink_queue_bytes = 2097152\nlink_in_flight = 100\n";
    let env = || variables([("TIDEWIRE_LINKS__LINK_HEARTBEAT_MS", "300"), ("TIDEWIRE_LINKS__LINK_IN_FLIGHT", "200")]);
    let options = variables([("links.link_heartbeat_ms", "400"), ("dispatchers.io.threads", "2")]);
    let config = Config::load_with(None, Some(("f", text)), env(), options).unwrap();
    let of = |key: &str| config.links.get(key);
    assert_eq!(
        (of("link_heartbeat_ms"), of("link_in_flight"), of("link_queue_bytes")),
        (Some(400), Some(200), Some(2_097_152))
    );
    assert_eq!((of("link_batch_frames"), config.engine.dispatchers["io"].threads), (Some(64), 2));
    assert_eq!(Config::load(Some(config.to_table()), None, []).unwrap(), config);

    let text = "[links]\nlink_heartbeat = 200\n";
    let env = variables([("TIDEWIRE_LINKS__LINKS_HEARTBEAT_MS", "1"), ("TIDEWIRE_LINKS__LINK_FRAME_BYTES", "5")]);
    let options =
        variables([("links.link_heartbeat_ms", "soon"), ("link.a", "1"), ("links.a.b.c", "1"), ("links", "2")]);
    let error = Config::load_with(None, Some(("f", text)), env, options).unwrap_err();
    let texts: Vec<String> = error.problems.iter().map(ToString::to_string).collect();
    let keys = LINK_NAMES.join(", ");
    assert_eq!(
        texts,
        [
            "links.link_heartbeat: unknown key; did you mean link_heartbeat_ms? (from f)".to_owned(),
            "TIDEWIRE_LINKS__LINKS_HEARTBEAT_MS: unknown environment variable; did you mean TIDEWIRE_LINKS__LINK_HEARTBEAT_MS?"
                .to_owned(),
            "links.link_frame_bytes: 5 is out of range; 131072 to 16777216 bytes are allowed \
             (from environment variable TIDEWIRE_LINKS__LINK_FRAME_BYTES)"
                .to_owned(),
            "links.link_heartbeat_ms: \"soon\" is not a whole number; 50 to 3600000 ms are allowed (from --set)".to_owned(),
            "link: unknown key; did you mean links? (from --set)".to_owned(),
            format!("links.a: unknown key; known are {keys} (from --set)"),
            format!("links: 2 is not a table; write a table with {keys} (from --set)"),
        ]
    );
}

const LINK_NAMES: [&str; 26] = [
    "link_heartbeat_ms",
    "link_greeting_ms",
    "link_hello_bytes",
    "link_greetings",
    "link_backoff_ms",
    "link_backoff_max_ms",
    "link_queue_bytes",
    "link_frame_bytes",
    "link_chunk_bytes",
    "payload_bytes",
    "link_compress_bytes",
    "link_compress_near_bytes",
    "link_shared_bytes",
    "link_batch_bytes",
    "link_batch_frames",
    "link_in_flight",
    "link_subscriptions",
    "link_resends",
    "hub_links",
    "hub_queue_bytes",
    "hub_heartbeat_ms",
    "hub_name_ms",
    "link_said_bytes",
    "stream_credit",
    "remote_objects",
    "remote_lease_ms",
];
