//! Ports of Tidewire: interfaces of its backends, independent of the database or server.
//!
//! - [`campaigns`]: campaigns of seeded runs, leased in ranges, results stored by range.
//! - [`home`]: storage backends: streams and their consumers, key-value buckets, leases.
//! - [`sql`]: the common part of campaign stores on SQL databases.
//!
//! A backend is a crate of its own (`tidewire-sqlite`, `tidewire-postgres`), and passes the
//! conformance suite of `tidewire-testkit`. The decisions are in [`tidewire_core::campaign`].

#![forbid(unsafe_code)]

/// An enum with the variants of a table, all of them in a constant, and the name of each.
macro_rules! named {
    ($(#[$about:meta])* $enum:ident: $($(#[$text:meta])* $variant:ident = $name:literal,)*) => {
        $(#[$about])*
        #[non_exhaustive]
        pub enum $enum {
            $($(#[$text])* $variant,)*
        }

        impl $enum {
            /// Every variant, in the order of the table.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant,)*];

            /// The name for programs and tables, in snake case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

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
