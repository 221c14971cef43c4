//! Campaigns: many seeded runs of one function, leased to workers in ranges.
//!
//! - [`random`]: Philox4x64-10, the counter-based generator that seeds come from and that a run
//!   draws from.
//! - [`seed`]: the key of a campaign, and the seed of each of its runs.
//! - [`rows`]: results as typed columns.
//! - [`digest`]: a sum of hashes that proves two campaigns to have stored the same rows.
//! - [`state`]: draft, running, paused, cancelled, failed, done.
//! - [`lease`]: the timed right of a worker to run a range.
//! - [`ledger`]: leased, finished and waiting runs.
//! - [`precision`]: sequential stopping once a mean is known precisely enough.
//!
//! `spec/campaigns.md` documents the bytes of all four; `spec/vectors/campaigns.json` has vectors.

pub mod digest;
pub mod lease;
pub mod ledger;
pub mod precision;
pub mod random;
pub mod rows;
pub mod seed;
pub mod state;
