//! The servers of a URL: `host:port`, several with commas.

use tidewire_backend::home::HomeResult;

use super::wrong;

const PORT: u16 = 4222;
const SERVERS_MAX: usize = 64;

/// Reads `host:4222,other:4222,[::1]`.
pub(crate) fn read(hosts: &str) -> HomeResult<Vec<String>> {
    let servers: Vec<_> = hosts.split(',').map(server).collect::<HomeResult<_>>()?;
    if servers.len() > SERVERS_MAX {
        let why = format!("it names {} servers", servers.len());
        return Err(wrong("url", why, "name at most 64; a client learns of the others of a cluster"));
    }
    Ok(servers)
}

fn server(text: &str) -> HomeResult<String> {
    let (host, port) = match text.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let fits = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(|letter| letter.is_ascii_alphanumeric() || ".-_".contains(letter)),
    };
    if !fits {
        let why = format!("{host:?} is no host");
        return Err(wrong("url", why, "write nats://host:4222, with brackets around an IPv6 address"));
    }
    let port = match port.map(str::parse::<u16>) {
        None => PORT,
        Some(Ok(number)) if number > 0 => number,
        Some(_) => {
            let why = format!("{:?} is no port", port.unwrap_or_default());
            return Err(wrong("url", why, "write a number from 1 to 65535, or leave it out for 4222"));
        }
    };
    Ok(format!("{host}:{port}"))
}
