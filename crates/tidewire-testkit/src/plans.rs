//! Cases of plans: stored and refused plans.

use tidewire_backend::{CampaignId, Column, ColumnType, ErrorKind, Plan, Precision, Schema, Seed, Settings, State};

use crate::{EmptyStore, no_parameters, plan, refused, start, work_off};

pub fn a_plan_is_kept_as_it_was_given(place: &EmptyStore) {
    let mut store = place.connect();
    let columns = ColumnType::ALL.map(|kind| Column::new(format!("Of \"{kind}\" é"), kind));
    let settings = Settings {
        attempts: 7,
        timeout_us: Some(1),
        failed_max: Some(0),
        lease_us: 1_000,
        range_us: 1,
        until: Some(Precision { column: "Of \"float\" é".to_owned(), half_width: 0.25, confidence: 0.99 }),
    };
    let full = Plan {
        name: "π of Ann's; DROP TABLE".to_owned(),
        runs: 1 << 48,
        seed: Seed::text("monday").unwrap(),
        function: "farm:Böx.simulate".to_owned(),
        pickled: Some(vec![0, 255, 7]),
        code: "{\"farm\": \"abc\"}".to_owned(),
        schema: Some(Schema { columns: columns.to_vec(), many: true }),
        settings,
    };
    let bare = Plan { schema: None, seed: Seed::from(-1), ..plan("bare", 0) };
    for plan in [full, bare] {
        let id = store.create(&plan, &no_parameters()).unwrap();
        let stored = place.connect().campaign(id).unwrap();
        assert_eq!((stored.plan, stored.id, stored.sets), (plan, id, 1));
        assert!(stored.table.starts_with(&format!("results_{id}_")), "{}", stored.table);
        assert!(stored.created_us > 1_600_000_000_000_000, "{}", stored.created_us);
        let status = store.status(id).unwrap();
        assert_eq!((status.summary.state, status.leased, status.rows, status.digest), (State::Draft, 0, 0, 0));
    }
    assert_eq!(store.list(None).unwrap().iter().map(|line| line.id.0).collect::<Vec<_>>(), [2, 1]);
    store.transition(CampaignId(1), State::Running, "").unwrap();
    for (state, expected) in [(State::Running, 1), (State::Draft, 2)] {
        let found = store.list(Some(state)).unwrap();
        assert_eq!(found.iter().map(|line| (line.id.0, line.state)).collect::<Vec<_>>(), [(expected, state)]);
    }
    assert!(store.list(Some(State::Done)).unwrap().is_empty());
}

pub fn plans_that_no_store_keeps_are_refused(place: &EmptyStore) {
    let mut store = place.connect();
    let columns = |names: &[&str]| {
        let columns = names.iter().map(|name| Column::new(*name, ColumnType::Integer)).collect();
        Plan { schema: Some(Schema { columns, many: false }), ..plan("a", 1) }
    };
    let settings = |settings: Settings| Plan { settings, ..plan("a", 1) };
    let until = |column: &str, half_width, confidence| {
        let until = Some(Precision { column: column.to_owned(), half_width, confidence });
        settings(Settings { until, ..Settings::default() })
    };
    for (plan, says) in [
        (plan("", 1), "name: \"\""),
        (plan(&"x".repeat(129), 1), "128 bytes"),
        (plan("a\0b", 1), "control"),
        (plan("a", (1 << 48) + 1), "runs: 281474976710657"),
        (Plan { function: "a\0".to_owned(), ..plan("a", 1) }, "function"),
        (columns(&[]), "columns: 0"),
        (columns(&["run"]), "\"run\""),
        (columns(&["a", "Param_Set"]), "\"Param_Set\""),
        (columns(&["xmin"]), "\"xmin\""),
        (columns(&["Area", "area"]), "twice"),
        (columns(&["É", "é"]), "twice"),
        (columns(&[""]), "63 bytes"),
        (columns(&[&"x".repeat(64)]), "63 bytes"),
        (columns(&["a\0"]), "NUL"),
        (settings(Settings { attempts: 0, ..Settings::default() }), "attempts: 0"),
        (settings(Settings { timeout_us: Some(0), ..Settings::default() }), "timeout_us: 0"),
        (settings(Settings { lease_us: 999, ..Settings::default() }), "lease_us: 999"),
        (settings(Settings { range_us: u64::MAX, ..Settings::default() }), "range_us: 18446744073709551615"),
        (until("nothing", 0.1, 0.9), "no column \"nothing\"; there are hits, area"),
        (until("area", 0.0, 0.9), "half_width 0"),
        (until("area", f64::NAN, 0.9), "half_width NaN"),
        (until("area", 0.1, 1.0), "confidence 1"),
    ] {
        refused(store.create(&plan, &no_parameters()), ErrorKind::Invalid, says);
    }
    refused(store.create(&plan("a", 1), &[]), ErrorKind::Invalid, "parameters: none");
    for parameters in ["[]", "{", "", "{} {}", "3"] {
        let sets = ["{}".to_owned(), parameters.to_owned()];
        refused(store.create(&plan("a", 1), &sets), ErrorKind::Invalid, "set 1 is no JSON object");
    }
    assert!(store.list(None).unwrap().is_empty(), "nothing is half stored");
    store.create(&plan("a", 1), &no_parameters()).unwrap();
}

pub fn a_name_is_taken_once(place: &EmptyStore) {
    let (mut first, mut second) = (place.connect(), place.connect());
    let id = first.create(&plan("pi", 1), &no_parameters()).unwrap();
    refused(second.create(&plan("pi", 2), &no_parameters()), ErrorKind::NameTaken, "name: a campaign \"pi\" exists");
    let other = second.create(&plan("PI", 2), &no_parameters()).unwrap();
    assert_ne!(id, other);
    assert_ne!(first.campaign(id).unwrap().table, first.campaign(other).unwrap().table);
}

pub fn campaigns_are_found_by_name_and_then_by_number(place: &EmptyStore) {
    let mut store = place.connect();
    let first = store.create(&plan("pi", 1), &no_parameters()).unwrap();
    let second = store.create(&plan("1", 1), &no_parameters()).unwrap();
    assert_eq!(store.find("pi").unwrap(), first);
    assert_eq!(store.find("1").unwrap(), second, "the name counts first");
    assert_eq!(store.find("2").unwrap(), second);
    for unknown in ["tau", "3", "0", "-1", "", "a\0b", "99999999999999999999999"] {
        refused(store.find(unknown), ErrorKind::NoSuchCampaign, "list those that there are");
    }
    let none = CampaignId(77);
    refused(store.campaign(none), ErrorKind::NoSuchCampaign, "77");
    refused(store.status(none), ErrorKind::NoSuchCampaign, "77");
    refused(store.events(none), ErrorKind::NoSuchCampaign, "77");
    refused(store.errors(none, 0, 1), ErrorKind::NoSuchCampaign, "77");
    refused(store.read_rows(none, 0, 1), ErrorKind::NoSuchCampaign, "77");
    refused(store.parameters(none, 0, 1), ErrorKind::NoSuchCampaign, "77");
    refused(store.transition(none, State::Running, ""), ErrorKind::NoSuchCampaign, "77");
    refused(store.note(none, ""), ErrorKind::NoSuchCampaign, "77");
    refused(store.join(none, &Default::default()), ErrorKind::NoSuchCampaign, "77");
}

pub fn ten_thousand_parameter_sets(place: &EmptyStore) {
    let mut store = place.connect();
    let sets: Vec<String> = (0..10_000).map(|set| format!("{{\"steps\": {set}, \"name\": \"é\"}}")).collect();
    let id = store.create(&plan("sweep", 20_000), &sets).unwrap();
    assert_eq!(store.campaign(id).unwrap().sets, 10_000);
    for set in [0, 4_711, 9_999] {
        assert_eq!(store.parameters(id, set, 1).unwrap(), sets[set as usize..=set as usize]);
    }
    assert_eq!(store.parameters(id, 0, 20_000).unwrap(), sets);
    assert_eq!(store.parameters(id, 300, 256).unwrap(), sets[300..556]);
    assert_eq!(store.parameters(id, 9_998, 256).unwrap(), sets[9_998..], "those that there are");
    assert_eq!(store.parameters(id, 7, 0).unwrap(), sets[7..8], "one at least");
    refused(store.parameters(id, 10_000, 1), ErrorKind::Invalid, "10000 parameter sets");
    refused(store.parameters(id, u64::MAX, 1), ErrorKind::Invalid, "set: 18446744073709551615");
    let other = start(&mut store, &plan("other", 3));
    work_off(&mut store, other);
    assert_eq!(store.status(other).unwrap().summary.done, 3);
}
