//! Address of the server and login: the URL, then the environment and the password file of `psql`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use postgres::Config;
use postgres::config::{Host, SslMode};
use tidewire_backend::{ErrorKind, Result, StoreError};

use crate::tls::{Check, Settings};

/// How long a connection may take to be made, and a packet to be acknowledged.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const PORT: u16 = 5432;
const SOCKETS: &str = "/var/run/postgresql";

/// Address of a server, with its login and TLS.
pub(crate) struct Address {
    pub config: Config,
    pub tls: Settings,
    /// Host, port and database, as errors show them.
    pub shown: String,
}

/// Reads a URL, and its missing parts from the environment.
pub(crate) fn read(url: &str) -> Result<Address> {
    let (url, mut tls) = split(url)?;
    let wrong = |error: postgres::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        let message = format!("store: the URL can't be read ({why}): write postgres://user@host:5432/database");
        StoreError::new(ErrorKind::Url, message)
    };
    let mut config = Config::from_str(&url).map_err(wrong)?;
    tls.read_environment()?;
    fill_in(&mut config)?;
    config.ssl_mode(match tls.check {
        Check::Off => SslMode::Disable,
        Check::IfOffered => SslMode::Prefer,
        Check::Nothing | Check::Certificate => SslMode::Require,
    });
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => String::new(),
    };
    let port = config.get_ports().first().copied().unwrap_or(PORT);
    let database = config.get_dbname().or_else(|| config.get_user()).unwrap_or_default().to_owned();
    if config.get_password().is_none()
        && let Some(password) = password(&host, port, &database, config.get_user().unwrap_or_default())
    {
        config.password(password);
    }
    Ok(Address { config, tls, shown: format!("PostgreSQL at {host}:{port}, database {database:?}") })
}

/// Takes the options out that the driver does not know.
fn split(url: &str) -> Result<(String, Settings)> {
    let mut tls = Settings::default();
    let Some((start, query)) = url.split_once('?') else { return Ok((url.to_owned(), tls)) };
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !tls.take(key, &decoded(value))? {
            rest.push(pair);
        }
    }
    let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
    Ok((format!("{start}{query}"), tls))
}

/// Text of a URL, whose `%20` are spaces.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(b'%'));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn number<T: FromStr>(name: &str) -> Result<Option<T>> {
    let Some(value) = variable(name) else { return Ok(None) };
    let wrong =
        |_| StoreError::new(ErrorKind::Url, format!("{name}: {value:?} is no number that fits: fix or unset it"));
    value.parse().map(Some).map_err(wrong)
}

fn fill_in(config: &mut Config) -> Result<()> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let sockets = || if fs::exists(SOCKETS).unwrap_or(false) { SOCKETS } else { "localhost" }.to_owned();
        config.host(&variable("PGHOST").unwrap_or_else(sockets));
    }
    if let (true, Some(port)) = (config.get_ports().is_empty(), number("PGPORT")?) {
        config.port(port);
    }
    if let (None, Some(user)) = (config.get_user(), variable("PGUSER").or_else(|| variable("USER"))) {
        config.user(&user);
    }
    if let (None, Some(password)) = (config.get_password(), variable("PGPASSWORD")) {
        config.password(password);
    }
    if let (None, Some(database)) = (config.get_dbname(), variable("PGDATABASE")) {
        config.dbname(&database);
    }
    if config.get_application_name().is_none() {
        config.application_name(&variable("PGAPPNAME").unwrap_or_else(|| "tidewire".to_owned()));
    }
    if config.get_connect_timeout().is_none() {
        let timeout = number("PGCONNECT_TIMEOUT")?.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        config.connect_timeout(timeout.unwrap_or(CONNECT_TIMEOUT));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(ANSWER_TIMEOUT).keepalives_idle(ANSWER_TIMEOUT);
    }
    Ok(())
}

/// The password of the password file, which must be private to its user.
fn password(host: &str, port: u16, database: &str, user: &str) -> Option<String> {
    let home = || Some(PathBuf::from(variable("HOME")?).join(".pgpass"));
    let path = variable("PGPASSFILE").map(PathBuf::from).or_else(home)?;
    if fs::metadata(&path).ok()?.permissions().mode() & 0o077 != 0 {
        return None;
    }
    let host = if host.starts_with('/') { "localhost" } else { host };
    find_password(&fs::read_to_string(path).ok()?, &[host, &port.to_string(), database, user])
}

/// Lines of `host:port:database:user:password`, where `*` stands for any, and `\` before `:` and
/// `\`.
fn find_password(text: &str, wanted: &[&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = vec![String::new()];
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => fields.last_mut()?.extend(letters.next()),
                ':' if fields.len() < 5 => fields.push(String::new()),
                letter => fields.last_mut()?.push(letter),
            }
        }
        let password = (fields.len() == 5).then(|| fields.pop())??;
        let fits = fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        fits.then_some(password)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_the_password_file_that_fits_counts() {
        let file = "# mine\nshort\ndb:5432:farm:ann:a\\:b\\\\c:d\n*:*:*:ann:second\n*:*:*:bob:x\n";
        assert_eq!(find_password(file, &["db", "5432", "farm", "ann"]).as_deref(), Some("a:b\\c:d"));
        assert_eq!(find_password(file, &["db", "5433", "farm", "ann"]).as_deref(), Some("second"));
        assert_eq!(find_password(file, &["db", "5432", "farm", "eve"]), None);
    }

    #[test]
    fn a_url_says_where_and_how() {
        let address =
            read("postgres://ann:p%40ss@db.example:5433/farm?sslmode=verify-full&application_name=x").unwrap();
        assert_eq!(address.shown, "PostgreSQL at db.example:5433, database \"farm\"");
        assert_eq!(address.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!((address.config.get_application_name(), address.tls.check), (Some("x"), Check::Certificate));
        assert_eq!(decoded("a%20b%2Fc%zz%"), "a b/c%zz%");
    }

    #[test]
    fn urls_that_can_not_be_read_are_errors_without_the_password() {
        for (url, says) in [
            ("postgres://ann:secret@db:port/farm", "port"),
            ("postgres://ann:secret@db/farm?colour=red", "colour"),
            ("postgres://ann:secret@db/farm?sslmode=sometimes", "sslmode: \"sometimes\""),
            ("postgres://ann:secret@db/farm?sslrootcert=/nowhere.pem&sslmode=verify-full", "/nowhere.pem"),
        ] {
            let error = read(url).and_then(|address| address.tls.connector().map(|_| ())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Url, "{error}");
            assert!(error.message().contains(says) && !error.message().contains("secret"), "{error}");
        }
    }
}
