//! Permissions of tokens: which nodes may join a hub, and which subjects each may use.

use tidewire_proto::generated::limits;
use tidewire_proto::subject::{Pattern, Subject};

/// The wildcard that stands for all service names.
pub const ALL_SERVICES: &str = "*";

/// Patterns that an error shows.
const SHOWN: usize = 5;

/// A token with its permissions.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The secret.
    pub token: String,
    /// The user of this token.
    pub user: String,
    /// Subjects that it may publish on.
    pub publish: Vec<Pattern>,
    /// Patterns that it may subscribe to, these or narrower ones.
    pub subscribe: Vec<Pattern>,
    /// Subjects that it may call.
    pub call: Vec<Pattern>,
    /// Patterns on which it may answer calls, these or narrower ones.
    pub answer: Vec<Pattern>,
    /// Names of services that it may serve; `*` for all.
    pub serve: Vec<String>,
    /// Limits of the nodes that joined with this token.
    pub limits: TokenLimits,
}

/// Limits of one token, where they are smaller than those of its hub. None: as the hub has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenLimits {
    /// Nodes that are joined with it at once.
    pub links: Option<usize>,
    /// Subscriptions of one node.
    pub subscriptions: Option<usize>,
    /// Exchanges that one node may open at once.
    pub in_flight: Option<usize>,
    /// Bytes that may wait for one node.
    pub queue_bytes: Option<usize>,
}

impl Grant {
    /// A token that allows everything, as much as the hub does.
    pub fn all(token: &str, user: &str) -> Self {
        let everything = || Pattern::new(">").into_iter().collect::<Vec<_>>();
        let (publish, subscribe, call, answer) = (everything(), everything(), everything(), everything());
        let serve = vec![ALL_SERVICES.to_owned()];
        let (token, user, limits) = (token.to_owned(), user.to_owned(), TokenLimits::default());
        Self { token, user, publish, subscribe, call, answer, serve, limits }
    }
}

/// The grants of a hub. Without any, everybody may do everything.
#[derive(Clone, Debug, Default)]
pub struct Access {
    grants: Vec<Grant>,
}

impl Access {
    /// Stands for the grant of the hub's own gateway, which looks at the grant of each of its
    /// clients itself. It may call, publish and subscribe, and answers and serves nothing.
    pub const GATEWAY: usize = usize::MAX;

    /// Stands for the grant of those who need no token: the node that a bridge is for, and the
    /// nodes that it reaches. They may do everything.
    pub const TRUSTED: usize = usize::MAX - 1;

    /// Only those with one of these tokens may join.
    pub fn new(grants: Vec<Grant>) -> Self {
        Self { grants }
    }

    /// True if everybody may join.
    pub fn is_open(&self) -> bool {
        self.grants.is_empty()
    }

    /// The number of the grant that a token gives.
    ///
    /// # Errors
    /// The reason, as text for the node that wants to join.
    pub fn admit(&self, token: Option<&str>) -> Result<Option<usize>, &'static str> {
        if self.is_open() {
            return Ok(None);
        }
        let Some(token) = token else {
            return Err("this hub asks for a token: the node that joins must give one (token=..., or TIDEWIRE_TOKEN)");
        };
        // All are compared, whole: how long it takes says nothing about how much was right.
        let mut found = None;
        for (at, grant) in self.grants.iter().enumerate() {
            if same(grant.token.as_bytes(), token.as_bytes()) {
                found = Some(at);
            }
        }
        found.map(Some).ok_or("this hub does not know the token: the node that joins must give another one")
    }

    /// The user of a grant.
    pub fn user(&self, grant: Option<usize>) -> &str {
        grant.and_then(|at| self.grants.get(at)).map_or("", |grant| &grant.user)
    }

    /// The limits of a grant.
    pub fn limits(&self, grant: Option<usize>) -> TokenLimits {
        grant.and_then(|at| self.grants.get(at)).map_or_else(TokenLimits::default, |grant| grant.limits)
    }

    /// Where a grant allows to publish, as WELCOME states it: patterns with blanks between them.
    /// None: everywhere, or more than can be stated.
    pub fn publishes(&self, grant: Option<usize>) -> Option<String> {
        let patterns = &self.grants.get(grant?)?.publish;
        if patterns.iter().any(|pattern| pattern.as_str() == ">") {
            return None;
        }
        let stated = patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" ");
        (stated.len() as u64 <= limits::LINK_HEAD_BYTES.default).then_some(stated)
    }

    /// True if a grant allows to publish on a subject.
    pub fn may_publish(&self, grant: Option<usize>, subject: &str) -> bool {
        self.allows(grant, |grant| any_matches(&grant.publish, subject))
    }

    /// True if a grant allows to call a subject.
    pub fn may_call(&self, grant: Option<usize>, subject: &str) -> bool {
        self.allows(grant, |grant| any_matches(&grant.call, subject))
    }

    /// True if a grant allows to answer calls on a pattern.
    pub fn may_answer(&self, grant: Option<usize>, pattern: &str) -> bool {
        grant != Some(Self::GATEWAY)
            && self.allows(grant, |grant| grant.answer.iter().any(|wide| covers(wide.as_str(), pattern)))
    }

    /// True if a grant allows to serve a service.
    pub fn may_serve(&self, grant: Option<usize>, service: &str) -> bool {
        grant != Some(Self::GATEWAY)
            && self.allows(grant, |grant| grant.serve.iter().any(|name| name == ALL_SERVICES || name == service))
    }

    /// True if a grant allows to subscribe to a pattern.
    pub fn may_subscribe(&self, grant: Option<usize>, pattern: &str) -> bool {
        self.allows(grant, |grant| grant.subscribe.iter().any(|wide| covers(wide.as_str(), pattern)))
    }

    fn allows(&self, grant: Option<usize>, test: impl FnOnce(&Grant) -> bool) -> bool {
        match grant {
            None => self.is_open(),
            Some(Self::GATEWAY | Self::TRUSTED) => true,
            Some(at) => self.grants.get(at).is_some_and(test),
        }
    }
}

/// Where a node may publish, as its hub has stated it.
#[derive(Debug, Default)]
pub(super) struct Publishing(Option<Vec<Pattern>>);

impl Publishing {
    /// Reads the patterns that WELCOME states. Unreadable patterns are left to the hub, which
    /// checks every frame itself.
    pub fn stated(text: Option<&str>) -> Self {
        Self(text.and_then(|text| text.split_ascii_whitespace().map(|one| Pattern::new(one).ok()).collect()))
    }

    /// Checks if the node may publish on a subject.
    ///
    /// # Errors
    /// The patterns that it may publish on, for people.
    pub fn check(&self, subject: &str) -> Result<(), String> {
        match &self.0 {
            Some(patterns) if !any_matches(patterns, subject) => Err(listed(patterns)),
            _ => Ok(()),
        }
    }
}

fn listed(patterns: &[Pattern]) -> String {
    let shown: Vec<&str> = patterns.iter().take(SHOWN).map(Pattern::as_str).collect();
    match patterns.len().saturating_sub(SHOWN) {
        0 if shown.is_empty() => "nothing".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} others", shown.join(", ")),
    }
}

fn any_matches(patterns: &[Pattern], subject: &str) -> bool {
    Subject::new(subject).is_ok_and(|subject| patterns.iter().any(|pattern| pattern.matches(&subject)))
}

/// True if the wide pattern selects everything that the narrow one selects.
fn covers(wide: &str, narrow: &str) -> bool {
    let mut narrow = narrow.split('.');
    for token in wide.split('.') {
        match (token, narrow.next()) {
            (">", Some(_)) => return true,
            (_, None) | ("*", Some(">")) => return false,
            ("*", Some(_)) => {}
            (token, Some(other)) if token == other => {}
            _ => return false,
        }
    }
    narrow.next().is_none()
}

/// True if two secrets are equal. The time of the comparison does not reveal how many bytes match.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |seen, (a, b)| seen | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}
