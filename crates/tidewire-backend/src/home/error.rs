//! Errors of a storage backend, by the possible reaction of the caller.

/// The result of a call of a storage backend.
pub type HomeResult<T> = std::result::Result<T, HomeError>;

/// An error of a storage backend. The message names the field or object, the value and the fix.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{}", self.message())]
pub struct HomeError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: HomeErrorKind,
    message: String,
}

/// The kind of an error, as far as a program can react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HomeErrorKind {
    /// A name, subject, limit or option that is out of range, or does not fit what is stored.
    Invalid,
    /// This storage backend can't do it, as its capabilities declare.
    Unsupported,
    /// The payload has more bytes than the storage backend takes.
    TooLarge,
    /// There is no stream, consumer or bucket of this name, or it was deleted.
    NotFound,
    /// A stream, consumer or bucket of this name exists with other settings.
    Differs,
    /// The stream or bucket is at its limit, and refuses.
    Full,
    /// The delivery is no longer this one's: acked before, or given to another since.
    Stale,
    /// The key has another revision than was expected.
    Revision,
    /// The lease was lost: it expired, or another holder has it.
    LeaseLost,
    /// Another holder had the lease for the whole wait.
    LeaseHeld,
    /// There are as many streams, consumers or leases as there may be.
    Limit,
    /// The storage backend takes nothing more for the moment: too much waits to be stored.
    Busy,
    /// The folder is in use by another process.
    Locked,
    /// The folder or file can't be read or written, or the disk is full.
    Disk,
    /// Stored data contradicts its checksums.
    Corrupt,
    /// Stored data was written by a newer version, or is not Tidewire's.
    Foreign,
    /// There is no connection to the servers, or they don't answer.
    Unreachable,
    /// The servers refuse the user, the password or the operation.
    Denied,
    /// The storage backend was closed, or ended before it answered.
    Closed,
}

impl HomeError {
    /// An error of a kind, with a message that names the value and the fix.
    pub fn new(kind: HomeErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into() }))
    }

    /// The kind of the error.
    pub fn kind(&self) -> HomeErrorKind {
        self.0.kind
    }

    /// The error text.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// True if the same call may succeed after a pause. Publish again with the same `id`, so that
    /// what had been stored in spite of the error is stored once.
    pub fn retryable(&self) -> bool {
        matches!(self.kind(), HomeErrorKind::Unreachable | HomeErrorKind::Busy | HomeErrorKind::LeaseHeld)
    }
}

impl HomeErrorKind {
    /// Every kind.
    pub const ALL: [Self; 19] = [
        Self::Invalid,
        Self::Unsupported,
        Self::TooLarge,
        Self::NotFound,
        Self::Differs,
        Self::Full,
        Self::Stale,
        Self::Revision,
        Self::LeaseLost,
        Self::LeaseHeld,
        Self::Limit,
        Self::Busy,
        Self::Locked,
        Self::Disk,
        Self::Corrupt,
        Self::Foreign,
        Self::Unreachable,
        Self::Denied,
        Self::Closed,
    ];

    /// The name for programs: `not_found`, `lease_lost`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::TooLarge => "too_large",
            Self::NotFound => "not_found",
            Self::Differs => "differs",
            Self::Full => "full",
            Self::Stale => "stale",
            Self::Revision => "revision",
            Self::LeaseLost => "lease_lost",
            Self::LeaseHeld => "lease_held",
            Self::Limit => "limit",
            Self::Busy => "busy",
            Self::Locked => "locked",
            Self::Disk => "disk",
            Self::Corrupt => "corrupt",
            Self::Foreign => "foreign",
            Self::Unreachable => "unreachable",
            Self::Denied => "denied",
            Self::Closed => "closed",
        }
    }
}

impl std::error::Error for HomeError {}
