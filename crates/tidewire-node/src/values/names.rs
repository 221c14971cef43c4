//! Newtype names that mark extension types in serde.

/// Prefix of the name of a newtype that is encoded as an extension.
const PREFIX: &str = "\0tidewire:";

/// The names of the extensions from -1 on.
const NAMES: [&str; 23] = [
    "\0tidewire:-1",
    "\0tidewire:0",
    "\0tidewire:1",
    "\0tidewire:2",
    "\0tidewire:3",
    "\0tidewire:4",
    "\0tidewire:5",
    "\0tidewire:6",
    "\0tidewire:7",
    "\0tidewire:8",
    "\0tidewire:9",
    "\0tidewire:10",
    "\0tidewire:11",
    "\0tidewire:12",
    "\0tidewire:13",
    "\0tidewire:14",
    "\0tidewire:15",
    "\0tidewire:16",
    "\0tidewire:17",
    "\0tidewire:18",
    "\0tidewire:19",
    "\0tidewire:20",
    "\0tidewire:21",
];

/// The name of the newtype that is written as this extension.
pub(crate) fn name_of(code: i8) -> &'static str {
    NAMES[(code + 1) as usize]
}

/// The extension that a newtype of this name is written as.
pub(crate) fn code_of(name: &str) -> Option<i8> {
    name.strip_prefix(PREFIX)?.parse().ok()
}
