//! Campaigns: seeds, rows and digests.

mod rows;
mod vectors;
