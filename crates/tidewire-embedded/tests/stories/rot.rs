//! Bytes that change after they were synced, disks that are full, folders that others have open.

use tidewire_backend::home::{HomeErrorKind, NewMessage, Read, Start, StreamSettings};
use tidewire_embedded::disk::Disk as _;
use tidewire_embedded::disk::simulated::Simulated;
use tidewire_embedded::folder::{Folder, Sizes};
use tidewire_proto::subject::{Pattern, Subject};

const SIZES: Sizes = Sizes { segment_bytes: 400, reserve_bytes: 256, compact_bytes: 1 << 20 };

fn filled(seed: u64) -> Simulated {
    let disk = Simulated::new(seed);
    let mut folder = Folder::open(Box::new(disk.clone()), SIZES, seed, 1).expect("an empty disk");
    let subjects = vec![Pattern::new("a.>").expect("a pattern")];
    folder.create_stream(StreamSettings::new("s", subjects), 1).expect("a new stream");
    for number in 0..8_u8 {
        let message = NewMessage::new(Subject::new("a.b").expect("a subject"), vec![number; 60]);
        let acks = folder.publish("s", &[message], false, 2).expect("it takes it");
        assert!(acks[0].is_ok());
        folder.commit(3).expect("a disk with power");
    }
    folder.close(4).expect("a disk with power");
    disk
}

/// Opens a folder and reads its stream: how many events, or what kind of error.
fn read_all(disk: &Simulated) -> Result<usize, HomeErrorKind> {
    let mut folder = Folder::open(Box::new(disk.clone()), SIZES, 9, 5).map_err(|error| error.kind())?;
    let (max_messages, max_bytes) = (1_000, u32::MAX);
    let read = Read { start: Start::All, stop: None, filter: Vec::new(), max_messages, max_bytes, wait_us: 0 };
    let page = folder.read("s", &read, 5).map_err(|error| error.kind())?;
    for event in &page.events {
        assert_eq!(event.payload, vec![event.sequence as u8 - 1; 60], "an event that was never published");
    }
    Ok(page.events.len())
}

#[test]
fn a_byte_that_changed_is_seen_wherever_it_lies() {
    let disk = filled(1);
    assert_eq!(read_all(&disk), Ok(8));
    let files = filled(1).contents();
    let (mut refused, mut harmless) = (0, 0);
    for (name, bytes) in &files {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for at in 0..used {
            let disk = filled(1);
            disk.rot(name, at, 0x40);
            match read_all(&disk) {
                Err(HomeErrorKind::Corrupt | HomeErrorKind::Foreign) => refused += 1,
                // An index is made anew; the mark of a clean end may go: nothing of what was acked does.
                Ok(8) => harmless += 1,
                other => panic!("{name}: byte {at} has changed, and reading gives {other:?}"),
            }
        }
    }
    assert!(refused > 1_000 && harmless < refused, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_file_that_is_missing_is_noticed() {
    let names: Vec<String> = filled(2).contents().into_keys().filter(|name| name.ends_with(".log")).collect();
    assert!(names.len() > 3, "{names:?}");
    // The newest segment alone leaves no trace: all others do.
    for name in &names[..names.len() - 1] {
        let disk = filled(2);
        disk.clone().remove(name).expect("it is there");
        let found = read_all(&disk);
        let first = name.ends_with("/00000000000000000001.log") && name.starts_with("streams");
        assert!(found == Err(HomeErrorKind::Corrupt) || first, "{name} is missing, and reading gives {found:?}");
    }
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let disk = filled(3);
    let used: usize = disk.contents().values().map(Vec::len).sum();
    disk.limit_space(Some(used as u64 + 100));
    let mut folder = Folder::open(Box::new(disk.clone()), SIZES, 9, 5).expect("what is there can be read");
    let message = NewMessage::new(Subject::new("a.b").expect("a subject"), vec![0; 2_000]);
    let published = folder
        .publish("s", std::slice::from_ref(&message), false, 6)
        .map(|_| ())
        .and_then(|()| folder.commit(6).map(drop));
    assert_eq!(published.map_err(|error| error.kind()), Err(HomeErrorKind::Disk));
    drop(folder);
    assert_eq!(read_all(&disk), Ok(8));
    disk.limit_space(None);
    let mut folder = Folder::open(Box::new(disk), SIZES, 9, 7).expect("what is there can be read");
    let acks = folder.publish("s", &[message], false, 8).expect("there is room");
    folder.commit(8).expect("there is room");
    assert_eq!(acks[0].as_ref().map(|ack| ack.sequence), Ok(9));
}
