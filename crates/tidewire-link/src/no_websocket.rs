//! WebSocket where the build leaves it out: there is none.

use std::io;

use crate::address::NO_WEBSOCKET;
use crate::carrier::Carrier;
use crate::direct::Direct;

/// There is none.
pub enum Ws {}

/// # Errors
/// Always.
pub async fn accept(_: Carrier, _: usize) -> io::Result<Ws> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, NO_WEBSOCKET))
}

/// # Errors
/// Always.
pub async fn join(_: Carrier, _: &str, _: &str, _: usize) -> io::Result<Ws> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, NO_WEBSOCKET))
}

impl Ws {
    pub fn limit(&mut self, _: usize) {
        match *self {}
    }

    pub fn direct(&mut self) -> &mut Direct {
        match *self {}
    }

    pub fn is_held(&self) -> bool {
        match *self {}
    }

    pub fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn accept(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub fn close(&mut self) {
        match *self {}
    }
}
