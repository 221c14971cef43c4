//! Errors of a campaign store, by the possible reaction of the caller.

/// The result of a call of a store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// An error of a campaign store. The message names the field or place, the value and the fix.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display, derive_more::Error)]
#[display("{message}")]
pub struct StoreError {
    kind: ErrorKind,
    message: String,
}

named! {
    /// The kind of an error, as far as a program can react to it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    ErrorKind:
    /// There is no connection: the server is away, or the file's folder does not exist.
    Unreachable = "unreachable",
    /// Another process has held what the call needs for too long.
    Locked = "locked",
    /// The database, its file or its folder can't be written.
    ReadOnly = "read_only",
    /// The disk, or the database's limit, is full.
    Full = "full",
    /// The user, the password or a privilege is refused.
    Denied = "denied",
    /// The database is not Tidewire's: a file of another application, no database at all, or tables
    /// that are not ours.
    Foreign = "foreign",
    /// A newer Tidewire has made or migrated the tables.
    Newer = "newer",
    /// The URL can't be read.
    Url = "url",
    /// A value that can't be stored, or does not fit the stored data.
    Invalid = "invalid",
    /// No campaign has this name or number.
    NoSuchCampaign = "no_such_campaign",
    /// A campaign of this name exists.
    NameTaken = "name_taken",
    /// The lease was taken away: nothing was stored.
    Stale = "stale",
    /// The campaign's state does not allow it.
    Transition = "transition",
    /// The tables contradict each other, or the database has reported damage.
    Corrupt = "corrupt",
    /// Anything else that the database has answered.
    Database = "database",
}

impl StoreError {
    /// An error of a kind, with a message that names the value and the fix.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error text.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// True if the same call may succeed after a pause. A commit may have happened although its
    /// connection broke: its results are stored once, and its second try is `Stale` if the lease
    /// was at its end.
    pub const fn retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Locked)
    }
}
