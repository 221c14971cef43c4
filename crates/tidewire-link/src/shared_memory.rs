//! Memory that the processes of one host share: a node places long payloads there, and others read
//! them.
//!
//! The memory is a file without a name, which ends with the last process that has it open, however
//! that process ends. No process maps the file: all access is by system calls, so that no other
//! process can harm this one through the file. The system decides who may open the file, as for all
//! files of the process: processes of the same user, in the same container.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use tidewire_core::link::hub;
use tidewire_core::link::outbox::PayloadParts;
use tidewire_proto::wire::MemoryLocation;
use tidewire_sync::{Mutex, PerProcess};

use crate::clock::now_us;
use crate::yield_core::{PART_BYTES, yield_core};

/// The name of such a file, for those who list the open files of a process.
const NAME: &str = "tidewire";
/// Name of the file in the system.
const SHOWN: &str = "/memfd:tidewire (deleted)";
/// Payloads begin and end with pages. The first page has the secret.
const PAGE: u64 = 4_096;
/// How long unused memory stays allocated.
const KEPT_US: u64 = 1_000_000;
const MARK_BYTES: usize = 16;
/// Most slices of one write.
const SLICES: usize = 64;

/// Shared memory of this process by size. All nodes of the process share it, as each file costs a
/// descriptor.
static OF_PROCESS: PerProcess<Mutex<BTreeMap<usize, Weak<SharedArena>>>> = PerProcess::new();

/// Shared memory of this process.
pub struct SharedArena {
    file: File,
    secret: [u8; MARK_BYTES],
    /// How many payloads have lain here: no two have the same mark.
    placed: AtomicU64,
    free: Mutex<Free>,
}

/// The parts of it that are not in use.
struct Free {
    /// Where they begin, and how long they are. No two of them touch.
    parts: BTreeMap<u64, u64>,
    bytes: u64,
    /// Time of the last placed payload, unless the memory was given back since.
    used_us: Option<u64>,
}

/// A payload that lies in shared memory, until this is dropped.
pub struct SharedAllocation {
    block: Block,
    bytes: usize,
    /// Payload that was read back, for a receiver that wants it in chunks.
    back: OnceLock<Vec<u8>>,
}

/// A part of shared memory that is in use.
struct Block {
    memory: Arc<SharedArena>,
    at: u64,
    bytes: u64,
}

impl SharedArena {
    /// Memory for about so many bytes of payloads, for all who ask for as many. None is used before
    /// there are some.
    ///
    /// # Errors
    /// The error of the system if it has no such files, or no descriptor is left.
    pub fn of_process(bytes: usize) -> io::Result<Arc<Self>> {
        let mut known = OF_PROCESS.get().lock();
        if let Some(memory) = known.get(&bytes).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        known.retain(|_, memory| memory.strong_count() > 0);
        let memory = Arc::new(Self::new(bytes)?);
        known.insert(bytes, Arc::downgrade(&memory));
        Ok(memory)
    }

    fn new(bytes: usize) -> io::Result<Self> {
        let bytes = (bytes as u64).next_multiple_of(PAGE);
        let file = File::from(rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC)?);
        file.set_len(PAGE + bytes)?;
        let mut secret = [0; MARK_BYTES];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        write_all(&file, &mut [IoSlice::new(&secret)], 0)?;
        let free = Free { parts: BTreeMap::from([(PAGE, bytes)]), bytes, used_us: None };
        Ok(Self { file, secret, placed: AtomicU64::new(0), free: Mutex::new(free) })
    }

    /// Description of the memory by which other processes find out if they share it.
    pub fn said(&self) -> String {
        format!("{} {} {}", std::process::id(), self.file.as_raw_fd(), shown(&self.secret))
    }

    /// Places a payload in the memory. None: there is no capacity.
    pub fn lay(self: &Arc<Self>, payload: &dyn PayloadParts) -> Option<(MemoryLocation, SharedAllocation)> {
        let bytes = (MARK_BYTES + payload.bytes()) as u64;
        let at = self.free.lock().take(bytes.next_multiple_of(PAGE))?;
        let block = Block { memory: Arc::clone(self), at, bytes: bytes.next_multiple_of(PAGE) };
        let mark = self.next_mark();
        let place = MemoryLocation { process: std::process::id(), file: self.file.as_raw_fd() as u32, at, mark };
        self.write(&place, payload).ok()?;
        Some((place, SharedAllocation { block, bytes: payload.bytes(), back: OnceLock::new() }))
    }

    /// Gives the memory back to the system, if it is free and was not used for a while.
    pub fn release(&self, now_us: u64) {
        let mut free = self.free.lock();
        if free.is_all() && free.used_us.take_if(|used_us| now_us.saturating_sub(*used_us) > KEPT_US).is_some() {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Pages that can't be given back are used again.
            let _ = rustix::fs::fallocate(&self.file, punch, PAGE, free.bytes);
        }
    }

    /// A mark that nobody can guess, and that has not been used before.
    fn next_mark(&self) -> [u8; MARK_BYTES] {
        let number = self.placed.fetch_add(1, Ordering::Relaxed);
        let mut mark = self.secret;
        mark.iter_mut().zip(number.to_le_bytes()).for_each(|(byte, other)| *byte ^= other);
        mark
    }

    fn write(&self, place: &MemoryLocation, payload: &dyn PayloadParts) -> io::Result<()> {
        let (mut at, mut done, total) = (place.at, 0, payload.bytes());
        let mut slices = vec![IoSlice::new(&place.mark)];
        while done < total || !slices.is_empty() {
            let mut bytes: usize = slices.iter().map(|slice| slice.len()).sum();
            while done < total && slices.len() < SLICES && bytes < PART_BYTES {
                let piece = payload.piece(done);
                let piece = &piece[..piece.len().min(total - done).min(PART_BYTES - bytes)];
                (done, bytes) = (done + piece.len(), bytes + piece.len());
                slices.push(IoSlice::new(piece));
            }
            write_all(&self.file, &mut slices, at)?;
            at += bytes as u64;
            slices.clear();
            if done < total {
                yield_core();
            }
        }
        Ok(())
    }
}

impl Free {
    /// A part of so many bytes: the first that is long enough, so that the same memory is used
    /// again.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&at, &length) = self.parts.iter().find(|(_, length)| **length >= bytes)?;
        self.parts.remove(&at);
        if length > bytes {
            self.parts.insert(at + bytes, length - bytes);
        }
        self.used_us = Some(now_us());
        Some(at)
    }

    fn give(&mut self, mut at: u64, mut bytes: u64) {
        if let Some((&before, &length)) = self.parts.range(..at).next_back()
            && before + length == at
        {
            self.parts.remove(&before);
            (at, bytes) = (before, bytes + length);
        }
        if let Some(length) = self.parts.remove(&(at + bytes)) {
            bytes += length;
        }
        self.parts.insert(at, bytes);
    }

    fn is_all(&self) -> bool {
        self.parts.get(&PAGE) == Some(&self.bytes)
    }
}

impl PayloadParts for SharedAllocation {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn piece(&self, at: usize) -> &[u8] {
        let back = self.back.get_or_init(|| {
            let mut bytes = vec![0; self.bytes];
            let read = self.block.memory.file.read_exact_at(&mut bytes, self.block.at + MARK_BYTES as u64);
            // As with any other memory of this process: if the system can't give it back, nothing
            // can go on.
            read.expect("what this process wrote to its memory can be read");
            bytes
        });
        &back[at..]
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.memory.free.lock().give(self.at, self.bytes);
    }
}

/// Reads a payload in its place to the end of `buffer`, which has capacity for it. False: the
/// payload is gone, or this process can't read it; `buffer` may then have other bytes at its end.
pub fn read(place: &MemoryLocation, bytes: usize, buffer: &mut Vec<u8>) -> bool {
    opened(place.process, place.file).and_then(|file| read_from(&file, place, bytes, buffer)).unwrap_or(false)
}

fn read_from(file: &File, place: &MemoryLocation, bytes: usize, buffer: &mut Vec<u8>) -> io::Result<bool> {
    let end = buffer.len() + bytes;
    let mut at = place.at.checked_add(MARK_BYTES as u64).ok_or(io::ErrorKind::InvalidInput)?;
    if !has_mark(file, place)? {
        return Ok(false);
    }
    while buffer.len() < end {
        match rustix::io::pread(file, spare_capacity(buffer), at) {
            Ok(0) => return Ok(false),
            Ok(count) => at += count as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    buffer.truncate(end);
    // The owner may have given up the call, and placed another payload there meanwhile.
    has_mark(file, place)
}

fn has_mark(file: &File, place: &MemoryLocation) -> io::Result<bool> {
    let mut found = [0; MARK_BYTES];
    file.read_exact_at(&mut found, place.at)?;
    Ok(found == place.mark)
}

/// The shared memory of another process, or of this one. Any other file is refused: a number says
/// nothing of what it names.
fn opened(process: u32, number: u32) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(format!("/proc/{process}/fd/{number}"), flags, Mode::empty())?);
    let data = file.metadata()?;
    let is_own = data.is_file() && data.nlink() == 0 && data.uid() == rustix::process::geteuid().as_raw();
    if is_own && std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?.as_os_str() == SHOWN {
        return Ok(file);
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

fn write_all(file: &File, mut slices: &mut [IoSlice<'_>], mut at: u64) -> io::Result<()> {
    while !slices.is_empty() {
        match rustix::io::pwritev(file, slices, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                at += count as u64;
                IoSlice::advance_slices(&mut slices, count);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Check of a hub: is a node on this host, and of this user.
#[derive(Debug)]
pub struct SameHostProbe;

impl hub::MachineMemory for SameHostProbe {
    fn shares(&self, place: &str) -> bool {
        let Some((process, number, secret)) = parsed(place) else { return false };
        let mut found = [0; MARK_BYTES];
        opened(process, number).and_then(|file| file.read_exact_at(&mut found, 0)).is_ok() && shown(&found) == secret
    }
}

fn parsed(place: &str) -> Option<(u32, u32, &str)> {
    let mut parts = place.split(' ');
    let (process, number, secret) = (parts.next()?, parts.next()?, parts.next()?);
    Some((process.parse().ok()?, number.parse().ok()?, secret)).filter(|_| parts.next().is_none())
}

fn shown(secret: &[u8; MARK_BYTES]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
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
        assert!(SameHostProbe.shares(&memory.said()));
        let path = std::env::temp_dir().join(format!("tidewire-{}", std::process::id()));
        std::fs::write(&path, [place.mark.as_slice(), &[7; 100]].concat()).expect("a file can be written");
        let open = File::open(&path).expect("it is there");
        let other = MemoryLocation { file: open.as_raw_fd() as u32, at: 0, ..place };
        assert_eq!(read_there(&other, 100), None, "a file with a name");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(read_there(&other, 100), None, "a file that had a name");
        let said = format!("{} {} {}", std::process::id(), open.as_raw_fd(), shown(&place.mark));
        for said in [said.as_str(), "", "1 2", "1 2 3 4", "a b c", &format!("{} ", memory.said())] {
            assert!(!SameHostProbe.shares(said), "{said:?}");
        }
        let [process, number, _] = memory.said().split(' ').map(str::to_owned).collect::<Vec<_>>()[..]
            .to_vec()
            .try_into()
            .expect("three parts");
        assert!(!SameHostProbe.shares(&format!("{process} {number} {}", "0".repeat(32))), "another secret");
    }

    #[test]
    fn those_who_ask_for_as_much_share_it_for_as_long_as_one_of_them_has_it() {
        let of_process = |bytes| SharedArena::of_process(bytes).expect("the system has such files");
        let (one, same, other) = (of_process(1 << 20), of_process(1 << 20), of_process(2 << 20));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        let said = one.said();
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
}
