//! Login: user and password, token, nkey or a credentials file; one of them.

use std::fs;

use async_nats::ConnectOptions;
use nkeys::{KeyPair, KeyPairType};
use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};

use super::query::{Query, decoded};
use super::wrong;

/// Identity of the client, with its proof.
#[derive(Clone, derive_more::Debug)]
pub enum Login {
    /// No login: the server decides on the connection.
    Nobody,
    /// A user with a password.
    #[debug("User")]
    User {
        /// Its name.
        name: String,
        /// Its password.
        password: String,
    },
    /// A token.
    #[debug("Token")]
    Token(String),
    /// The seed of a user's nkey.
    #[debug("Nkey")]
    Nkey(String),
    /// The text of a credentials file: a JWT and the seed that belongs to it.
    #[debug("Credentials")]
    Credentials(String),
}

impl Login {
    /// Reads the part before the `@` of a URL, and the options that name files.
    pub(crate) fn read(who: Option<&str>, query: &mut Query) -> HomeResult<Self> {
        let sources = [who.map(|_| "url"), query.has("nkey"), query.has("creds")];
        let sources: Vec<_> = sources.into_iter().flatten().collect();
        if let [first, second, ..] = sources[..] {
            let first = if first == "url" { "the name before the @" } else { first };
            let why = format!("{first} says who asks, too");
            return Err(wrong(second, why, "keep one of user and password, token, nkey and creds"));
        }
        if let Some(path) = query.take("nkey") {
            return nkey(&path);
        }
        if let Some(path) = query.take("creds") {
            return credentials(&path);
        }
        match who.map(|who| who.split_once(':').map_or((who, None), |(name, password)| (name, Some(password)))) {
            None => Ok(Self::Nobody),
            Some(("", _)) => {
                Err(wrong("url", "it names nobody before the @".to_owned(), "write user:password@ or token@"))
            }
            Some((token, None)) => Ok(Self::Token(decoded("token", token)?)),
            Some((name, Some(password))) => {
                Ok(Self::User { name: decoded("user", name)?, password: decoded("password", password)? })
            }
        }
    }

    /// Passes the login to the driver.
    pub(crate) fn apply(&self, options: ConnectOptions) -> HomeResult<ConnectOptions> {
        match self {
            Self::Nobody => Ok(options),
            Self::User { name, password } => Ok(options.user_and_password(name.clone(), password.clone())),
            Self::Token(token) => Ok(options.token(token.clone())),
            Self::Nkey(seed) => Ok(options.nkey(seed.clone())),
            Self::Credentials(text) => options.credentials(text).map_err(|error| unusable("creds", &error.to_string())),
        }
    }

    /// Advice for a refused login.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::Nobody => "it wants to know who asks: write nats://user:password@host, or give token, nkey or creds",
            Self::User { .. } => "check user and password of the URL",
            Self::Token(_) => "check the token of the URL; user and password are written user:password@",
            Self::Nkey(_) => "check that the server knows this nkey's public key",
            Self::Credentials(_) => "check that the account's operator is the server's, and that the JWT is in force",
        }
    }
}

fn nkey(path: &str) -> HomeResult<Login> {
    let text = file("nkey", path)?;
    let seed = text.lines().map(str::trim).find(|line| line.starts_with('S')).unwrap_or_default();
    match KeyPair::from_seed(seed) {
        Ok(pair) if pair.key_pair_type() == KeyPairType::User => Ok(Login::Nkey(seed.to_owned())),
        Ok(_) => Err(unusable("nkey", &format!("{path} has no key of a user: the seed of one begins with SU"))),
        Err(_) => Err(unusable("nkey", &format!("{path} has no seed of an nkey: it is a line that begins with SU"))),
    }
}

fn credentials(path: &str) -> HomeResult<Login> {
    let text = file("creds", path)?;
    match ConnectOptions::new().credentials(&text) {
        Ok(_) => Ok(Login::Credentials(text)),
        Err(error) => {
            Err(unusable("creds", &format!("{path} is no credentials file ({error}): nsc generate creds makes one")))
        }
    }
}

/// The text of a file that an option names.
pub(crate) fn file(option: &str, path: &str) -> HomeResult<String> {
    fs::read_to_string(path).map_err(|error| {
        unusable(option, &format!("{path:?} can't be read ({error}): name a file that this program may read"))
    })
}

/// A file that is no proof of anything.
pub(crate) fn unusable(option: &str, why: &str) -> HomeError {
    HomeError::new(HomeErrorKind::Invalid, format!("NATS: {option}: {why}"))
}
