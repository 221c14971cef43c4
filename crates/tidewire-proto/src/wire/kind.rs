//! Kinds of frames: their numbers and names.

use super::WireError;

macro_rules! kinds {
    ($($name:ident = $number:literal $text:literal: $doc:literal,)*) => {
        /// The kind of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $doc] $name = $number,)*
        }

        impl Kind {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The kind with this number.
            ///
            /// # Errors
            /// [`WireError::UnknownKind`] if there is none.
            pub fn of(number: u8) -> Result<Self, WireError> {
                match number {
                    $($number => Ok(Self::$name),)*
                    _ => Err(WireError::UnknownKind(number)),
                }
            }

            /// Its name in `spec/wire.md`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

kinds! {
    Hello = 1 "HELLO": "The first frame of the side that joins.",
    Welcome = 2 "WELCOME": "The first frame of the side that listens.",
    Error = 3 "ERROR": "Why the link is closed.",
    Goodbye = 4 "GOODBYE": "No new exchanges are taken.",
    Ping = 5 "PING": "Are you there?",
    Pong = 6 "PONG": "The answer to a ping.",
    Node = 7 "NODE": "The name behind the number of a node.",
    Subscribe = 8 "SUBSCRIBE": "Wants what is published or called on a pattern.",
    Unsubscribe = 9 "UNSUBSCRIBE": "Ends a subscription.",
    Ok = 10 "OK": "A subscription is in force.",
    Publish = 11 "PUBLISH": "A message to all who subscribed.",
    Call = 12 "CALL": "Opens an exchange.",
    Reply = 13 "REPLY": "The value that ends an exchange.",
    Fail = 14 "FAIL": "The error that ends an exchange.",
    Cancel = 15 "CANCEL": "The caller has gone.",
    Item = 16 "ITEM": "One value of a stream.",
    End = 17 "END": "The end of a stream.",
    Credit = 18 "CREDIT": "So many further items may be sent.",
    Window = 19 "WINDOW": "So many further bytes of a payload may be sent.",
    Chunk = 20 "CHUNK": "More of a payload.",
    Alive = 21 "ALIVE": "The handler is still at work.",
    Taken = 22 "TAKEN": "A payload was read in its place.",
}
