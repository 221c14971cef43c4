//! Files of the operating system.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::{Disk, File};

/// A folder of the file system.
#[derive(Debug)]
pub struct Real {
    root: PathBuf,
}

impl Real {
    /// The folder at a path; created if it does not exist.
    ///
    /// # Errors
    ///
    /// The I/O error of the system.
    pub fn new(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Ok(Self { root: root.to_owned() })
    }
}

impl Disk for Real {
    fn names(&mut self, dir: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.root.join(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // A name that is not UTF-8 belongs to another program.
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn make_dir(&mut self, dir: &str) -> io::Result<()> {
        let path = self.root.join(dir);
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&path)?;
        fs::File::open(path.parent().unwrap_or(&self.root))?.sync_all()?;
        fs::File::open(&self.root)?.sync_all()
    }

    fn create(&mut self, name: &str) -> io::Result<Box<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(self.root.join(name))?;
        Ok(Box::new(RealFile(file)))
    }

    fn open(&mut self, name: &str) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile(OpenOptions::new().read(true).write(true).open(self.root.join(name))?)))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        absent_is_fine(fs::remove_file(self.root.join(name)))
    }

    fn remove_dir(&mut self, dir: &str) -> io::Result<()> {
        absent_is_fine(fs::remove_dir_all(self.root.join(dir)))
    }

    fn sync_dir(&mut self, dir: &str) -> io::Result<()> {
        fs::File::open(self.root.join(dir))?.sync_all()
    }
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < into.len() {
            match self.0.read_at(&mut into[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()?;
        // The system syncs a deleted file as well, and frees it once it is closed.
        if self.0.metadata()?.nlink() == 0 {
            return Err(io::Error::other("its file was deleted, by a program that has removed the folder, presumably"));
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn reserve(&mut self, length: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, length) {
            Ok(()) => Ok(()),
            // Some file systems have no reservations: the space is taken as it is written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.0.set_len(length),
            Err(error) => Err(error.into()),
        }
    }
}
