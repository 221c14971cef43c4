//! Errors of storage backends as errors of nodes, and back: each kind has a code of
//! `spec/errors.toml`.

use tidewire_backend::home::{HomeError, HomeErrorKind};
use tidewire_proto::generated::errors::ErrorCode;

use super::conventions::SERVICE;
use crate::error::Error;

const CODES: [(HomeErrorKind, ErrorCode); 16] = [
    (HomeErrorKind::Invalid, ErrorCode::InvalidArgument),
    (HomeErrorKind::TooLarge, ErrorCode::PayloadTooLarge),
    (HomeErrorKind::Limit, ErrorCode::LimitExceeded),
    (HomeErrorKind::Denied, ErrorCode::Unauthorized),
    (HomeErrorKind::Unsupported, ErrorCode::Unsupported),
    (HomeErrorKind::NotFound, ErrorCode::NotFound),
    (HomeErrorKind::Differs, ErrorCode::SettingsDiffer),
    (HomeErrorKind::Full, ErrorCode::StreamFull),
    (HomeErrorKind::Stale, ErrorCode::StaleDelivery),
    (HomeErrorKind::Revision, ErrorCode::RevisionConflict),
    (HomeErrorKind::LeaseLost, ErrorCode::LeaseLost),
    (HomeErrorKind::LeaseHeld, ErrorCode::LeaseHeld),
    (HomeErrorKind::Busy, ErrorCode::HomeBusy),
    (HomeErrorKind::Locked, ErrorCode::DataInUse),
    (HomeErrorKind::Corrupt, ErrorCode::DataCorrupt),
    (HomeErrorKind::Unreachable, ErrorCode::HomeUnavailable),
];

/// The code of a kind. A failing disk, a foreign folder and a closed storage backend have the
/// general code.
pub(super) fn code_of(kind: HomeErrorKind) -> ErrorCode {
    CODES.iter().find(|(known, _)| *known == kind).map_or(ErrorCode::HomeError, |(_, code)| *code)
}

/// True if the same call can't succeed after a pause either.
pub(crate) fn is_final(error: &HomeError) -> bool {
    use HomeErrorKind::{Closed, Denied, Differs, Invalid, NotFound, TooLarge, Unsupported};
    matches!(error.kind(), Invalid | Denied | NotFound | TooLarge | Differs | Unsupported | Closed)
}

fn kind_of(code: ErrorCode) -> HomeErrorKind {
    match code {
        ErrorCode::LinkLost | ErrorCode::NoResponders | ErrorCode::NodeStopped | ErrorCode::AskTimeout => {
            HomeErrorKind::Unreachable
        }
        ErrorCode::InvalidSubject | ErrorCode::WireError => HomeErrorKind::Invalid,
        code => CODES.iter().find(|(_, known)| *known == code).map_or(HomeErrorKind::Disk, |(kind, _)| *kind),
    }
}

/// The error of a failed call of the hub's storage service.
pub(super) fn of_call(error: &Error) -> HomeError {
    let kind = kind_of(error.code());
    if error.code() == ErrorCode::NoResponders {
        let fix = "start it with `tidewire up --data DIR`, or give this node a home of its own";
        return HomeError::new(kind, format!("the hub has no place for streams, buckets and leases: {fix}"));
    }
    let text = error.remote().map_or(error.message(), |remote| remote.message.as_str());
    // Without the name of the method, which the caller has not called itself.
    let own = text.strip_prefix(SERVICE).and_then(|rest| rest.split_once(": ")).map_or(text, |(_, text)| text);
    HomeError::new(kind, own)
}

/// The text of a failed call of the hub's storage service, as it is logged.
pub(crate) fn explained(error: &Error) -> String {
    of_call(error).message().to_owned()
}

impl From<HomeError> for Error {
    fn from(error: HomeError) -> Self {
        Self::new(code_of(error.kind()), error.message())
    }
}

impl From<Error> for HomeError {
    fn from(error: Error) -> Self {
        Self::new(kind_of(error.code()), error.message())
    }
}
