//! WebSocket where the build leaves it out: there is none.

use std::io;

use crate::address::NO_WEBSOCKET;
use crate::carrier::Carrier;
use crate::socket::tcp::TcpIo;

/// There is none.
pub enum WebSocketIo {}

/// # Errors
/// Always.
pub async fn accept(_: Carrier, _: usize) -> io::Result<WebSocketIo> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, NO_WEBSOCKET))
}

/// # Errors
/// Always.
pub async fn join(_: Carrier, _: &str, _: &str, _: usize) -> io::Result<WebSocketIo> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, NO_WEBSOCKET))
}

impl WebSocketIo {
    pub fn limit(&mut self, _: usize) {
        match *self {}
    }

    pub fn direct(&mut self) -> &mut TcpIo {
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
