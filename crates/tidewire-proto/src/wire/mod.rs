//! The frames of a link, as `spec/wire.md` describes them: bytes in, borrowed views out, and back.
//!
//! Nothing here allocates for a frame that is read. Frames are written to the end of a buffer, so
//! that many of them make one write.
//!
//! ```
//! use tidewire_proto::wire::{CallHead, Fields, Flags, Frame, Kind, read, write};
//!
//! let mut out = Vec::new();
//! let head = CallHead { deadline_ms: 500, subject: "svc.pricing.quote", ..CallHead::default() };
//! write(&mut out, Kind::Call, Flags::NORMAL, 1, |out| head.put(out), b"payload")?;
//!
//! let Some(Frame { kind: Kind::Call, id: 1, head, payload, .. }) = read(&out, 65_536)? else { panic!() };
//! let call = CallHead::parse(head)?;
//! assert_eq!((call.subject, call.deadline_ms, payload), ("svc.pricing.quote", 500, &b"payload"[..]));
//! # Ok::<(), tidewire_proto::wire::WireError>(())
//! ```

mod check;
mod error;
mod fields;
mod flags;
mod frame;
mod head_reader;
mod heads;
mod hello;
mod kind;
mod memory_location;

pub use error::WireError;
pub use fields::{Fields, FieldsWriter};
pub use flags::Flags;
pub use frame::{BegunChunk, FRAME_HEAD, Frame, LENGTH_BYTES, begin, read, set_id, set_route, write};
pub use heads::{CHOICE_WITH_CAPACITY, CallHead, FailHead, PublishHead, SubscribeHead, read_u16, read_u32};
pub use hello::{Hello, MAGIC, VERSION, Welcome, common_version};
pub use kind::Kind;
pub use memory_location::{MemoryLocation, PLACE_BYTES, set_place};
