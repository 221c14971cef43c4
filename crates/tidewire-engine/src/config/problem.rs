//! Errors of a configuration: the field, the value and the fix.

use std::fmt;

use tidewire_proto::generated::limits::Limit;

/// Everything that is wrong with a configuration, at once.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Error)]
pub struct ConfigError {
    /// At least one, in the order of the places they come from.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{key}: {message}")]
pub struct Problem {
    /// The key with its path, `dispatchers.io.threads`, or the name of an environment variable.
    pub key: String,
    /// The value as it would be written. Empty for unknown keys: what was meant may be a secret.
    pub value: String,
    /// The fault, the allowed values, and the source of the setting.
    pub message: String,
}

impl ConfigError {
    /// The problems as an error, if there are any.
    ///
    /// # Errors
    ///
    /// If `problems` is not empty.
    pub fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
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

impl Problem {
    /// A problem with the value of `key`, which came from `origin`: a file, a variable or code.
    pub fn new(key: &str, value: &str, message: &str, origin: &str) -> Self {
        Self { key: start_of(key, 256), value: value.to_owned(), message: format!("{message} ({origin})") }
    }

    /// A number that its limit does not allow.
    pub fn range(key: &str, value: &str, limit: &Limit, origin: &str) -> Self {
        let message = format!("{value} is out of range; {} to {} {} are allowed", limit.min, limit.max, limit.unit);
        Self::new(key, value, &message, origin)
    }
}

/// The one of `known` that is most like `name`, if it is like it at all.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = start_of(&name.to_lowercase(), 64);
    // A missing unit is many letters away from the input, and still the likeliest mistake.
    let without_unit =
        known.iter().copied().find(|known| known.strip_prefix(&name).is_some_and(|rest| rest.starts_with('_')));
    if without_unit.is_some() {
        return without_unit;
    }
    let distance = |known: &str| strsim::damerau_levenshtein(&name, known);
    let best = known.iter().copied().min_by_key(|known| distance(known))?;
    (distance(best) <= 1.max(best.len() / 3)).then_some(best)
}

/// The first characters of a text: what others wrote may be long.
pub fn start_of(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}
