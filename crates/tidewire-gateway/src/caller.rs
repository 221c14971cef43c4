//! Callers of the gateway: authentication by token, and the permissions that the hub grants to
//! nodes.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap, WWW_AUTHENTICATE};
use tidewire_link::Access;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::grammar::{READ, STREAMS, Target, instance_subject, service_subject, target};

use crate::catalog::Service;
use crate::problem::Problem;
use crate::shared::Shared;

/// A wrong token is answered so much later, as one of a node is.
const WRONG: Duration = Duration::from_secs(1);

/// Caller of a request.
#[derive(Clone)]
pub(crate) struct Caller {
    pub grant: Option<usize>,
    pub user: String,
}

/// Which instance gets a call.
pub(crate) enum Instance {
    /// The hub chooses.
    Any,
    One(String),
}

impl Caller {
    /// Looks at the token of a request.
    pub async fn of(shared: &Shared, headers: &HeaderMap) -> Result<Self, Problem> {
        let token = token(headers)?;
        match shared.access.admit(token) {
            Ok(grant) => Ok(Self { grant, user: shared.access.user(grant).to_owned() }),
            Err(_) => {
                if token.is_some() {
                    tokio::time::sleep(WRONG).await;
                }
                let fix = "give one of the hub in the header Authorization: Bearer TOKEN";
                let what =
                    if token.is_some() { "this hub does not know the token" } else { "this hub asks for a token" };
                let problem = Problem::new(ErrorCode::Unauthorized, format!("{what}: {fix}"));
                Err(problem.with_status(StatusCode::UNAUTHORIZED).with_header(WWW_AUTHENTICATE, "Bearer"))
            }
        }
    }

    /// The instances of the service on which the caller may call a method; an error if there are
    /// none.
    pub fn instance(&self, access: &Access, service: &Service, method: &str) -> Result<Instance, Problem> {
        let name = &service.info.name;
        if access.may_call(self.grant, &service_subject(name, method)) {
            return Ok(Instance::Any);
        }
        let may = |instance: &&String| access.may_call(self.grant, &instance_subject(name, instance, method));
        let allowed: Vec<_> = service.info.instances.iter().filter(may).collect();
        if allowed.len() == service.info.instances.len() {
            return Ok(Instance::Any);
        }
        let one = allowed.first().copied().cloned().map(Instance::One);
        one.ok_or_else(|| {
            Problem::new(ErrorCode::Unauthorized, format!("{name}.{method}: it may not be called with this token"))
        })
    }

    /// True if it may call a method of at least one instance.
    pub fn may_call(&self, access: &Access, service: &Service, method: &str) -> bool {
        self.instance(access, service, method).is_ok()
    }

    /// True if its token may read streams and buckets over a link. Without tokens nobody may, as
    /// HTTP clients reach what is public alone.
    pub fn may_read_storage(&self, access: &Access) -> bool {
        !access.is_open() && access.may_call(self.grant, &service_subject(STREAMS, READ))
    }

    /// Fails if the token does not allow to publish on the subject.
    pub fn check_publish(&self, access: &Access, subject: &str) -> Result<(), Problem> {
        if let Some(Target::Service { .. } | Target::Instance { .. }) = target(subject) {
            let text = format!("subject: {subject:?} takes calls alone: POST /services/NAME/METHOD calls a method");
            return Err(Problem::new(ErrorCode::InvalidSubject, text));
        }
        let is_of_protocol = subject.starts_with('$');
        if !is_of_protocol && access.may_publish(self.grant, subject) {
            return Ok(());
        }
        let text = format!("subject: {subject:?} may not be published on with this token");
        Err(Problem::new(ErrorCode::Unauthorized, text))
    }

    /// Fails if the token does not allow to subscribe to the pattern.
    pub fn check_subscribe(&self, access: &Access, pattern: &str) -> Result<(), Problem> {
        let is_of_protocol = pattern.starts_with('$');
        if !is_of_protocol && access.may_subscribe(self.grant, pattern) {
            return Ok(());
        }
        let text = format!("subject: {pattern:?} may not be subscribed to with this token");
        Err(Problem::new(ErrorCode::Unauthorized, text))
    }
}

fn token(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(first) = all.next() else { return Ok(None) };
    let bearer = first.to_str().ok().and_then(|text| text.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer") && all.next().is_none());
    match bearer {
        Some((_, token)) => Ok(Some(token.trim())),
        None => {
            let problem =
                Problem::new(ErrorCode::Unauthorized, "Authorization: give one header, with Bearer and the token");
            Err(problem.with_status(StatusCode::UNAUTHORIZED).with_header(WWW_AUTHENTICATE, "Bearer"))
        }
    }
}
