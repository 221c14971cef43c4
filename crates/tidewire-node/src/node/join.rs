//! Set-up of a node before it joins a hub, or becomes one.

use tidewire_link::{Address, Greeting, Runtime};
use tidewire_proto::generated::errors::ErrorCode;

use crate::error::Error;
use crate::node::options::NodeOptions;

/// Where a URL leads, if it and the options are allowed.
pub(crate) fn address(url: &str, options: &NodeOptions) -> Result<Address, Error> {
    options.check()?;
    if let Some((scheme @ ("nats" | "tls"), rest)) = url.split_once("://") {
        return Err(no_hub(scheme, rest));
    }
    let address: Address = url.parse()?;
    Ok(match &options.tls {
        Some(tls) => address.with_tls(tls.clone())?,
        None => address,
    })
}

/// Refuses the URL of NATS servers, without its secrets and options.
fn no_hub(scheme: &str, rest: &str) -> Error {
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let text = format!(
        "url: \"{scheme}://{place}\" is not allowed: a node in Rust joins or becomes a hub, not a client of NATS. Run \
         `tidewire up --nats {scheme}://{place} --listen tide://127.0.0.1:7420`, and join tide://127.0.0.1:7420"
    );
    Error::new(ErrorCode::InvalidArgument, text)
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
        "url: {address} can be reached from other machines, and {} is missing: add it, listen on 127.0.0.1, \
         or set insecure if the network is trusted",
        missing.join(" and ")
    );
    Err(Error::new(ErrorCode::Unauthorized, text))
}

#[cfg(test)]
mod tests {
    use tidewire_proto::generated::errors::ErrorCode;

    use crate::node::core::Node;
    use crate::node::options::NodeOptions;

    #[test]
    fn a_url_of_nats_is_refused_with_the_hub_to_start() {
        for (url, place) in
            [("nats://ann:secret@one:4222,two:4222?name=x", "nats://one:4222,two:4222"), ("tls://one", "tls://one")]
        {
            for made in [Node::join, Node::listen] {
                let refused = made(url, NodeOptions::named("node")).wait().expect_err("it is no hub");
                assert_eq!(refused.code(), ErrorCode::InvalidArgument);
                let text = format!(
                    "url: {place:?} is not allowed: a node in Rust joins or becomes a hub, not a client of NATS. Run \
                     `tidewire up --nats {place} --listen tide://127.0.0.1:7420`, and join tide://127.0.0.1:7420"
                );
                assert_eq!(refused.to_string(), text);
            }
        }
    }
}
