//! Bytes that change after they were synced, disks that are full, folders that others have open.

use tidewire_backend::home::{Full, Home as _, HomeErrorKind, NewMessage, Read, Start, StreamSettings, Streams as _};
use tidewire_embedded::check::check;
use tidewire_embedded::disk::Disk as _;
use tidewire_embedded::folder::{Folder, Sizes};
use tidewire_embedded::{Options, open};
use tidewire_proto::subject::{Pattern, Subject};

use crate::simulated::Simulated;
use crate::suite;

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

// Promises: P17.45.
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
                // An index is rebuilt, and the mark of a clean end may be lost: no acked data is.
                Ok(8) => harmless += 1,
                other => panic!("{name}: byte {at} has changed, and reading gives {other:?}"),
            }
        }
    }
    assert!(refused > 1_000 && harmless < refused, "{refused} refused, {harmless} harmless");
}

// Promises: P17.40.
#[test]
fn a_file_that_is_missing_is_noticed() {
    let names: Vec<String> = filled(2).contents().into_keys().filter(|name| name.ends_with(".log")).collect();
    assert!(names.len() > 3, "{names:?}");
    // The newest segment alone leaves no trace: all others do.
    for name in &names[..names.len() - 1] {
        let disk = filled(2);
        disk.clone().remove(name).expect("it is there");
        let found = read_all(&disk);
        assert_eq!(found, Err(HomeErrorKind::Corrupt), "{name} is missing");
    }
}

// Promises: P17.40.
#[test]
fn a_missing_oldest_file_is_told_from_one_that_was_dropped() {
    let place = suite::Folder::new();
    let small = Sizes { segment_bytes: 4_096, reserve_bytes: 1_024, compact_bytes: 1 << 20 };
    let home = open(&place.0, Options { sizes: small }).expect("a new folder");
    let subjects = vec![Pattern::new("a.>").expect("a pattern")];
    let (full, max_bytes) = (Full::DropOld, Some(40_000));
    let settings = StreamSettings { full, max_bytes, ..StreamSettings::new("s", subjects) };
    home.create_stream(settings).wait().expect("a new stream");
    let message = NewMessage::new(Subject::new("a.b").expect("a subject"), vec![7; 500]);
    for _ in 0..50 {
        home.publish("s", vec![message.clone(); 5], false).wait().expect("the oldest are dropped");
    }
    let first = home.stream_info("s").wait().expect("it is there").first;
    assert!(first > 100, "it begins at {first}: much was dropped");
    home.close().wait().expect("it closes");
    let damage =
        || check(&place.0).expect("it can be read").into_iter().filter_map(|file| file.damage).collect::<Vec<_>>();
    assert_eq!(damage(), Vec::<String>::new());
    let home = open(&place.0, Options { sizes: small }).expect("what was dropped is no damage");
    assert_eq!(home.stream_info("s").wait().expect("it is there").first, first);
    home.close().wait().expect("it closes");
    let mut segments: Vec<_> = std::fs::read_dir(place.0.join("streams/s.1")).expect("a stream").flatten().collect();
    segments.retain(|file| file.path().extension().is_some_and(|end| end == "log"));
    let oldest = segments.iter().map(std::fs::DirEntry::path).min().expect("there are some");
    std::fs::remove_file(oldest).expect("it is there");
    let refused = open(&place.0, Options { sizes: small }).expect_err("a file is missing");
    assert_eq!(refused.kind(), HomeErrorKind::Corrupt);
    let said = format!("a segment is missing: events {first} to ");
    assert!(refused.message().contains(&said), "{refused}");
    assert!(damage().iter().any(|damage| damage.starts_with(&said)), "{:?}", damage());
}

#[test]
fn a_stream_that_drops_by_count_begins_where_it_did() {
    let disk = Simulated::new(4);
    let mut folder = Folder::open(Box::new(disk.clone()), SIZES, 4, 1).expect("an empty disk");
    let subjects = vec![Pattern::new("a.>").expect("a pattern")];
    let (full, max_messages) = (Full::DropOld, Some(3));
    folder.create_stream(StreamSettings { full, max_messages, ..StreamSettings::new("s", subjects) }, 1).expect("new");
    let message = NewMessage::new(Subject::new("a.b").expect("a subject"), vec![0; 5]);
    folder.publish("s", &vec![message; 5], false, 2).expect("it takes them");
    folder.commit(3).expect("a disk with power");
    drop(folder);
    let folder = Folder::open(Box::new(disk), SIZES, 5, 4).expect("what is there can be read");
    assert_eq!(folder.stream_info("s").expect("it is there").first, 3, "what was dropped stays so");
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

// Promises: P17.119.
#[test]
fn a_folder_that_was_deleted_acknowledges_nothing() {
    let folder = suite::Folder::new();
    let home = open(&folder.0, Options::default()).expect("a new folder");
    let subjects = vec![Pattern::new("a.>").expect("a pattern")];
    home.create_stream(StreamSettings::new("s", subjects)).wait().expect("a new stream");
    let publish = || {
        let message = NewMessage::new(Subject::new("a.b").expect("a subject"), vec![1; 60]);
        home.publish("s", vec![message], false).wait().and_then(|mut results| results.remove(0))
    };
    publish().expect("a folder that is there");
    std::fs::remove_dir_all(&folder.0).expect("a folder that can be removed");
    let refused = publish().expect_err("the file is gone");
    assert!(refused.message().contains("its file was deleted"), "{refused}");
    assert_eq!(publish().expect_err("the folder takes nothing more").kind(), HomeErrorKind::Closed);
}
