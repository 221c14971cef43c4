//! Stories of data folders: crashes, loss of power, rot, and the suite that every home passes.

mod clock;
mod compaction;
mod power;
mod rot;
mod suite;
