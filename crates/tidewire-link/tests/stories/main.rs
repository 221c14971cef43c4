//! Stories of links over real sockets.

mod support;

mod crossings;
mod local;
mod spreading;
mod states;
mod transports;
mod transports_refused;
mod transports_web;
mod turns;
