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
    pub fn description(&self) -> String {
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
mod tests;
