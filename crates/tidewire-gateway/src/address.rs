//! Addresses on which a gateway listens.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use tidewire_node::Error;
use tidewire_proto::generated::errors::ErrorCode;

/// The address of a URL, `http://host:port`.
pub(crate) fn of_url(url: &str) -> Result<SocketAddr, Error> {
    let wrong = |fix: &str| Error::invalid(format!("url: {url:?} is not allowed: {fix}"));
    if url.starts_with("https://") {
        return Err(wrong(
            "TLS is for a proxy in front of the gateway: give http:// and an address that the proxy reaches",
        ));
    }
    let rest = url.strip_prefix("http://").ok_or_else(|| wrong("give http://host:port"))?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) {
        return Err(wrong("give http://host:port, and nothing behind it"));
    }
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("the port is missing: give http://host:port"))?;
    let port: u16 = port.parse().map_err(|_| wrong("give a port of 0 to 65535; with 0 the system chooses"))?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() {
        return Err(wrong("the host is missing: give http://host:port"));
    }
    let mut found =
        (host, port).to_socket_addrs().map_err(|error| wrong(&format!("{error}: give a name of this machine")))?;
    found.next().ok_or_else(|| wrong("give a name or an address of this machine"))
}

/// Refuses to listen where other computers can connect, unless the options allow that.
pub(crate) fn check_open(address: SocketAddr, is_open_hub: bool, is_insecure: bool) -> Result<(), Error> {
    if address.ip().is_loopback() || is_insecure {
        return Ok(());
    }
    let token = if is_open_hub { "without a token and " } else { "" };
    let text = format!(
        "url: http://{address} can be reached from other machines, {token}in clear text: listen on 127.0.0.1 behind a proxy with TLS, or set insecure \
         if the network is trusted"
    );
    Err(Error::new(ErrorCode::Unauthorized, text))
}

/// Refuses a console that other computers could open without a token.
pub(crate) fn check_console(address: SocketAddr, is_open_hub: bool) -> Result<(), Error> {
    if address.ip().is_loopback() || !is_open_hub {
        return Ok(());
    }
    let text =
        format!("console: everybody who reaches http://{address} could look: listen on 127.0.0.1, or give tokens");
    Err(Error::new(ErrorCode::Unauthorized, text))
}

/// True if the authority of a request is an IP address or `localhost`.
pub(crate) fn is_plain(authority: &str) -> bool {
    let host = host_of(authority);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

/// The host of an authority, without its port.
pub(crate) fn host_of(authority: &str) -> &str {
    match authority.rfind(':') {
        Some(at) if !authority.ends_with(']') => &authority[..at],
        _ => authority,
    }
}
