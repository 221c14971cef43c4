//! TLS where the build leaves it out: there is no secured stream.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::sync::Arc;

use tokio::net::TcpStream;

use crate::socket::tcp::TcpIo;
use crate::tls::{Tls, TlsError};

/// Stand-ins for the TLS configurations of both sides: no value of these types exists.
pub type ClientSide = Infallible;
pub type ServerSide = Infallible;

/// There is none.
pub enum TlsIo {}

impl Tls {
    pub(crate) fn client(&self, _: &[u8]) -> Result<ClientSide, TlsError> {
        Err(TlsError(crate::address::NO_TLS.to_owned()))
    }

    pub(crate) fn server(&self, _: &[u8]) -> Result<ServerSide, TlsError> {
        Err(TlsError(crate::address::NO_TLS.to_owned()))
    }
}

impl TlsIo {
    pub async fn join(_: Arc<TcpStream>, _: &str, config: ClientSide) -> io::Result<Self> {
        match config {}
    }

    pub async fn accept(_: Arc<TcpStream>, config: &ServerSide) -> io::Result<Self> {
        match *config {}
    }

    pub fn stream(&self) -> &TcpStream {
        match *self {}
    }

    pub fn direct(&mut self) -> &mut TcpIo {
        match *self {}
    }

    pub fn close(&mut self) {
        match *self {}
    }
}

impl Read for TlsIo {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }
}

impl Write for TlsIo {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match *self {}
    }
}
