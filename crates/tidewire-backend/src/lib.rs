//! Ports of Tidewire: what a backend does, whichever database or server is behind it.
//!
//! - [`campaigns`]: campaigns of seeded runs, leased in ranges, results stored by range.
//! - [`home`]: homes of durable things: streams and their consumers, key-value buckets, leases.
//! - [`sql`]: what stores of campaigns on SQL databases have in common.
//!
//! A backend is a crate of its own (`tidewire-sqlite`, `tidewire-postgres`), and passes the
//! conformance suite of `tidewire-testkit`. What decides is in [`tidewire_core::campaign`].

#![forbid(unsafe_code)]

pub mod campaigns;
mod error;
pub mod home;
mod plan;
mod results;
pub mod sql;
mod status;

pub use campaigns::{Campaigns, Missing};
pub use error::{ErrorKind, Result, StoreError};
pub use plan::{Campaign, CampaignId, Plan, Precision, Schema, Settings};
pub use results::{Failure, RangeResults, Stages, StoredFailure};
pub use status::{Event, PrecisionSample, Status, Summary, WorkerId, WorkerInfo, WorkerStatus};
pub use tidewire_core::campaign::lease::{Claim, ClaimState, Lease};
pub use tidewire_core::campaign::rows::{Column, ColumnType, Rows};
pub use tidewire_core::campaign::seed::Seed;
pub use tidewire_core::campaign::state::State;
