//! Export and import tables of two hubs, read from the texts of a configuration.

use tidewire_proto::generated::limits::NAME_BYTES;
use tidewire_proto::subject::Pattern;
use tidewire_proto::subject::grammar::{COMMANDS, OF_AGENTS, OF_SERVICES, STREAMS};

use super::{SEPARATOR, check_hub_name, qualified};
use crate::link::announcement::is_token;

/// Stands before the id of an agent in a list.
const AGENT: &str = "agent:";
/// Stands before the name of a stream in a list.
const STREAM: &str = "stream:";

/// A service, an agent or a durable stream that one hub shares with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedName {
    /// Its name at the hub that has it.
    pub name: String,
    /// Its name at the other hub.
    pub seen_as: String,
}

/// Services, agents, streams and subjects that go in one direction.
#[derive(Clone, Debug, Default)]
pub struct ShareList {
    /// The services, by their names at both hubs.
    pub services: Vec<SharedName>,
    /// The agents, by their ids at both hubs.
    pub agents: Vec<SharedName>,
    /// The durable streams, by their names and those of their mirrors at the other hub.
    pub streams: Vec<SharedName>,
    /// The patterns of subjects, which are the same at both hubs.
    pub subjects: Vec<Pattern>,
}

/// Everything that a hub shares with the one that it joins.
///
/// ```
/// use tidewire_core::federation::FederationTable;
///
/// let table = FederationTable::new("berlin", &["pricing", "orders.>"], &["paris:billing", "paris:tax=levies"])?;
/// assert_eq!(table.exports.services[0].seen_as, "berlin:pricing");
/// assert_eq!(table.exports.subjects[0].as_str(), "orders.>");
/// let stream = &FederationTable::new("berlin", &["stream:orders"], &[])?.exports.streams[0];
/// assert_eq!((&*stream.name, &*stream.seen_as), ("orders", "berlin-orders"));
/// let local: Vec<_> = table.imports.services.iter().map(|service| &*service.seen_as).collect();
/// assert_eq!((table.partner.as_deref(), local), (Some("paris"), vec!["paris:billing", "levies"]));
/// assert_eq!(
///     FederationTable::new("berlin", &[], &["billing"]).unwrap_err(),
///     "import: \"billing\" is not allowed: name the other hub first, as in \"paris:billing\""
/// );
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FederationTable {
    /// The name of this hub at the other one.
    pub own: String,
    /// The name of the other hub here, if an import names it.
    pub partner: Option<String>,
    /// Names of this hub that the other one sees.
    pub exports: ShareList,
    /// Names of the other hub that this one sees.
    pub imports: ShareList,
}

impl FederationTable {
    /// Reads the lists. An export is the name of a service, `agent:` and the id of an agent,
    /// `stream:` and the name of a stream, each perhaps with `=alias`, or a pattern of subjects,
    /// which has a dot. An import has the name of the other hub and a colon before that.
    ///
    /// # Errors
    /// The first problem, with the field, the value and a valid alternative.
    pub fn new<T: AsRef<str>>(own: &str, exports: &[T], imports: &[T]) -> Result<Self, String> {
        check_hub_name("as", own)?;
        let mut table = Self { own: own.to_owned(), ..Self::default() };
        for text in exports {
            table.exports.add("export", text.as_ref(), text.as_ref(), own)?;
        }
        for text in imports {
            let text = text.as_ref();
            let Some((hub, name)) = text.split_once(SEPARATOR) else {
                let fix = format!("name the other hub first, as in {:?}", qualified("paris", text));
                return Err(format!("import: {text:?} is not allowed: {fix}"));
            };
            check_hub_name("import", hub)?;
            if let Some(other) = table.partner.replace(hub.to_owned()).filter(|other| other != hub) {
                let fix = format!("a join is with one hub, and {other:?} was named before: join {hub:?} separately");
                return Err(format!("import: {text:?} is not allowed: {fix}"));
            }
            table.imports.add("import", text, name, hub)?;
        }
        Ok(table)
    }

    /// True if nothing is shared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exports.is_empty() && self.imports.is_empty()
    }
}

impl ShareList {
    fn add(&mut self, field: &str, text: &str, shared: &str, hub: &str) -> Result<(), String> {
        let wrong = |fix: &str| Err(format!("{field}: {text:?} is not allowed: {fix}"));
        let (name, alias) = shared.split_once('=').map_or((shared, None), |(name, alias)| (name, Some(alias)));
        if let Some(id) = name.strip_prefix(AGENT) {
            let seen_as = alias.map_or_else(|| qualified(hub, id), str::to_owned);
            if [id, &seen_as].iter().any(|id| id.is_empty() || id.len() as u64 > NAME_BYTES.max) {
                return wrong("give the id of an agent, as in \"agent:planner\" or \"agent:planner=chief\"");
            }
            return share(&mut self.agents, id, seen_as).or_else(|fix| wrong(&fix));
        }
        if let Some(name) = name.strip_prefix(STREAM) {
            let mirror = alias.map_or_else(|| format!("{hub}-{name}"), str::to_owned);
            if let Some(no_stream) = [name, &mirror].into_iter().find(|one| !is_stream(one)) {
                return wrong(&format!("{no_stream:?} names no stream: give 1 to 64 of A-Z, a-z, 0-9, _ and -"));
            }
            return share(&mut self.streams, name, mirror).or_else(|fix| wrong(&fix));
        }
        if name.contains(['.', '*', '>']) {
            if alias.is_some() {
                return wrong("subjects have the same names at both hubs: leave out what follows the =");
            }
            let first = name.split('.').next().unwrap_or_default();
            let is_owned = [OF_SERVICES, OF_AGENTS].iter().any(|owned| name.starts_with(owned));
            if !is_token(first) || first.starts_with('$') || is_owned {
                return wrong("give a pattern that begins with a name of yours, as in \"orders.>\"");
            }
            let pattern = Pattern::new(name).map_err(|problem| format!("{field}: {problem}"))?;
            if !self.subjects.iter().any(|known| known.as_str() == name) {
                self.subjects.push(pattern);
            }
            return Ok(());
        }
        let seen_as = alias.map_or_else(|| qualified(hub, name), str::to_owned);
        for one in [name, &seen_as] {
            if one.starts_with('$') || [STREAMS, COMMANDS].contains(&one) {
                return wrong("the services of a hub itself stay there: give a name of yours");
            }
            if !is_token(one) || one.len() as u64 > NAME_BYTES.max {
                return wrong("give the name of a service, NAME=ALIAS, or a pattern of subjects with a dot");
            }
        }
        share(&mut self.services, name, seen_as).or_else(|fix| wrong(&fix))
    }

    /// True if it names nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.agents.is_empty() && self.streams.is_empty() && self.subjects.is_empty()
    }
}

fn share(names: &mut Vec<SharedName>, name: &str, seen_as: String) -> Result<(), String> {
    if names.iter().any(|known| known.seen_as == seen_as) {
        return Err(format!("{seen_as:?} was given before: give another name after a ="));
    }
    names.push(SharedName { name: name.to_owned(), seen_as });
    Ok(())
}

/// True for a name that every storage backend takes for a stream.
fn is_stream(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}
