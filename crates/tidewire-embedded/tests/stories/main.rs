//! Stories of data folders: crashes, loss of power, bit rot, and the suite of storage backends.

mod clock;
mod compaction;
mod power;
mod rot;
mod simulated;
mod suite;
