//! The settings of a connection to NATS: a URL with its options, read and checked before anything
//! is sent.

mod login;
mod query;
mod servers;
mod tls;

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};
use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};
use tidewire_proto::generated::limits::{self, Limit};
use tidewire_proto::subject::Pattern;
use tidewire_proto::subject::grammar::{OF_AGENTS, OF_SERVICES};

pub use login::Login;
pub use tls::Tls;

use query::Query;

use crate::connection::{pause, refused};

/// Commands that wait for the socket.
const COMMANDS: usize = 4_096;

/// Settings of a connection to NATS: servers, login, TLS and timeouts.
///
/// They are read from a URL, `nats://user:password@host:4222,other:4222?name=billing`, whose
/// options `docs/guides/nats.md` lists.
///
/// `tls://` demands TLS; `nats://` uses TLS where the server does. `nats://TOKEN@host` passes a
/// token.
#[derive(Clone, derive_more::Debug)]
#[debug("Settings {{ servers: {servers:?}, login: {login:?}, name: {name:?}, .. }}")]
pub struct Settings {
    pub(crate) servers: Vec<String>,
    pub(crate) login: Login,
    pub(crate) tls: Tls,
    pub(crate) name: String,
    pub(crate) domain: Option<String>,
    pub(crate) subjects: Vec<Pattern>,
    pub(crate) synced: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) publish_timeout: Duration,
    pub(crate) ping_interval: Duration,
    pub(crate) reconnect_wait_max: Duration,
}

impl Settings {
    /// Reads a URL, and the files that it names.
    ///
    /// # Errors
    ///
    /// [`Invalid`](HomeErrorKind::Invalid) if the URL, an option, or a file that it names can't be
    /// used. No error shows a password, a token or a seed.
    pub fn read(url: &str) -> HomeResult<Self> {
        let (demands_tls, rest) = match url.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            Some((scheme, _)) => {
                return Err(wrong("url", format!("{scheme}:// is no way to NATS"), "begin it with nats:// or tls://"));
            }
            None => return Err(wrong("url", "it names no way".to_owned(), "begin it with nats:// or tls://")),
        };
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut query = Query::read(options)?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let (who, hosts) = place.rsplit_once('@').map_or((None, place), |(who, hosts)| (Some(who), hosts));
        let settings = Self {
            servers: servers::read(hosts)?,
            login: Login::read(who, &mut query)?,
            tls: Tls::read(demands_tls, &mut query)?,
            name: name(&mut query)?,
            domain: domain(&mut query)?,
            subjects: subjects(&mut query)?,
            synced: query.flag("synced")?,
            connect_timeout: query.duration("connect_timeout_ms", &limits::NATS_CONNECT_TIMEOUT_MS)?,
            request_timeout: query.duration("request_timeout_ms", &limits::NATS_REQUEST_TIMEOUT_MS)?,
            publish_timeout: query.duration("publish_timeout_ms", &limits::NATS_PUBLISH_TIMEOUT_MS)?,
            ping_interval: query.duration("ping_interval_ms", &limits::NATS_PING_INTERVAL_MS)?,
            reconnect_wait_max: query.duration("reconnect_wait_max_ms", &limits::NATS_RECONNECT_WAIT_MAX_MS)?,
        };
        query.end()?;
        Ok(settings)
    }

    /// The servers, as errors show them.
    pub fn shown(&self) -> String {
        format!("NATS at {}", self.servers.join(", "))
    }

    /// The subjects that nodes share with clients that are no nodes.
    pub fn subjects(&self) -> &[Pattern] {
        &self.subjects
    }

    /// How the driver connects, and connects again whenever the connection is lost.
    pub(crate) fn options(&self) -> HomeResult<ConnectOptions> {
        let wait_max = self.reconnect_wait_max;
        let options = ConnectOptions::new()
            .name(&self.name)
            .connection_timeout(self.connect_timeout)
            .ping_interval(self.ping_interval)
            .client_capacity(COMMANDS)
            .reconnect_delay_callback(move |attempts| pause(attempts).min(wait_max));
        Ok(self.tls.apply(self.login.apply(options)?))
    }

    /// A client of the driver, which reconnects whenever the connection is lost, until the last
    /// clone of it is dropped. `log` gets errors in the meantime, and true if the server refused
    /// something.
    ///
    /// # Errors
    /// [`Invalid`](HomeErrorKind::Invalid) if the credentials can't be used.
    pub async fn client(&self, log: impl Fn(&str, bool) + Send + Sync + 'static) -> HomeResult<Client> {
        let place = self.shown();
        let options = self.options()?.retry_on_initial_connect().event_callback(move |event| {
            match event {
                Event::ServerError(error) => log(&format!("{place}: {error}"), true),
                Event::ClientError(error) => log(&format!("{place}: {error}"), false),
                Event::SlowConsumer(_) => {
                    log(&format!("{place}: requests were dropped: more came than could be read"), false)
                }
                _ => {}
            }
            std::future::ready(())
        });
        options.connect(self.addresses()).await.map_err(|error| refused(self, &error))
    }

    /// The servers, as the driver takes them.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let scheme = if self.tls.required { "tls" } else { "nats" };
        self.servers.iter().map(|server| format!("{scheme}://{server}")).collect()
    }
}

/// The error of an invalid option: its name, the reason and the fix.
fn wrong(option: &str, why: String, fix: &str) -> HomeError {
    HomeError::new(HomeErrorKind::Invalid, format!("NATS: {option}: {why}: {fix}"))
}

fn name(query: &mut Query) -> HomeResult<String> {
    let Some(name) = query.take("name") else { return Ok("tidewire".to_owned()) };
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        let why = format!("{name:?} is no name of a client");
        return Err(wrong("name", why, "write 1 to 128 bytes without control characters"));
    }
    Ok(name)
}

fn domain(query: &mut Query) -> HomeResult<Option<String>> {
    let Some(domain) = query.take("domain") else { return Ok(None) };
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if domain.is_empty() || !domain.chars().all(plain) {
        let why = format!("{domain:?} is no JetStream domain");
        return Err(wrong("domain", why, "write letters, digits, - and _"));
    }
    Ok(Some(domain))
}

/// Patterns of subjects, none of which covers subjects of another one or of calls.
fn subjects(query: &mut Query) -> HomeResult<Vec<Pattern>> {
    let mut found: Vec<Pattern> = Vec::new();
    for text in query.take("subjects").iter().flat_map(|text| text.split(',')) {
        let refused = |why: String, fix: &str| Err(wrong("subjects", format!("{text:?} {why}"), fix));
        let Ok(pattern) = Pattern::new(text) else {
            return refused("is no pattern".to_owned(), "write tokens divided by dots, such as orders.> or alerts.*");
        };
        let is_reserved =
            ["$", "*", ">", "_", "tw.", OF_AGENTS, OF_SERVICES].iter().any(|start| text.starts_with(start));
        if is_reserved {
            return refused("covers subjects of calls".to_owned(), "begin with a name of yours, such as orders.>");
        }
        if let Some(other) = found.iter().find(|other| other.overlaps(&pattern)) {
            return refused(format!("overlaps {:?}", other.as_str()), "leave one of the two out");
        }
        found.push(pattern);
    }
    Ok(found)
}

/// A number of milliseconds within its limit.
fn milliseconds(option: &str, value: &str, limit: &Limit) -> HomeResult<Duration> {
    match value.parse::<u64>() {
        Ok(number) if (limit.min..=limit.max).contains(&number) => Ok(Duration::from_millis(number)),
        _ => {
            let why = format!("{value:?} is no number of milliseconds in its limits");
            Err(wrong(option, why, &format!("write a whole number from {} to {}", limit.min, limit.max)))
        }
    }
}

#[cfg(test)]
mod tests;
