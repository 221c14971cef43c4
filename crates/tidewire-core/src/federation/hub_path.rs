//! The path of a call or a message: the hubs that it has passed, in order.

use std::fmt;

/// The field with the names of the hubs that a call or a message has passed, with blanks between
/// them.
pub const HUBS: &str = "tw-hubs";

/// The field with the id of a published message that crosses: the run of its hub and its number
/// there. It is the same on all ways that the message takes.
pub const MESSAGE_ID: &str = "tw-message";

/// The longest id of a message.
pub const MESSAGE_ID_BYTES: usize = 64;

/// The most hubs that a call or a message is in, from the first to the last.
pub const HUBS_MAX: usize = 8;

/// The names of the hubs that a call or a message has passed.
///
/// ```
/// use tidewire_core::federation::{HubPath, PathProblem};
///
/// let first = HubPath::default().step("berlin", "paris")?;
/// assert_eq!(first.to_string(), "berlin");
/// let second = HubPath::parse("berlin").step("paris", "rome")?;
/// assert_eq!(second.to_string(), "berlin paris");
/// assert_eq!(second.step("rome", "berlin"), Err(PathProblem::Circle("berlin".to_owned())));
/// # Ok::<(), PathProblem>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubPath(Vec<String>);

/// Why a call or a message does not cross to another hub.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum PathProblem {
    /// It has passed that hub already.
    #[display("it has passed the hub {_0:?} already: it would go in a circle")]
    Circle(String),
    /// It has passed too many hubs.
    #[display("it has passed {HUBS_MAX} hubs: join the hubs more directly")]
    TooLong,
}

impl std::error::Error for PathProblem {}

impl HubPath {
    /// Reads the field. Text of another form is a path, too: one that ends soon.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.split_ascii_whitespace().take(HUBS_MAX).map(str::to_owned).collect())
    }

    /// The path of what goes from one hub to another.
    ///
    /// # Errors
    /// [`PathProblem`] if it was at one of them before, or at too many others.
    pub fn step(&self, from: &str, to: &str) -> Result<Self, PathProblem> {
        if let Some(met) = [from, to].into_iter().find(|hub| self.has(hub)) {
            return Err(PathProblem::Circle(met.to_owned()));
        }
        if from == to {
            return Err(PathProblem::Circle(to.to_owned()));
        }
        if self.0.len() + 2 > HUBS_MAX {
            return Err(PathProblem::TooLong);
        }
        let mut next = self.clone();
        next.0.push(from.to_owned());
        Ok(next)
    }

    /// True if it has passed a hub.
    #[must_use]
    pub fn has(&self, hub: &str) -> bool {
        self.0.iter().any(|passed| passed == hub)
    }

    /// The number of hubs that it has passed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True before the first crossing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for HubPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}
