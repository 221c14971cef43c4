//! Payloads in shared memory: their memory, and files that are refused.

use super::*;

use hub::MachineMemory as _;

fn memory(bytes: usize) -> Arc<SharedArena> {
    Arc::new(SharedArena::new(bytes).expect("the system has such files"))
}

fn payload(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Many pieces of all lengths.
struct PieceReader(Vec<u8>);

impl PayloadParts for PieceReader {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, at: usize) -> &[u8] {
        &self.0[at..self.0.len().min(at + 1 + at % 97)]
    }
}

fn read_there(place: &MemoryLocation, bytes: usize) -> Option<Vec<u8>> {
    let mut buffer = Vec::with_capacity(bytes + 7);
    buffer.extend_from_slice(b"before ");
    read(place, bytes, &mut buffer).then(|| buffer.split_off(7))
}

#[test]
fn a_payload_in_shared_memory_is_read_in_place() {
    let memory = memory(1 << 20);
    let mut blocks = Vec::new();
    for bytes in [1, 4_080, 4_081, 70_000, 300_000] {
        let (place, block) = memory.lay(&PieceReader(payload(bytes))).expect("there is room");
        blocks.push((place, block, bytes));
    }
    for (place, lying, bytes) in &blocks {
        assert!(read_there(place, *bytes) == Some(payload(*bytes)), "{bytes} bytes");
        assert!(lying.bytes() == *bytes && lying.piece(0) == payload(*bytes), "{bytes} bytes in chunks");
    }
}

#[test]
fn a_dropped_payload_makes_room_and_is_not_taken_for_the_next_one() {
    let memory = memory(3 * PAGE as usize);
    let lay = |bytes| memory.lay(&payload(bytes));
    let (first, second, third) = (lay(4_000), lay(4_000), lay(4_000));
    assert!(lay(1).is_none(), "there is no room");
    let (place, block) = second.expect("there was room");
    drop(block);
    assert!(lay(5_000).is_none(), "the room is one page");
    let (other, block) = lay(4_000).expect("there is room again");
    assert_eq!((other.at, read_there(&place, 4_000)), (place.at, None), "another payload lies there now");
    drop((first, third, block));
    assert!(lay(3 * PAGE as usize - MARK_BYTES).is_some(), "all of it is free, in one part");
}

#[test]
fn memory_goes_back_to_the_system_once_nothing_has_lain_there_for_a_while() {
    let memory = memory(1 << 20);
    let used = || memory.file.metadata().expect("it is open").blocks() * 512;
    let block = memory.lay(&payload(500_000)).expect("there is room");
    let later = now_us() + 2 * KEPT_US;
    memory.release(later);
    drop(block);
    memory.release(now_us());
    assert!(used() >= 500_000, "it may soon be used again");
    memory.release(later);
    assert!(used() < 20_000, "{} bytes", used());
    let (place, _block) = memory.lay(&payload(500_000)).expect("there is room");
    memory.release(later);
    assert!(read_there(&place, 500_000).is_some(), "what lies there stays");
}

#[test]
fn no_other_file_is_taken_for_shared_memory() {
    let memory = memory(1 << 20);
    let (place, _block) = memory.lay(&payload(100)).expect("there is room");
    assert!(SameHostProbe.shares(&memory.description()));
    let path = std::env::temp_dir().join(format!("tidewire-{}", std::process::id()));
    std::fs::write(&path, [place.mark.as_slice(), &[7; 100]].concat()).expect("a file can be written");
    let open = File::open(&path).expect("it is there");
    let other = MemoryLocation { file: open.as_raw_fd() as u32, at: 0, ..place };
    assert_eq!(read_there(&other, 100), None, "a file with a name");
    std::fs::remove_file(&path).expect("it is there");
    assert_eq!(read_there(&other, 100), None, "a file that had a name");
    let said = format!("{} {} {}", std::process::id(), open.as_raw_fd(), shown(&place.mark));
    for said in [said.as_str(), "", "1 2", "1 2 3 4", "a b c", &format!("{} ", memory.description())] {
        assert!(!SameHostProbe.shares(said), "{said:?}");
    }
    let [process, number, _]: [String; 3] =
        memory.description().split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().expect("three parts");
    assert!(!SameHostProbe.shares(&format!("{process} {number} {}", "0".repeat(32))), "another secret");
}

#[test]
fn those_who_ask_for_as_much_share_it_for_as_long_as_one_of_them_has_it() {
    let of_process = |bytes| SharedArena::of_process(bytes).expect("the system has such files");
    let (one, same, other) = (of_process(1 << 20), of_process(1 << 20), of_process(2 << 20));
    assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    let said = one.description();
    drop((one, same));
    assert!(!SameHostProbe.shares(&said), "it is gone with the last of them");
}

#[test]
fn a_place_that_can_not_be_is_refused() {
    let memory = memory(1 << 20);
    let (place, _block) = memory.lay(&payload(100)).expect("there is room");
    for place in [
        MemoryLocation { process: u32::MAX, ..place },
        MemoryLocation { file: u32::MAX, ..place },
        MemoryLocation { file: 0, ..place },
        MemoryLocation { at: u64::MAX, ..place },
        MemoryLocation { at: u64::MAX - 16, ..place },
        MemoryLocation { at: 1 << 40, ..place },
        MemoryLocation { mark: [0; 16], ..place },
    ] {
        assert_eq!(read_there(&place, 100), None, "{place:?}");
    }
    assert_eq!(read_there(&place, 2 << 20), None, "the file is not as long");
}
