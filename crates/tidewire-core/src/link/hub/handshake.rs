//! Handshake of a joining node: HELLO is checked, the node gets its name and limits, and the hub
//! answers with WELCOME.

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tidewire_proto::wire::{Fields, FieldsWriter, Flags, Frame, Hello, Kind, VERSION, WireError, common_version};

use super::super::access::Access;
use super::super::keepalive::Keepalive;
use super::super::session::SHARED_MEMORY;
use super::{Change, Hub, LinkId};
use crate::federation::check_hub_name;

/// Why a node is not taken in.
type Refusal = (ErrorCode, String);

impl Hub {
    pub(super) fn greeted(&mut self, at: LinkId, frame: &Frame<'_>, now_us: u64) -> Result<(), WireError> {
        let hello = Hello::parse(frame)?;
        match self.admits(at, &hello) {
            Ok((version, grant, name)) => {
                self.take_in(at, grant, name, &hello.fields, now_us);
                self.welcome(at, version)?;
                Ok(())
            }
            Err((ErrorCode::Unauthorized, text)) => {
                self.refuse_token(at, text);
                Ok(())
            }
            Err((code, text)) => {
                self.close(at, code, &text);
                Ok(())
            }
        }
    }

    fn admits<'a>(&mut self, at: LinkId, hello: &Hello<'a>) -> Result<(u16, Option<usize>, &'a str), Refusal> {
        let Some(version) = common_version((VERSION, VERSION), (hello.oldest, hello.newest)) else {
            return Err((ErrorCode::VersionMismatch, versions_differ(hello)));
        };
        if self.leaving {
            return Err((ErrorCode::NodeStopped, "the hub is stopping, and takes no node in".to_owned()));
        }
        let name = hello.fields.text("name").unwrap_or_default();
        let max = limits::NAME_BYTES.default;
        if name.is_empty() || name.len() as u64 > max {
            let bytes = name.len();
            let text = format!(
                "HELLO: name: {bytes} bytes are not allowed: give text of 1 to name_bytes={max} bytes in UTF-8"
            );
            return Err((ErrorCode::WireError, text));
        }
        let (own, is_open) = (self.options.number, self.options.access.is_open());
        let grant = match self.link(at) {
            Some(link) if link.partner.is_some() => Ok(link.partner),
            Some(link) if link.gateway => Ok(Some(Access::GATEWAY)),
            Some(link) if link.remote || (own != 0 && link.number == own) => Ok(Some(Access::TRUSTED)),
            Some(link) if link.is_console && is_open => Ok(Some(Access::VIEWER)),
            _ => self.options.access.admit(hello.fields.text("token")),
        };
        let grant = grant.map_err(|text| (ErrorCode::Unauthorized, text.to_owned()))?;
        self.admits_partner(grant, name, hello.fields.text("hub"))?;
        if let Some(limit) = self.used_up(at, grant, name) {
            let text =
                format!("{limit}: as many nodes as possible have joined: raise the limit at the hub, or join later");
            return Err((ErrorCode::LimitExceeded, text));
        }
        let taken = self.take_name(at, name, grant, hello.fields.text("resume"));
        taken.map_err(|text| (ErrorCode::NameTaken, text))?;
        Ok((version, grant, name))
    }

    /// The token of a partner is for one hub, which has the name of its user here.
    fn admits_partner(&self, grant: Option<usize>, name: &str, hub: Option<&str>) -> Result<(), Refusal> {
        let access = &self.options.access;
        if !access.is_partner(grant) {
            return Ok(());
        }
        let user = access.user(grant);
        if !user.is_empty() && user != name {
            let text = format!("name: {name:?} is not allowed: this token is for the hub {user:?}: join as {user:?}");
            return Err((ErrorCode::Unauthorized, text));
        }
        if hub.is_none_or(|hub| check_hub_name("hub", hub).is_err()) {
            let text = format!("hub: {hub:?} is not allowed: this token is for another hub: join from a hub");
            return Err((ErrorCode::Unauthorized, text));
        }
        Ok(())
    }

    fn take_in(&mut self, at: LinkId, grant: Option<usize>, name: &str, fields: &Fields<'_>, now_us: u64) {
        let (ours_ms, least_ms) = (self.options.heartbeat_ms, self.options.hub_heartbeat_ms);
        let memory = self.options.memory.clone();
        let Some(link) = self.link(at) else { return };
        let number = |field: &str, limit: limits::Limit| fields.number(field).unwrap_or(limit.default);
        let least = |max: usize, number: u64| usize::try_from(number).map_or(max, |number| number.min(max));
        // A node that wants more frequent heartbeats has to ask for them.
        let theirs_ms = number("heartbeat-ms", limits::LINK_HEARTBEAT_MS).max(least_ms);
        let in_flight = number("in-flight", limits::LINK_IN_FLIGHT).min(limits::LINK_IN_FLIGHT.max);
        link.heart = Keepalive::new(ours_ms, theirs_ms, now_us);
        link.ours.limit(in_flight as usize);
        link.payload_max = least(link.payload_max, number("payload-bytes", limits::PAYLOAD_BYTES));
        link.frame_max = least(link.frame_max, number("frame-bytes", limits::LINK_FRAME_BYTES));
        let place = fields.text("place").filter(|_| link.near && fields.has_word("features", SHARED_MEMORY));
        link.memory = memory.zip(place).is_some_and(|(memory, place)| memory.shares(place));
        link.hub = fields.text("hub").map(str::to_owned);
        link.greeting_until_us = None;
        name.clone_into(&mut link.name);
        link.joined_us = now_us;
        self.names.insert(name.to_owned(), at);
        let user = self.options.access.user(grant).to_owned();
        self.note(name, |node| Change::Joined { node, user });
        self.bind(at, grant);
        self.look_at(at);
        self.retimed = true;
    }

    fn welcome(&mut self, at: LinkId, version: u16) -> Result<(), WireError> {
        let mut payload = Vec::new();
        let Some(link) = self.links.get(at).and_then(Option::as_ref) else { return Ok(()) };
        let (options, mut fields) = (&self.options, FieldsWriter::new(&mut payload));
        fields.add("name", options.name.as_bytes())?;
        fields.add("run", format!("{:016x}", self.run).as_bytes())?;
        fields.add("resume", link.resume.as_bytes())?;
        if link.memory {
            fields.add("features", SHARED_MEMORY.as_bytes())?;
        }
        if link.bounds.in_flight.of_token {
            fields.add("of-token", b"in-flight")?;
        }
        if let Some(publish) = options.access.publishes(link.grant) {
            fields.add("publish", publish.as_bytes())?;
        }
        for (name, value) in [
            ("node", u64::from(link.number)),
            ("in-flight", link.bounds.in_flight.max as u64),
            ("frame-bytes", options.frame_bytes as u64),
            ("payload-bytes", options.payload_bytes as u64),
            ("heartbeat-ms", options.heartbeat_ms),
        ] {
            fields.add(name, value.to_string().as_bytes())?;
        }
        self.put(at, Kind::Welcome, Flags::URGENT, 0, &version.to_le_bytes(), &payload);
        Ok(())
    }
}

fn versions_differ(hello: &Hello<'_>) -> String {
    let (oldest, newest) = (hello.oldest, hello.newest);
    let older = if newest < VERSION { "the node that joins" } else { "the hub" };
    format!("the hub speaks version {VERSION}, the node {oldest} to {newest}: {older} is older, update it")
}
