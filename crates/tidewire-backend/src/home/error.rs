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

named! {
    /// The kind of an error, as far as a program can react to it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    HomeErrorKind:
    /// A name, subject, limit or option that is out of range, or does not fit what is stored.
    Invalid = "invalid",
    /// This storage backend can't do it, as its capabilities declare.
    Unsupported = "unsupported",
    /// The payload has more bytes than the storage backend takes.
    TooLarge = "too_large",
    /// There is no stream, consumer or bucket of this name, or it was deleted.
    NotFound = "not_found",
    /// A stream, consumer or bucket of this name exists with other settings.
    Differs = "differs",
    /// The stream or bucket is at its limit, and refuses.
    Full = "full",
    /// The delivery is no longer this one's: acked before, or given to another since.
    Stale = "stale",
    /// The key has another revision than was expected.
    Revision = "revision",
    /// The lease was lost: it expired, or another holder has it.
    LeaseLost = "lease_lost",
    /// Another holder had the lease for the whole wait.
    LeaseHeld = "lease_held",
    /// There are as many streams, consumers or leases as there may be.
    Limit = "limit",
    /// The storage backend takes nothing more for the moment: too much waits to be stored.
    Busy = "busy",
    /// The folder is in use by another process.
    Locked = "locked",
    /// The folder or file can't be read or written, or the disk is full.
    Disk = "disk",
    /// Stored data contradicts its checksums.
    Corrupt = "corrupt",
    /// Stored data was written by a newer version, or is not Tidewire's.
    Foreign = "foreign",
    /// There is no connection to the servers, or they don't answer.
    Unreachable = "unreachable",
    /// The servers refuse the user, the password or the operation.
    Denied = "denied",
    /// The storage backend was closed, or ended before it answered.
    Closed = "closed",
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

impl std::error::Error for HomeError {}
