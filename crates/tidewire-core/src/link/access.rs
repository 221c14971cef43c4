//! Permissions of tokens: which nodes may join a hub, and which subjects each may use.

use std::sync::LazyLock;

use tidewire_proto::generated::limits;
use tidewire_proto::subject::grammar::{ACT, CALL, COMMANDS, INSPECTION, LOOK, OF_SERVICES, READ, STREAMS};
use tidewire_proto::subject::grammar::{Target, instance_subject, service_subject, target};
use tidewire_proto::subject::{Pattern, Subject, SubjectError};

/// The wildcard that stands for all service names.
pub const ALL_SERVICES: &str = "*";

/// Patterns that an error shows.
const SHOWN: usize = 5;

/// The rights of operators: names for methods that a token may call. Each includes the first.
const OPERATOR_RIGHTS: [(&str, &[(&str, &str)]); 3] = [
    (
        "inspect",
        &[
            (INSPECTION, "about"),
            (INSPECTION, "statistics"),
            (INSPECTION, "rows"),
            (INSPECTION, "trace"),
            (STREAMS, LOOK),
            (COMMANDS, "commands"),
            (COMMANDS, "info"),
            (COMMANDS, "progress"),
        ],
    ),
    ("inspect_payloads", &[(STREAMS, READ), (COMMANDS, "state")]),
    ("admin", &[(INSPECTION, ACT), (STREAMS, ACT), (COMMANDS, "cancel"), (COMMANDS, "retry")]),
];

/// The grant of a console that may only look.
static VIEWER: LazyLock<Option<Grant>> = LazyLock::new(|| {
    let operator = vec!["inspect".to_owned()];
    Grant::of("", "", &Rights { operator, ..Rights::default() }).ok()
});

/// The rights that a token names. None: everything, or nothing if it names a right of operators.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Patterns of subjects that it may publish on.
    pub publish: Option<Vec<String>>,
    /// Patterns that it may subscribe to.
    pub subscribe: Option<Vec<String>>,
    /// Patterns of subjects that it may call.
    pub call: Option<Vec<String>>,
    /// Patterns on which it may answer. None: all if the three above are everything, else none.
    pub answer: Option<Vec<String>>,
    /// Names of services that it may serve. None: as for `answer`.
    pub serve: Option<Vec<String>>,
    /// Rights of operators: `inspect`, `inspect_payloads`, `admin`.
    pub operator: Vec<String>,
    /// True for another hub: what is not named above is nothing, and lists have only the services
    /// and agents that it may call, without their nodes.
    pub partner: bool,
}

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
    /// True for another hub, to which lists show only the services and agents that it may call.
    pub is_partner: bool,
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
    /// A token with the rights that it names, and those of every token: to list the services, and
    /// to be notified of their changes.
    ///
    /// # Errors
    /// The first pattern that is none.
    pub fn of(token: &str, user: &str, rights: &Rights) -> Result<Self, SubjectError> {
        let mut grant = Self { is_partner: rights.partner, ..Self::all(token, user) };
        let Self { publish, subscribe, call, .. } = &mut grant;
        for (patterns, named) in [(publish, &rights.publish), (subscribe, &rights.subscribe), (call, &rights.call)] {
            match named {
                Some(texts) => *patterns = parsed(texts)?,
                None if rights.partner || !rights.operator.is_empty() => patterns.clear(),
                None => {}
            }
        }
        let is_all = |patterns: &Vec<Pattern>| patterns.iter().any(|pattern| pattern.as_str() == ">");
        if ![&grant.publish, &grant.subscribe, &grant.call].into_iter().all(is_all) {
            (grant.answer, grant.serve) = (Vec::new(), Vec::new());
        }
        if let Some(answer) = &rights.answer {
            grant.answer = parsed(answer)?;
        }
        if let Some(serve) = &rights.serve {
            grant.serve.clone_from(serve);
        }
        // Tokens that may make all calls of a storage backend may make those of each right.
        let has_storage = any_matches(&grant.call, &service_subject(STREAMS, CALL));
        for (right, methods) in OPERATOR_RIGHTS {
            let is_named = rights.operator.iter().any(|name| right == "inspect" || name == right);
            for method in methods.iter().filter(|(service, _)| is_named || has_storage && *service == STREAMS) {
                grant.call.extend(parsed(&subjects_of(method))?);
            }
        }
        grant.call.push(Pattern::new("$hub.services")?);
        grant.subscribe.push(Pattern::new("$hub.services.*")?);
        Ok(grant)
    }

    /// A token that allows everything, as much as the hub does.
    pub fn all(token: &str, user: &str) -> Self {
        let everything = || Pattern::new(">").into_iter().collect::<Vec<_>>();
        let (publish, subscribe, call, answer) = (everything(), everything(), everything(), everything());
        let serve = vec![ALL_SERVICES.to_owned()];
        let (token, user, limits) = (token.to_owned(), user.to_owned(), TokenLimits::default());
        Self { token, user, publish, subscribe, call, answer, serve, limits, is_partner: false }
    }
}

/// The grants of a hub. Without any, everybody may do everything.
#[derive(Clone, Debug, Default)]
pub struct Access {
    grants: Vec<Grant>,
    /// Grants of other hubs at their links inside of this process, which need no token.
    partners: Vec<Grant>,
}

/// The number of the first grant of a partner.
const PARTNERS: usize = usize::MAX / 2;

impl Access {
    /// Stands for the grant of the hub's own gateway, which looks at the grant of each of its
    /// clients itself. It may call, publish and subscribe, and answers and serves nothing.
    pub const GATEWAY: usize = usize::MAX;

    /// Stands for the grant of a console that may only look, at a hub without tokens.
    pub const VIEWER: usize = usize::MAX - 2;

    /// Stands for the grant of those who need no token: the node that a bridge is for, and the
    /// nodes that it reaches. They may do everything.
    pub const TRUSTED: usize = usize::MAX - 1;

    /// Only those with one of these tokens may join.
    pub fn new(grants: Vec<Grant>) -> Self {
        Self { grants, partners: Vec::new() }
    }

    /// Adds the grant of another hub whose messages a link of this process passes on, instead of
    /// an earlier one of its user. Returns its number.
    pub fn add_partner(&mut self, grant: Grant) -> usize {
        let at = self.partners.iter().position(|other| other.user == grant.user).unwrap_or(self.partners.len());
        match self.partners.get_mut(at) {
            Some(before) => *before = grant,
            None => self.partners.push(grant),
        }
        PARTNERS + at
    }

    /// The same permissions with the partners of another hub access.
    pub(super) fn with_partners_of(self, other: Self) -> Self {
        Self { partners: other.partners, ..self }
    }

    /// True if lists show what is announced on a pattern to the holder of a grant.
    pub fn may_see(&self, grant: Option<usize>, announced: &str) -> bool {
        let Some(grant) = grant.and_then(|at| self.get(at)).filter(|grant| grant.is_partner) else { return true };
        let service = match target(announced) {
            Some(Target::Instance { service, .. } | Target::Service { service, .. }) => service,
            Some(Target::Agent(_)) => return grant.call.iter().any(|wide| covers(wide.as_str(), announced)),
            None => return false,
        };
        grant.call.iter().any(|pattern| names_service(pattern.as_str(), service))
    }

    /// True for the grant of another hub.
    pub fn is_partner(&self, grant: Option<usize>) -> bool {
        grant.and_then(|at| self.get(at)).is_some_and(|grant| grant.is_partner)
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
        grant.and_then(|at| self.get(at)).map_or("", |grant| &grant.user)
    }

    /// The limits of a grant.
    pub fn limits(&self, grant: Option<usize>) -> TokenLimits {
        grant.and_then(|at| self.get(at)).map_or_else(TokenLimits::default, |grant| grant.limits)
    }

    /// Where a grant allows to publish, as WELCOME states it: patterns with blanks between them.
    /// None: everywhere, or more than can be stated.
    pub fn publishes(&self, grant: Option<usize>) -> Option<String> {
        let patterns = &self.get(grant?)?.publish;
        if patterns.iter().any(|pattern| pattern.as_str() == ">") {
            return None;
        }
        let stated = patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" ");
        (stated.len() as u64 <= limits::LINK_HEAD_BYTES.default).then_some(stated)
    }

    /// Patterns of the subjects that a grant allows to call.
    pub fn calls(&self, grant: Option<usize>) -> Vec<&str> {
        let Some(grant) = grant else { return if self.is_open() { vec![">"] } else { Vec::new() } };
        self.get(grant).into_iter().flat_map(|grant| &grant.call).map(Pattern::as_str).collect()
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
            Some(at) => self.get(at).is_some_and(test),
        }
    }

    fn get(&self, at: usize) -> Option<&Grant> {
        match at {
            Self::VIEWER => VIEWER.as_ref(),
            PARTNERS.. => self.partners.get(at - PARTNERS),
            _ => self.grants.get(at),
        }
    }
}

/// How a token gets the right to call a subject, for people.
pub(super) fn fix_of(subject: &str) -> String {
    let has = |method| subjects_of(method).iter().any(|wide| covers(wide, subject));
    let right = OPERATOR_RIGHTS.iter().find(|(_, methods)| methods.iter().any(has));
    let named = right.map_or_else(String::new, |(right, _)| format!("{right}, or "));
    format!("give the token {named}call with this subject, at the hub")
}

/// The subjects of a method: of any instance, and of one.
fn subjects_of((service, method): &(&str, &str)) -> [String; 2] {
    [service_subject(service, method), instance_subject(service, "*", method)]
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

fn parsed(texts: &[String]) -> Result<Vec<Pattern>, SubjectError> {
    texts.iter().map(|text| Pattern::new(text)).collect()
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

/// True if a pattern selects subjects of a service.
fn names_service(pattern: &str, service: &str) -> bool {
    let token = pattern.strip_prefix(OF_SERVICES).and_then(|rest| rest.split('.').next());
    pattern == ">" || token.is_some_and(|token| [">", "*", service].contains(&token))
}

/// True if two secrets are equal. The time of the comparison does not reveal how many bytes match.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}
