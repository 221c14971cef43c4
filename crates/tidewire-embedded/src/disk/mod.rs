//! The port of a disk: the files of a folder. Tests implement it with a disk that loses power.

mod real;

use std::io;

pub use real::Real;

/// A folder with files in folders of one level. Names are relative, with `/` between folder and
/// file.
///
/// Readers see a write at once. A write survives a loss of power once the file was synced. The
/// creation or removal of a file survives a loss of power once its folder was synced.
pub trait Disk: Send {
    /// Names in a folder, in order; empty if there is no such folder.
    fn names(&mut self, dir: &str) -> io::Result<Vec<String>>;
    /// Makes a folder, and syncs the one that it is in. One that is there is no error.
    fn make_dir(&mut self, dir: &str) -> io::Result<()>;
    /// Makes a file, which must not be there.
    fn create(&mut self, name: &str) -> io::Result<Box<dyn File>>;
    /// Opens a file that is there, for reading and writing.
    fn open(&mut self, name: &str) -> io::Result<Box<dyn File>>;
    /// Renames a file within its folder; a file of the new name is replaced.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. One that is not there is no error.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Removes a folder with all its files. One that is not there is no error.
    fn remove_dir(&mut self, dir: &str) -> io::Result<()>;
    /// Syncs which files a folder has.
    fn sync_dir(&mut self, dir: &str) -> io::Result<()>;
}

/// A file.
pub trait File: Send {
    /// Reads from a place; fewer bytes than asked for only at the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes all bytes at a place.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Waits until everything that was written, and the length, survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
    /// How long it is.
    fn length(&self) -> io::Result<u64>;
    /// Cuts it off, or makes it longer with zeros.
    fn set_length(&mut self, length: u64) -> io::Result<()>;
    /// Takes the space up to there from the file system, as zeros, and makes the file so long.
    fn reserve(&mut self, length: u64) -> io::Result<()>;
}

/// Reads a whole file.
pub fn read_all(file: &dyn File) -> io::Result<Vec<u8>> {
    let length = file.length()?;
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let read = file.read_at(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}
