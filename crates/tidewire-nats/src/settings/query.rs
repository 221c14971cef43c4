//! The options behind the `?` of a URL: each known, and used once.

use std::time::Duration;

use tidewire_backend::home::HomeResult;
use tidewire_proto::generated::limits::Limit;

use super::{milliseconds, wrong};

const KNOWN: [&str; 15] = [
    "connect_timeout_ms",
    "creds",
    "domain",
    "name",
    "nkey",
    "ping_interval_ms",
    "publish_timeout_ms",
    "reconnect_wait_max_ms",
    "request_timeout_ms",
    "subjects",
    "synced",
    "tls_ca",
    "tls_cert",
    "tls_first",
    "tls_key",
];

/// Options that were not taken yet.
pub(crate) struct Query {
    options: Vec<(String, String)>,
}

impl Query {
    pub fn read(text: &str) -> HomeResult<Self> {
        let mut options: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !KNOWN.contains(&option) {
                let fix = format!("the options are {}", KNOWN.join(", "));
                return Err(wrong("url", format!("{option:?} is no option"), &fix));
            }
            if options.iter().any(|(other, _)| other == option) {
                return Err(wrong(option, "it is said twice".to_owned(), "say it once"));
            }
            options.push((option.to_owned(), decoded(option, value)?));
        }
        Ok(Self { options })
    }

    /// Takes an option's value, if present.
    pub fn take(&mut self, option: &str) -> Option<String> {
        let at = self.options.iter().position(|(other, _)| other == option)?;
        Some(self.options.swap_remove(at).1)
    }

    /// The option's name, if present and not taken.
    pub fn has(&self, option: &'static str) -> Option<&'static str> {
        self.options.iter().any(|(other, _)| other == option).then_some(option)
    }

    pub fn flag(&mut self, option: &str) -> HomeResult<bool> {
        match self.take(option).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(value) => Err(wrong(option, format!("{value:?} is neither"), "write true or false")),
        }
    }

    pub fn duration(&mut self, option: &str, limit: &Limit) -> HomeResult<Duration> {
        match self.take(option) {
            None => Ok(Duration::from_millis(limit.default)),
            Some(value) => milliseconds(option, &value, limit),
        }
    }

    /// Fails if an option was not taken.
    pub fn end(self) -> HomeResult<()> {
        match self.options.first() {
            None => Ok(()),
            Some((option, _)) => Err(wrong(option, "nothing uses it".to_owned(), "leave it out")),
        }
    }
}

/// Text of a URL, whose `%20` are spaces.
pub(crate) fn decoded(field: &str, text: &str) -> HomeResult<String> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let why = || "a % is not followed by two hexadecimal digits".to_owned();
        bytes.push(byte.ok_or_else(|| wrong(field, why(), "write %25 for a % itself"))?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).map_err(|_| wrong(field, "it is not UTF-8".to_owned(), "encode it as UTF-8"))
}
