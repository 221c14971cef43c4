//! Campaigns on SQLite: one file, shared by the processes of one computer.
//!
//! The file is in WAL mode, and each transaction that writes is on disk when its call returns
//! (`synchronous = FULL`). Writers take turns (`BEGIN IMMEDIATE`); readers never wait. The decision
//! logic is in [`tidewire_backend::sql`].
//!
//! ```
//! use tidewire_backend::{Campaigns, Missing};
//!
//! # let folder = std::env::temp_dir().join(format!("tidewire-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let mut store = tidewire_sqlite::open(&folder.join("farm.db"), Missing::Create)?;
//! assert!(store.list(None)?.is_empty());
//! # drop(store);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod clock;
mod connection;
mod error;
mod results;

pub use connection::{Sqlite, open};
