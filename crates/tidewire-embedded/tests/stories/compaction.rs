//! Compacted streams: the newest event of each key stays, and replaced events free their space.

use std::collections::BTreeMap;

use tidewire_backend::home::{
    Compact, ConsumerSettings, Event, Fetch, HomeErrorKind, HomeResult, NewMessage, Read, Settle, Settlement, Start,
    StreamSettings,
};
use tidewire_embedded::folder::{Folder, Sizes};
use tidewire_proto::subject::{Pattern, Subject};
use tidewire_testkit::seeds::seeds;

use crate::simulated::Simulated;

const SIZES: Sizes = Sizes { segment_bytes: 2_000, reserve_bytes: 500, compact_bytes: 3_000 };
const SECOND: u64 = 1_000_000;

fn settings() -> StreamSettings {
    let subjects = vec![Pattern::new("s.>").expect("a pattern")];
    StreamSettings { compact: Some(Compact::Key), dedupe_us: 0, ..StreamSettings::new("s", subjects) }
}

fn message(key: u64, payload: u64) -> NewMessage {
    let mut message = NewMessage::new(Subject::new("s.x").expect("a subject"), payload.to_le_bytes().repeat(12));
    message.key = Some(format!("k{key}"));
    message
}

fn open(disk: &Simulated, random: u64, now_us: u64) -> HomeResult<Folder> {
    let mut folder = Folder::open(Box::new(disk.clone()), SIZES, random, now_us)?;
    folder.create_stream(settings(), now_us)?;
    folder.commit(now_us)?;
    Ok(folder)
}

fn read(folder: &mut Folder, now_us: u64) -> Vec<Event> {
    let (filter, max_messages, max_bytes) = (Vec::new(), u32::MAX, u32::MAX);
    let read = Read { start: Start::All, stop: None, filter, max_messages, max_bytes, wait_us: 0 };
    folder.read("s", &read, now_us).expect("it can be read").events
}

fn bytes_of(disk: &Simulated) -> usize {
    disk.contents().iter().filter(|(name, _)| name.starts_with("streams/")).map(|(_, bytes)| bytes.len()).sum()
}

#[test]
fn a_replaced_value_gives_its_space_back() {
    let disk = Simulated::new(1);
    let mut folder = open(&disk, 1, SECOND).expect("an empty disk");
    for number in 0..5_000 {
        folder.publish("s", &[message(number % 7, number)], false, SECOND).expect("it takes it");
        folder.commit(SECOND).expect("there is power");
    }
    let wrote = 5_000 * 8 * 12;
    let has = bytes_of(&disk);
    assert!(has < wrote / 20, "{has} bytes of {wrote} that were written are still there");
    let sequences: Vec<u64> = read(&mut folder, SECOND).iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (4_994..=5_000).collect::<Vec<_>>());
    assert_eq!(folder.stream_info("s").expect("it is there").messages, 7);
    folder.close(SECOND).expect("there is power");
    let mut again = open(&disk, 2, SECOND).expect("it was closed");
    assert_eq!(read(&mut again, SECOND).len(), 7);
    assert_eq!(again.stream_info("s").expect("it is there").messages, 7);
}

#[test]
fn an_expired_value_is_gone_and_shows_no_older_one() {
    let disk = Simulated::new(1);
    let mut folder = open(&disk, 1, SECOND).expect("an empty disk");
    folder.publish("s", &[message(0, 1)], false, SECOND).expect("it takes it");
    folder.commit(SECOND).expect("there is power");
    let mut short = message(0, 2);
    short.ttl_us = Some(SECOND);
    folder.publish("s", &[short], false, SECOND).expect("it takes it");
    for number in 0..500 {
        folder.publish("s", &[message(1, number)], false, 3 * SECOND).expect("it takes it");
        folder.commit(3 * SECOND).expect("there is power");
        assert!(read(&mut folder, 3 * SECOND).iter().all(|event| event.key.as_deref() == Some("k1")));
    }
    assert_eq!(folder.stream_info("s").expect("it is there").messages, 1, "the name is free");
    let mut again = open(&disk, 2, 3 * SECOND).expect("nothing is damaged");
    assert_eq!(read(&mut again, 3 * SECOND).len(), 1);
}

#[test]
fn a_consumer_gets_the_newest_of_each_key_over_gaps() {
    let disk = Simulated::new(1);
    let mut folder = open(&disk, 1, SECOND).expect("an empty disk");
    let settings = ConsumerSettings { start: Start::All, ..ConsumerSettings::new("c") };
    folder.create_consumer("s", settings, SECOND).expect("the stream is there");
    for number in 0..1_000 {
        folder.publish("s", &[message(number % 3 + if number < 10 { 10 } else { 0 }, number)], false, SECOND).unwrap();
        folder.commit(SECOND).expect("there is power");
    }
    let fetch = Fetch { max_messages: 100, max_bytes: 100_000, wait_us: 0 };
    let fetched = folder.fetch("s", "c", fetch, SECOND).expect("it can be read").deliveries;
    let sequences: Vec<u64> = fetched.iter().map(|delivery| delivery.event.sequence).collect();
    assert_eq!(sequences, [8, 9, 10, 998, 999, 1_000]);
    let acks = fetched.iter().map(|delivery| Settle {
        sequence: delivery.event.sequence,
        ticket: delivery.ticket,
        how: Settlement::Ack,
    });
    folder.settle("s", "c", acks.collect(), SECOND).expect("they are out");
    assert_eq!(folder.consumer_info("s", "c").expect("it is there").acked_to, 1_000);
}

#[test]
fn a_lookup_finds_the_last_event_of_a_segment() {
    let disk = Simulated::new(1);
    let mut folder = Folder::open(Box::new(disk), SIZES, 1, SECOND).expect("an empty disk");
    folder.create_stream(StreamSettings { compact: None, ..settings() }, SECOND).expect("it can be made");
    for number in 1..=100 {
        let mut late = message(0, number);
        late.deliver_at_us = Some(2 * SECOND + number);
        folder.publish("s", &[late], false, SECOND + number).expect("it takes it");
        folder.commit(SECOND + number).expect("there is power");
    }
    for number in 1..=100 {
        let found = folder.sequence_of("s", Start::Time(SECOND + number)).expect("it can be read");
        assert_eq!(found, number, "the first of that time");
    }
    assert!(folder.release_due(3 * SECOND).expect("each is where it was written"));
    folder.commit(3 * SECOND).expect("there is power");
    assert_eq!(read(&mut folder, 3 * SECOND).len(), 100);
}

#[test]
fn the_newest_of_each_key_survives_every_loss_of_power() {
    seeds("losses of power while a folder is compacted", 1, history);
}

fn history(number: u64) {
    let mut random = number.wrapping_mul(0x2545_F491_4F6C_DD1D) + 1;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % below
    };
    let disk = Simulated::new(number);
    let (mut sure, mut serial, mut now_us) = (BTreeMap::<u64, u64>::new(), 0, SECOND);
    for _ in 0..8 {
        disk.lose_power_after(5 + draw(400));
        let mut maybe = BTreeMap::new();
        let lived = (|| {
            let mut folder = open(&disk, draw(u64::MAX), now_us)?;
            for _ in 0..80 {
                maybe.clear();
                for _ in 0..=draw(6) {
                    serial += 1;
                    let (key, mut sent) = (draw(5), message(0, serial));
                    sent.key = Some(format!("k{key}"));
                    sent.deliver_at_us = (draw(10) == 0).then_some(now_us + draw(5_000));
                    let delayed = sent.deliver_at_us.is_some_and(|due| due > now_us);
                    folder.publish("s", &[sent], false, now_us)?.remove(0)?;
                    if !delayed {
                        maybe.insert(key, serial);
                    }
                }
                folder.commit(now_us)?;
                sure.append(&mut maybe);
                now_us += draw(4_000);
                // A released message is the newest of its key from then on.
                if folder.release_due(now_us)? {
                    sure.clear();
                    folder.commit(now_us)?;
                }
            }
            if draw(2) == 0 { folder.close(now_us) } else { Ok(()) }
        })();
        disk.lose_power_after(0);
        disk.restore_power();
        if let Err(error) = lived {
            assert_ne!(error.kind(), HomeErrorKind::Corrupt, "{error}");
        }
        let mut folder = open(&disk, draw(u64::MAX), now_us)
            .unwrap_or_else(|error| panic!("what a crash has left can't be opened: {error}"));
        let mut found = BTreeMap::new();
        for event in read(&mut folder, now_us) {
            let key = event.key.expect("each has a key")[1..].parse::<u64>().expect("a number");
            let serial = u64::from_le_bytes(event.payload[..8].try_into().expect("eight bytes"));
            assert!(found.insert(key, serial).is_none(), "two of key {key} are shown");
        }
        for (key, least) in &sure {
            assert!(found.get(key).is_some_and(|serial| serial >= least), "{least} of key {key} was acked: {found:?}");
        }
        // Delayed messages of the life that ended come as well.
        sure.clear();
    }
}
