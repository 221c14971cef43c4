//! Appends to a log, and deletion of its segments.

use tidewire_core::stream::log::{Appended, Full, New, Options, SegmentInfo, StreamLog};

fn options() -> Options {
    Options {
        max_age_us: None,
        max_bytes: None,
        max_messages: None,
        drop_old: false,
        dedupe_us: 100,
        ids_max: 10,
        compact: None,
        names_max: 10,
        segment_bytes: 300,
    }
}

fn new(id: Option<&str>) -> New<'_> {
    let payload = &[7; 100];
    New { subject: "a", key: None, id, headers: &[], due_us: None, ttl_us: None, origin: None, beat_us: None, payload }
}

fn log(options: Options) -> StreamLog {
    StreamLog::new(options, vec![SegmentInfo::new(1, 1, 45)], 1)
}

/// Appends and syncs one message, in a new segment if it is time for that.
fn store(log: &mut StreamLog, now_us: u64) -> Result<Appended, Full> {
    if log.should_roll(now_us) {
        log.rolled(SegmentInfo::new(log.next(), log.next(), 45));
    }
    let appended = log.append(&new(None), now_us)?;
    log.take_group().expect("there is something");
    log.synced();
    Ok(appended)
}

// Promises: P17.6.
#[test]
fn an_id_is_stored_once_within_its_window() {
    let mut log = log(options());
    let first = Appended { sequence: 1, duplicate: false };
    assert_eq!(log.append(&new(Some("x")), 0), Ok(first));
    assert_eq!(log.append(&new(Some("x")), 99), Ok(Appended { sequence: 1, duplicate: true }));
    assert_eq!(log.append(&new(Some("x")), 100), Ok(Appended { sequence: 2, duplicate: false }));
    assert_eq!(log.durable(), 0, "nothing is there before it was synced");
}

#[test]
fn a_full_log_refuses_or_drops_its_oldest() {
    let mut refuses = log(Options { max_messages: Some(2), ..options() });
    assert!(store(&mut refuses, 0).is_ok() && store(&mut refuses, 0).is_ok());
    assert_eq!(store(&mut refuses, 0), Err(Full::Messages(2)));
    refuses.purge_before(2);
    assert!(store(&mut refuses, 0).is_ok());
    let mut drops = log(Options { max_messages: Some(2), drop_old: true, ..options() });
    for _ in 0..9 {
        store(&mut drops, 0).expect("it drops");
        drops.retire(0);
    }
    assert_eq!((drops.first(), drops.messages()), (8, 2));
    assert!(drops.segments().len() <= 3, "segments that are over go whole");
    let mut bytes = log(Options { max_bytes: Some(600), drop_old: true, ..options() });
    for _ in 0..20 {
        store(&mut bytes, 0).expect("it drops");
        bytes.retire(0);
        assert!(bytes.bytes() <= 600 + 200, "{} bytes", bytes.bytes());
    }
}

// Promises: P17.42.
#[test]
fn old_segments_go_and_time_never_runs_back() {
    let mut log = log(Options { max_age_us: Some(1_000), ..options() });
    for time in [0, 400, 200, 900, 1_300] {
        store(&mut log, time).expect("there is room");
    }
    let gone: Vec<u64> = log.retire(1_400).iter().map(|segment| segment.last_time_us).collect();
    assert!(!gone.is_empty() && gone.iter().all(|time| *time <= 400), "{gone:?}");
}

#[test]
fn an_index_is_read_as_it_was_written_and_not_if_a_byte_changed() {
    let mut info = SegmentInfo::new(3, 10, 45);
    for sequence in 10..200 {
        info.saw(sequence, sequence, sequence * 1_000, sequence % 2 == 0);
    }
    info.delayed.push((5, 11));
    let bytes = info.encode();
    assert_eq!(SegmentInfo::decode(&bytes), Ok(info.clone()));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(SegmentInfo::decode(&changed).is_err(), "byte {at}");
    }
    assert_eq!(info.place_of(10), Some(10_000));
    assert!(info.place_of(100).is_some_and(|place| (60_000..=100_000).contains(&place)));
}
