//! A disk in memory that loses power: a seed decides which unsynced writes are lost, stored or
//! torn.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire_embedded::disk::{Disk, File};

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct Simulated(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<u64, Content>,
    /// Files by name: now, and after a loss of power.
    names: BTreeMap<String, u64>,
    synced_names: BTreeMap<String, u64>,
    dirs: BTreeSet<String>,
    next: u64,
    random: u64,
    /// How many more operations succeed; the next one loses power in its middle.
    operations: Option<u64>,
    /// Writes fail from this many bytes on.
    space: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Sectors that differ from the synced ones.
    dirty: BTreeSet<usize>,
}

impl Simulated {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner { random: seed, ..Inner::default() })))
    }

    /// Power is lost in the middle of the operation after so many more.
    pub fn lose_power_after(&self, operations: u64) {
        self.lock().operations = Some(operations);
    }

    /// The files may take so many bytes together.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.lock().space = bytes;
    }

    /// Restores the power: synced writes are there, and the seed decides on the rest.
    pub fn restore_power(&self) {
        let mut inner = self.lock();
        inner.operations = None;
        let (names, synced) = (inner.names.clone(), inner.synced_names.clone());
        let mut after = BTreeMap::new();
        for name in names.keys().chain(synced.keys()).collect::<BTreeSet<_>>() {
            // A file that was made or removed without its folder being synced is there, or is not.
            let (new, old) = (names.get(name), synced.get(name));
            let file = if new == old || inner.draw(2) == 0 { new } else { old };
            after.extend(file.map(|file| (name.clone(), *file)));
        }
        for file in inner.files.keys().copied().collect::<Vec<_>>() {
            inner.lose(file);
        }
        inner.names.clone_from(&after);
        inner.synced_names = after;
    }

    /// Every file with its content.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let inner = self.lock();
        inner.names.iter().map(|(name, file)| (name.clone(), inner.files[file].now.clone())).collect()
    }

    /// Changes a byte of a file, as rot does.
    pub fn rot(&self, name: &str, at: usize, mask: u8) {
        let mut inner = self.lock();
        let file = inner.names[name];
        let content = inner.files.get_mut(&file).expect("the file has content");
        content.now[at] ^= mask;
        content.synced.clone_from(&content.now);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// SplitMix64.
    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }

    /// Counts an operation. `Ok(false)`: power is lost in its middle.
    fn operate(&mut self) -> io::Result<bool> {
        match &mut self.operations {
            None => Ok(true),
            Some(0) => Err(power()),
            Some(left) => {
                *left -= 1;
                Ok(*left > 0)
            }
        }
    }

    fn lose(&mut self, file: u64) {
        let mut content = self.files.remove(&file).expect("the file has content");
        // Sometimes all is lost, sometimes nothing, mostly something.
        let mood = self.draw(4);
        let longer = content.now.len() > content.synced.len() && (mood == 1 || self.draw(2) == 0);
        let mut after = content.synced.clone();
        if longer {
            after.resize(content.now.len(), 0);
        }
        for sector in std::mem::take(&mut content.dirty) {
            if mood == 0 || (mood != 1 && self.draw(2) == 0) {
                continue;
            }
            let (from, to) = (sector * SECTOR, ((sector + 1) * SECTOR).min(content.now.len()).min(after.len()));
            if from < to {
                after[from..to].copy_from_slice(&content.now[from..to]);
            }
        }
        content.now.clone_from(&after);
        content.synced = after;
        self.files.insert(file, content);
    }

    fn file(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, name.to_owned()))
    }

    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[file].now.len() as u64).sum()
    }
}

impl Content {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR..end.div_ceil(SECTOR));
    }
}

impl Disk for Simulated {
    fn names(&mut self, dir: &str) -> io::Result<Vec<String>> {
        let inner = self.lock();
        let prefix = format!("{dir}/");
        let below = inner.names.keys().chain(&inner.dirs).filter_map(|name| name.strip_prefix(&prefix));
        let names: BTreeSet<_> = below.filter_map(|name| name.split('/').next()).map(str::to_owned).collect();
        Ok(names.into_iter().collect())
    }

    fn make_dir(&mut self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if !inner.dirs.contains(dir) && inner.operate()? {
            inner.dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn File>> {
        let mut inner = self.lock();
        inner.operate()?;
        if inner.names.contains_key(name) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, name.to_owned()));
        }
        let file = inner.next;
        inner.next += 1;
        inner.files.insert(file, Content::default());
        inner.names.insert(name.to_owned(), file);
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn open(&mut self, name: &str) -> io::Result<Box<dyn File>> {
        let file = self.lock().file(name)?;
        Ok(Box::new(SimulatedFile { disk: self.clone(), file }))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let file = inner.file(from)?;
        if inner.operate()? {
            inner.names.remove(from);
            inner.names.insert(to.to_owned(), file);
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.operate()? {
            inner.names.remove(name);
        }
        Ok(())
    }

    fn remove_dir(&mut self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        let prefix = format!("{dir}/");
        let below: Vec<_> = inner.names.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
        for name in below {
            if inner.operate()? {
                inner.names.remove(&name);
            }
        }
        inner.dirs.remove(dir);
        Ok(())
    }

    fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if !inner.operate()? {
            return Err(power());
        }
        let prefix = format!("{dir}/");
        let inner = &mut *inner;
        inner.synced_names.retain(|name, _| !name.starts_with(&prefix));
        let here = inner.names.iter().filter(|(name, _)| name.starts_with(&prefix));
        inner.synced_names.extend(here.map(|(name, file)| (name.clone(), *file)));
        Ok(())
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: Simulated,
    file: u64,
}

impl File for SimulatedFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let inner = self.disk.lock();
        let content = &inner.files[&self.file].now;
        let from = content.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.disk.lock();
        let whole = inner.operate()?;
        let length = inner.files[&self.file].now.len() as u64;
        let grows = (offset + bytes.len() as u64).saturating_sub(length);
        if inner.space.is_some_and(|space| inner.used() + grows > space) {
            return Err(io::Error::from_raw_os_error(28));
        }
        // A write during a loss of power may have reached the disk in part.
        inner.files.get_mut(&self.file).expect("the file has content").write(offset as usize, bytes);
        if whole { Ok(()) } else { Err(power()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if !inner.operate()? {
            return Err(power());
        }
        let content = inner.files.get_mut(&self.file).expect("the file has content");
        let Content { now, synced, dirty } = content;
        synced.resize(now.len(), 0);
        for sector in std::mem::take(dirty) {
            let (from, to) = (sector * SECTOR, ((sector + 1) * SECTOR).min(now.len()));
            if from < to {
                synced[from..to].copy_from_slice(&now[from..to]);
            }
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.lock().files[&self.file].now.len() as u64)
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.lock();
        if !inner.operate()? {
            return Err(power());
        }
        let content = inner.files.get_mut(&self.file).expect("the file has content");
        let before = content.now.len();
        content.now.resize(length as usize, 0);
        // Bytes that were cut off and grown again differ from the synced ones.
        content.dirty.extend(before.min(length as usize) / SECTOR..before.max(length as usize).div_ceil(SECTOR));
        Ok(())
    }

    fn reserve(&mut self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.lock();
        let now = inner.files[&self.file].now.len() as u64;
        if inner.space.is_some_and(|space| inner.used() + length.saturating_sub(now) > space) {
            return Err(io::Error::from_raw_os_error(28));
        }
        if !inner.operate()? {
            return Err(power());
        }
        let content = inner.files.get_mut(&self.file).expect("the file has content");
        if (content.now.len() as u64) < length {
            content.now.resize(length as usize, 0);
        }
        Ok(())
    }
}

fn power() -> io::Error {
    io::Error::other("the simulated disk has lost power")
}
