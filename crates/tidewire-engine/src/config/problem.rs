//! Errors of a configuration: the field, the value and the mend.

use std::error::Error;
use std::fmt;

use tidewire_proto::generated::limits::Limit;
use toml::Value;

use super::keys::start_of;

const SHOWN: usize = 64;

/// Everything that is wrong with a configuration, at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// At least one, in the order of the places they come from.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key with its path, `dispatchers.io.threads`, or the name of an environment variable.
    pub key: String,
    /// The value as it would be written. Empty for unknown keys: what was meant may be a secret.
    pub value: String,
    /// What is wrong, what is allowed, and where it came from.
    pub message: String,
}

impl ConfigError {
    pub(super) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = &self.problems[..] {
            return write!(f, "configuration: {problem}");
        }
        write!(f, "configuration: {} problems", self.problems.len())?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl Error for ConfigError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

/// Where a value came from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Code,
    Text(String),
    Variable(String),
    Option,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code => f.write_str("from code"),
            Self::Text(name) => write!(f, "from {name}"),
            Self::Variable(name) => write!(f, "from environment variable {name}"),
            Self::Option => f.write_str("from --set"),
        }
    }
}

impl Problem {
    pub(super) fn new(key: &str, value: &str, message: &str, origin: &Origin) -> Self {
        Self { key: start_of(key, 4 * SHOWN), value: value.to_owned(), message: format!("{message} ({origin})") }
    }

    pub(super) fn range(key: &str, value: &str, limit: &Limit, origin: &Origin) -> Self {
        Self::new(key, value, &format!("{value} is out of range; {}", allowed(limit)), origin)
    }

    pub(super) fn not_a_number(key: &str, value: &Value, limit: &Limit, origin: &Origin) -> Self {
        let value = shown(value);
        Self::new(key, &value, &format!("{value} is not a whole number; {}", allowed(limit)), origin)
    }

    pub(super) fn not_a_table(key: &str, value: &Value, keys: &str, origin: &Origin) -> Self {
        let value = shown(value);
        Self::new(key, &value, &format!("{value} is not a table; write a table with {keys}"), origin)
    }
}

/// A value as it would be written, or what it is where that would be long.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > SHOWN => format!("{:?}...", start_of(text, SHOWN)),
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "an array".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}

fn allowed(limit: &Limit) -> String {
    format!("{} to {} {} are allowed", limit.min, limit.max, limit.unit)
}
