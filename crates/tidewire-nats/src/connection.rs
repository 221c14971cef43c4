//! The connection to NATS: the driver's client, requests to the JetStream API, and word of lost
//! connections.

use std::error::Error as _;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectError, ConnectErrorKind, Event, HeaderMap, Message, Request};
use async_nats::{RequestErrorKind, StatusCode, Subscriber};
use bytes::Bytes;
use serde_json::{Value, json};
use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::settings::Settings;
use crate::version::Version;

/// The oldest server with message TTL, reads in batches, and consumers that pause.
const OLDEST: Version = Version(2, 11, 0);
/// Deliveries that may wait in this process for one subscription; a fetch asks for fewer.
const SUBSCRIPTION_CAPACITY: usize = 256 * 1_024;
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection that is made again when it is lost.
pub(crate) struct Connection {
    pub client: Client,
    pub settings: Settings,
    pub version: Version,
    prefix: String,
    lost: watch::Receiver<u64>,
}

/// Failure of a request to JetStream.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It refused: the number of the error, and its words.
    Refused { code: u64, words: String },
    /// It did not answer, or not so that it can be read.
    Away(HomeError),
}

/// A subscription for replies to requests. The number of a request is the last token of its reply
/// subject.
#[derive(Debug)]
pub(crate) struct ReplyInbox {
    pub inbox: String,
    pub messages: Subscriber,
    pub number: u64,
    pub lost: watch::Receiver<u64>,
}

impl ReplyInbox {
    pub async fn new(connection: &Connection) -> HomeResult<Self> {
        let inbox = connection.client.new_inbox();
        let messages = connection.client.subscribe(format!("{inbox}.*")).await;
        let messages = messages.map_err(|error| connection.away(&error.to_string()))?;
        Ok(Self { inbox, messages, number: 0, lost: connection.losses() })
    }
}

impl Connection {
    /// Connects, and checks the required capabilities of the server.
    pub async fn open(settings: Settings) -> HomeResult<Self> {
        let (loss_sender, lost) = watch::channel(0);
        let options = settings
            .options()?
            .request_timeout(Some(settings.request_timeout))
            .subscription_capacity(SUBSCRIPTION_CAPACITY)
            .event_callback(move |event| {
                if matches!(event, Event::Disconnected) {
                    loss_sender.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            });
        let client = options.connect(settings.addresses()).await.map_err(|error| refused(&settings, &error))?;
        let prefix = settings.domain.as_ref().map_or("$JS.API".to_owned(), |domain| format!("$JS.{domain}.API"));
        let version = Version::read(&client.server_info().version);
        let this = Self { client, settings, version, prefix, lost };
        this.check().await?;
        Ok(this)
    }

    /// An error that begins with where the servers are.
    pub fn error(&self, kind: HomeErrorKind, words: &str) -> HomeError {
        HomeError::new(kind, format!("{}: {words}", self.settings.shown()))
    }

    pub fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Counts the connections that were lost.
    pub fn losses(&self) -> watch::Receiver<u64> {
        self.lost.clone()
    }

    /// Where a request to the JetStream API goes.
    pub fn subject(&self, operation: &str) -> String {
        format!("{}.{operation}", self.prefix)
    }

    /// Asks the JetStream API. While there is no leader it asks again, until the request timeout is
    /// over.
    pub async fn api(&self, operation: &str, body: &Value) -> Result<Value, Failure> {
        let until = Instant::now() + self.settings.request_timeout;
        loop {
            let failure = match self.api_once(operation, body, until).await {
                // "JetStream system temporarily unavailable": a leader is being elected.
                Err(Failure::Refused { code: 10_008, words }) => Failure::Away(self.away(&words)),
                Err(Failure::Away(error)) => Failure::Away(error),
                other => return other,
            };
            if Instant::now() + RETRY_PAUSE >= until {
                return Err(failure);
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn api_once(&self, operation: &str, body: &Value, until: Instant) -> Result<Value, Failure> {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let answer =
            self.request(self.subject(operation), None, body, self.attempt(until)).await.map_err(Failure::Away)?;
        let answer: Value = serde_json::from_slice(&answer.payload).map_err(|error| {
            let words = format!("what it answers to {operation} can't be read ({error}): look whether it is NATS");
            Failure::Away(self.error(HomeErrorKind::Foreign, &words))
        })?;
        match answer.get("error") {
            None => Ok(answer),
            Some(error) => {
                let words = error["description"].as_str().unwrap_or("no reason").to_owned();
                Err(Failure::Refused { code: error["err_code"].as_u64().unwrap_or_default(), words })
            }
        }
    }

    /// How long to wait for one answer: a request that goes to a server which just lost the lead is
    /// never answered, and is sent again.
    fn attempt(&self, until: Instant) -> Instant {
        (Instant::now() + self.settings.request_timeout / 3).min(until)
    }

    /// One request, one answer.
    pub async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
        until: Instant,
    ) -> HomeResult<Message> {
        let mut request = Request::new().payload(payload).timeout(None);
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        match timeout_at(until, self.client.send_request(subject, request)).await {
            Err(_) => Err(self.away("no answer came in time")),
            Ok(Ok(message)) if message.status == Some(StatusCode::NO_RESPONDERS) => Err(self.away("nobody answers")),
            Ok(Ok(message)) => Ok(message),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Err(self.away("nobody answers")),
            Ok(Err(error)) => Err(self.away(&error.to_string())),
        }
    }

    /// The servers don't answer.
    pub fn away(&self, why: &str) -> HomeError {
        let fix = "look whether the servers run and most of the cluster is there, then try again";
        self.error(HomeErrorKind::Unreachable, &format!("{why}: {fix}"))
    }

    /// The version is recent enough, and this account has JetStream.
    async fn check(&self) -> HomeResult<()> {
        if self.version < OLDEST {
            let words = format!("nats-server {} is too old: install {OLDEST} or newer", self.version);
            return Err(self.error(HomeErrorKind::Unsupported, &words));
        }
        let until = Instant::now() + self.settings.request_timeout;
        loop {
            let info = self.client.request(self.subject("INFO"), Bytes::new());
            let why = match timeout_at(self.attempt(until), info).await {
                Err(_) => "JetStream does not answer",
                Ok(Ok(answer)) => {
                    let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_else(|_| json!({}));
                    match answer["error"]["err_code"].as_u64() {
                        None => return Ok(()),
                        Some(10_008) => "a leader of JetStream is being elected",
                        Some(_) => return Err(self.no_jetstream(answer["error"]["description"].as_str())),
                    }
                }
                // A server whose JetStream starts announces it before it answers.
                Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                    if !self.client.server_info().jetstream {
                        return Err(self.no_jetstream(None));
                    }
                    "JetStream begins"
                }
                Ok(Err(_)) => "no answer",
            };
            if Instant::now() + RETRY_PAUSE >= until {
                return Err(self.away(why));
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    fn no_jetstream(&self, why: Option<&str>) -> HomeError {
        let why = why.map_or(String::new(), |why| format!(" ({why})"));
        let fix = "start nats-server with --jetstream, enable it for this account, or name its domain with ?domain=";
        self.error(HomeErrorKind::Unsupported, &format!("there is no JetStream{why}: {fix}"))
    }
}

/// The pause before an attempt to connect again: 0 for the first, then 10 ms, doubled.
pub(crate) fn pause(attempts: usize) -> Duration {
    match attempts {
        0 | 1 => Duration::ZERO,
        more => Duration::from_millis(10 << (more - 2).min(16)),
    }
}

/// The reason of a failed connection, and the fix.
pub(crate) fn refused(settings: &Settings, error: &ConnectError) -> HomeError {
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let (kind, words) = match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            (HomeErrorKind::Denied, format!("refuses the login: {}", settings.login.hint()))
        }
        _ if is_tls(error) => {
            let fix = "check tls_ca, tls_cert and tls_key, and that the certificate names this host";
            (HomeErrorKind::Denied, format!("TLS can't be agreed on ({why}): {fix}"))
        }
        ConnectErrorKind::TimedOut => {
            (HomeErrorKind::Unreachable, "did not answer in time: look whether it runs and the URL is right".to_owned())
        }
        _ => {
            let words = format!("can't be reached ({why}): look whether it runs, and whether the URL is right");
            (HomeErrorKind::Unreachable, words)
        }
    };
    HomeError::new(kind, format!("{}: {words}", settings.shown()))
}

/// True for an error of rustls, which is wrapped in an I/O error.
fn is_tls(error: &ConnectError) -> bool {
    let mut source = error.source();
    while let Some(inner) = source {
        let of_io = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if inner.is::<async_nats::rustls::Error>() || of_io.is_some_and(|inner| inner.is::<async_nats::rustls::Error>())
        {
            return true;
        }
        source = inner.source();
    }
    error.kind() == ConnectErrorKind::Tls
}
