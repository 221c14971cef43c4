//! The vocabulary that every part of Tidewire shares: pure data, no I/O, no clock, no `std`.
//!
//! - [`generated`]: every limit and every error code, made from the tables in `spec/`.
//! - [`subject`]: the addresses that messages are published to, and the patterns that select them.
//! - [`wire`]: the frames of a link.
//! - [`values`]: the form of the values in them.
//!
//! ```
//! use tidewire_proto::subject::{Pattern, Subject};
//!
//! let orders = Pattern::new("orders.*.created")?;
//! assert!(orders.matches(&Subject::new("orders.eu.created")?));
//! # Ok::<(), tidewire_proto::subject::SubjectError>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod generated;
pub mod subject;
pub mod values;
pub mod wire;
