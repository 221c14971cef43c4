//! Campaigns: seeds, rows, digests, and the ledger of leases.

mod histories;
mod ledger;
mod rows;
mod vectors;
