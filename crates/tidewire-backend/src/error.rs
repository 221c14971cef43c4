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

/// The kind of an error, as far as a program can react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no connection: the server is away, or the file's folder does not exist.
    Unreachable,
    /// Another process has held what the call needs for too long.
    Locked,
    /// The database, its file or its folder can't be written.
    ReadOnly,
    /// The disk, or the database's limit, is full.
    Full,
    /// The user, the password or a privilege is refused.
    Denied,
    /// The database is not Tidewire's: a file of another application, no database at all, or tables
    /// that are not ours.
    Foreign,
    /// A newer Tidewire has made or migrated the tables.
    Newer,
    /// The URL can't be read.
    Url,
    /// A value that can't be stored, or does not fit the stored data.
    Invalid,
    /// No campaign has this name or number.
    NoSuchCampaign,
    /// A campaign of this name exists.
    NameTaken,
    /// The lease was taken away: nothing was stored.
    Stale,
    /// The campaign's state does not allow it.
    Transition,
    /// The tables contradict each other, or the database has reported damage.
    Corrupt,
    /// Anything else that the database has answered.
    Database,
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
    /// connection broke: its second try is then `Stale`, and its results are stored once.
    pub const fn retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unreachable | ErrorKind::Locked)
    }
}

impl ErrorKind {
    /// The name for programs: `unreachable`, `read_only`, ...
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Locked => "locked",
            Self::ReadOnly => "read_only",
            Self::Full => "full",
            Self::Denied => "denied",
            Self::Foreign => "foreign",
            Self::Newer => "newer",
            Self::Url => "url",
            Self::Invalid => "invalid",
            Self::NoSuchCampaign => "no_such_campaign",
            Self::NameTaken => "name_taken",
            Self::Stale => "stale",
            Self::Transition => "transition",
            Self::Corrupt => "corrupt",
            Self::Database => "database",
        }
    }
}
