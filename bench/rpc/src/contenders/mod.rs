//! Roles of each peer: dispatch of a role to its contender.

mod nats;
mod socket;
mod tidewire;
mod tonic;
mod zenoh;

use crate::Fault;
use crate::roles::{Contender, Options};

/// Takes one role for one contender.
pub async fn run(options: &Options) -> Result<(), Fault> {
    match options.contender {
        Contender::Tidewire => tidewire::run(options).await,
        Contender::Socket => socket::run(options).await,
        Contender::Nats => nats::run(options).await,
        Contender::Zenoh => zenoh::run(options).await,
        Contender::Tonic => tonic::run(options).await,
    }
}

/// The answer to a role that a contender doesn't have.
fn no_hub() -> Result<(), Fault> {
    Err("role hub: this contender has none".into())
}

/// The answer to a role that only joins nodes to the hubs of others.
fn no_crowd() -> Result<(), Fault> {
    Err("role crowd: it is not known how this contender joins many".into())
}

/// A port that nobody has at the moment, for those that can't choose one themselves.
fn free_port() -> Result<u16, Fault> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
