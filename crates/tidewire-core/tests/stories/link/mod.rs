//! Nodes and a hub, joined by pipes in virtual time.

pub mod support;

mod alive;
mod announcing;
mod bounds;
mod calls;
mod compression;
mod ends;
mod fair;
mod federation;
mod garbage;
mod greeting;
mod histories;
mod inflating;
mod leaving;
mod limits;
mod memory;
mod owned;
mod packed;
mod payloads;
mod publish;
mod remote;
mod shares;
mod streams;
