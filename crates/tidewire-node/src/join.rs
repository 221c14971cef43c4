//! Set-up of a node before it joins a hub, or becomes one.

use tidewire_link::{Address, Greeting, Runtime};
use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;
use crate::options::NodeOptions;

/// Where a URL leads, if it and the options are allowed.
pub(crate) fn address(url: &str, options: &NodeOptions) -> Result<Address, Error> {
    options.check()?;
    let address: Address = url.parse()?;
    Ok(match &options.tls {
        Some(tls) => address.with_tls(tls.clone())?,
        None => address,
    })
}

pub(crate) fn runtime(options: &NodeOptions) -> Result<Runtime, Error> {
    let started = Runtime::start(&options.name);
    started
        .map_err(|error| Error::new(ErrorCode::LimitExceeded, format!("the system gives no thread for links: {error}")))
}

pub(crate) fn greeting(options: &NodeOptions, token: Option<String>) -> Greeting {
    Greeting { token, heartbeat_ms: options.heartbeat.as_millis() as u64, ..Greeting::new(&options.name) }
}

/// Refuses to listen where other computers can connect in clear text or without a token.
pub(crate) fn check_open(address: &Address, options: &NodeOptions) -> Result<(), Error> {
    if address.is_local() || options.insecure {
        return Ok(());
    }
    let is_secured = matches!(address, Address::Tls { .. } | Address::Ws { tls: Some(_), .. });
    let is_mutual = is_secured && options.tls.as_ref().is_some_and(|tls| tls.ca.is_some());
    let mut missing = Vec::new();
    if options.tokens.is_empty() && !is_mutual {
        missing.push("a token");
    }
    if !is_secured {
        missing.push("TLS (tide+tls:// or wss://)");
    }
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!(
        "url: {address} can be reached from other machines, and {} is missing: add what is missing, listen on 127.0.0.1, \
         or set insecure if the network is trusted",
        missing.join(" and ")
    );
    Err(Error::new(ErrorCode::Unauthorized, text))
}
